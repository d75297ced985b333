"""An S3-compatible server on loopback, and what a test does with it beside the code that it
tests.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from typing import Any

KEYS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
}


@dataclass
class Bucket:
    """A bucket of its own for a test.

    Attributes:
        name: its name.
        endpoint: the server's address.
        client: of boto3.
        requests: what the server was asked, such as "PUT /bucket-1/lab/x".
    """

    name: str
    endpoint: str
    client: Any
    requests: list[str] = field(default_factory=list)

    @property
    def storage(self) -> str:
        return f"s3://{self.name}/lab"

    @property
    def environment(self) -> dict[str, str]:
        return {**KEYS, "AWS_ENDPOINT_URL": self.endpoint}

    def names(self) -> list[str]:
        """Of all files in storage."""
        found = self.client.list_objects_v2(Bucket=self.name).get("Contents", [])
        return [name["Key"].removeprefix("lab/") for name in found]

    def read(self, name: str) -> bytes:
        return self.client.get_object(Bucket=self.name, Key=f"lab/{name}")["Body"].read()

    def write(self, name: str, data: bytes) -> None:
        self.client.put_object(Bucket=self.name, Key=f"lab/{name}", Body=data)

    def forbid(self, action: str) -> None:
        """Nobody may do it any more."""
        policy = (
            f'{{"Version": "2012-10-17", "Statement": [{{"Effect": "Deny", '
            f'"Principal": "*", "Action": "s3:{action}", '
            f'"Resource": "arn:aws:s3:::{self.name}/*"}}]}}'
        )
        self.client.put_bucket_policy(Bucket=self.name, Policy=policy)


class Asked(logging.Handler):
    """Notes what a server is asked."""

    def __init__(self, requests: list[str]):
        super().__init__()
        self._requests = requests

    def emit(self, record: logging.LogRecord) -> None:
        if found := re.search(r"(PUT|GET|HEAD|POST|DELETE) (\S+)", record.getMessage()):
            self._requests.append(f"{found[1]} {found[2]}")
