"""Recall, the control task: name the value of one key out of a list of key-value pairs. Light half.

Generated, not downloaded. It separates mixers that carry content along the sequence from a network
that cannot: read at the last position, `identity` sees nothing but the queried key, whose value is
drawn independently, so it stays at chance, 1 / num_values.
"""

from __future__ import annotations

from pydantic import model_validator

from subquad.plugin import DatasetPlugin, param
from subquad_datasets.generated import GeneratedConfig


class Config(GeneratedConfig):
    """Parameters of the recall task."""

    num_pairs: int = param(
        16, meaning="pairs in a sequence; its length is one more", ge=1, le=100_000
    )
    num_keys: int = param(
        16, meaning="different keys; those of one sequence are distinct", ge=1, le=100_000
    )
    num_values: int = param(8, meaning="different values, the classes", ge=2, le=10_000)

    @model_validator(mode="after")
    def _distinct_keys(self) -> Config:
        if self.num_pairs > self.num_keys:
            raise ValueError(
                f"num_pairs {self.num_pairs} is more than num_keys "
                f"{self.num_keys}, but the keys of a sequence are "
                f"distinct: use num_keys {self.num_pairs} or more"
            )
        return self


PLUGIN = DatasetPlugin(
    config=Config,
    build="subquad_datasets.recall.dataset:Recall",
    summary="control task: recall the value of a key from a list of pairs; chance without mixing",
    inputs="tokens",
    targets=("class", "next-token"),
)
