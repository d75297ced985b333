"""Jobs on a cluster that exists: hand one in, follow what it says, and stop it.

All goes through the dashboard's port, and needs the cluster's token. Nothing of this process's
environment is sent.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp
from ray.job_submission import JobDetails

from subquad.errors import DataError, RunError, UserError
from subquad.security.downloads import ask, client, is_loopback, proxy_of
from subquad.security.strict_json import parse_json

_PROBE_SECONDS, _ANSWER_SECONDS, _QUIET_SECONDS = 4, 60, 15
_SLOWEST = 1e5
"""Bytes a second that a way to a cluster takes at least."""
_LISTENS = "0A"
"""Linux's number for the state of a socket that listens."""
_STOP_SECONDS = 150
"""That a job may take to save before it is killed; the executor's own limit is below."""


class Jobs:
    """The jobs of a cluster, by the http of Ray's dashboard.

    Args:
        address: of its dashboard, as in http://127.0.0.1:8265.
        insecure: also one that asks for no token, or without encryption over a network.

    Raises:
        UserError: it cannot be reached, or not in a safe way.
    """

    def __init__(self, address: str, *, insecure: bool = False):
        self.address = address.rstrip("/")
        self._headers = _credentials(self.address, insecure)

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """What goes wrong on the way, in one line."""
        try:
            yield
        except DataError as error:
            raise RunError(str(error)) from error
        except (aiohttp.ClientError, OSError) as error:
            raise UserError(
                f"{self.address}: no answer any more ({type(error).__name__})"
            ) from error
        except (LookupError, TypeError, ValueError) as error:
            raise UserError(f"{self.address}: answers with what is no answer of Ray's") from error

    def _ask(self, method: str, path: str, job: str = "", size: int = 0, **sent: Any) -> str:
        """What the cluster answers.

        Args:
            job: that is asked for.
            size: bytes that are sent.
        """
        answer = BytesIO()
        with self._answering():
            status = ask(
                method,
                f"{self.address}/api/{path}",
                answer,
                seconds=_ANSWER_SECONDS + size / _SLOWEST,
                headers=self._headers,
                **sent,
            )
        text = answer.getvalue().decode(errors="replace")
        if job and (status == 404 or "does not exist" in text):
            raise UserError(f"no job {job} on {self.address}; `subquad submit status` lists them")
        if status != 200:
            last = (text.strip().splitlines() or [f"status {status}"])[-1]
            raise UserError(f"{self.address}: refused: {last}")
        return text

    def submit(
        self,
        archive: Path,
        words: Sequence[str],
        job: str,
        metadata: dict[str, str],
        labels: dict[str, str],
    ) -> None:
        """Upload a folder, packed, and start a command of subquad in it.

        Args:
            archive: the zip file.
            words: the command's.
            job: its name, which no other job has.
            metadata: kept with the job.
            labels: of the node that it starts on, the head node where there are none.
        """
        content = archive.read_bytes()
        package = f"_ray_pkg_{secrets.token_hex(16)}.zip"
        self._ask("PUT", f"packages/gcs/{package}", size=len(content), data=BytesIO(content))
        self._ask(
            "POST",
            "jobs/",
            json={
                "entrypoint": shlex.join(["exec", "python", "-m", "subquad.cli.main", *words]),
                "submission_id": job,
                "runtime_env": {
                    "working_dir": f"gcs://{package}",
                    "env_vars": {
                        "RAY_JOB_STOP_WAIT_TIME_S": str(_STOP_SECONDS),
                        # on a node that is not the head Ray adds names that ours are, too
                        "RAY_OVERRIDE_JOB_RUNTIME_ENV": "1",
                    },
                },
                "entrypoint_label_selector": labels,
                "metadata": metadata,
            },
        )

    def info(self, job: str) -> JobDetails:
        """What the cluster knows of a job."""
        with self._answering():
            return JobDetails(**parse_json(self._ask("GET", f"jobs/{_quoted(job)}", job)))

    def all(self) -> list[JobDetails]:
        """The jobs that subquad handed in, the newest last."""
        with self._answering():
            known = [JobDetails(**job) for job in parse_json(self._ask("GET", "jobs/"))]
        return sorted(
            (job for job in known if "subquad" in (job.metadata or {})),
            key=lambda job: job.start_time or 0,
        )

    def logs(self, job: str) -> str:
        """All that a job has said."""
        with self._answering():
            return str(parse_json(self._ask("GET", f"jobs/{_quoted(job)}/logs", job))["logs"])

    def follow(self, job: str, show: Callable[[str], None]) -> JobDetails:
        """Show what a job says until it ends; what is known of it then.

        Where the connection breaks the cluster is asked whether it answers, and it is begun again.
        """
        self.info(job)
        url = f"{self.address}/api/jobs/{_quoted(job)}/logs/tail"
        shown = 0

        async def tail() -> None:
            nonlocal shown
            place = 0
            async with (
                await client(headers=self._headers) as session,
                session.ws_connect(url, heartbeat=_QUIET_SECONDS, proxy=proxy_of(url)) as said,
            ):
                async for message in said:
                    if message.type != aiohttp.WSMsgType.TEXT:  # what went wrong on the way
                        break
                    text = str(message.data)
                    show(text[max(0, shown - place) :])
                    place += len(text)
                    shown = max(shown, place)

        while True:
            with suppress(aiohttp.ClientError, OSError):
                asyncio.run(tail())
            info = self.info(job)
            if info.status.is_terminal():
                return info
            time.sleep(0.5)

    def stop(self, job: str) -> tuple[JobDetails, bool]:
        """Ask a job to save and to end, and wait until it has.

        Returns:
            what is known of it then, and whether it was running.
        """
        before = self.info(job)
        if before.status.is_terminal():
            return before, False
        self._ask("POST", f"jobs/{_quoted(job)}/stop", job)
        limit = _STOP_SECONDS + 30
        until = time.monotonic() + limit
        while not (info := self.info(job)).status.is_terminal():
            if time.monotonic() > until:
                raise UserError(f"job {job} has not ended after {limit} s: {info.message}")
            time.sleep(0.3)
        return info, True


def _quoted(text: str) -> str:
    return quote(text, safe="", errors="backslashreplace")


def _credentials(address: str, insecure: bool) -> dict[str, str]:
    """Headers for a cluster, after a look at what it answers without any.

    Raises:
        UserError: it does not answer, it is open to everybody, or there is no token for it, or a
            wrong one.
    """
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        raise UserError("--address: write the dashboard's address, as in http://127.0.0.1:8265")
    if _status(address, {}) == 200:
        if insecure:
            return {}
        raise UserError(
            f"{address} asks for no token: whoever reaches it can run code there. "
            "Start the cluster with "
            "RAY_AUTH_MODE=token, or write --insecure"
        )
    if is_loopback(parts.hostname) and not insecure:
        _refuse_strange_listener(address, parts.port or (443 if parts.scheme == "https" else 80))
    token = _token()
    if token is None:
        raise UserError(
            f"{address} asks for a token: set RAY_AUTH_TOKEN or "
            "RAY_AUTH_TOKEN_PATH, as on the cluster"
        )
    if parts.scheme == "http" and not is_loopback(parts.hostname) and not insecure:
        raise UserError(
            f"{address}: the token would go over the network in clear; go through "
            "a tunnel (ssh -L), use https, or "
            "write --insecure"
        )
    headers = {"Authorization": f"Bearer {token}"}
    if _status(address, headers) != 200:
        raise UserError(f"{address} refuses the token: it is not this cluster's")
    return headers


def _refuse_strange_listener(address: str, port: int) -> None:
    """Refuse to give the token to a program of another user of this machine, which may listen where
    a tunnel ended.

    Raises:
        UserError: the listener belongs to somebody else.
    """
    found: set[int] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):  # of Linux
        with suppress(OSError):
            for row in Path(table).read_text(encoding="ascii").splitlines()[1:]:
                fields = row.split()
                if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                    found.add(int(fields[7]))
    strangers = found - {os.getuid(), 0}
    if strangers:
        names = ", ".join(f"user {uid}" for uid in sorted(strangers))
        raise UserError(
            f"{address}: {names} listens there, not you, and would get the token: open your own "
            "tunnel to another port, or write --insecure if this cluster is theirs"
        )


def _status(address: str, headers: dict[str, str]) -> int:
    """How a dashboard answers: 200, 401 or 403."""
    answer = BytesIO()
    try:
        status = ask(
            "GET", f"{address}/api/version", answer, seconds=_PROBE_SECONDS, headers=headers
        )
        known = status in (401, 403) or "ray_version" in parse_json(answer.getvalue())
    except TimeoutError as error:
        raise UserError(f"{address}: no answer within {_PROBE_SECONDS} s") from error
    except aiohttp.ClientConnectionError as error:
        why = (
            "its certificate is not trusted"
            if isinstance(error, aiohttp.ClientSSLError)
            else "no connection"
        )
        raise UserError(f"{address}: {why}; is the cluster up, and the tunnel to it?") from error
    except (ValueError, TypeError, aiohttp.ClientError) as error:
        raise UserError(f"{address} is no Ray dashboard") from error
    if not known:
        raise UserError(f"{address} is no Ray dashboard")
    return status


def _token() -> str | None:
    """The token, from where Ray looks for it."""
    if token := os.environ.get("RAY_AUTH_TOKEN", "").strip():
        return token
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    path = Path(named) if named else Path.home() / ".ray" / "auth_token"
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: the token cannot be read: {error}") from error
