"""Jobs on a cluster that exists: hand one in, follow what it says, stop it, and fetch what it made.

All goes through the dashboard's port, and needs the cluster's token. Nothing of this process's
environment is sent.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import shlex
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp
import requests
from ray.job_submission import JobDetails, JobSubmissionClient

from subquad.errors import RunError, UserError
from subquad.ray.results import results_name, unpack

_PROBE_SECONDS, _ANSWER_SECONDS, _QUIET_SECONDS = 4, 60, 15
_LISTENS = "0A"
"""Linux's number for the state of a socket that listens."""
_AT_ONCE = 2**20
"""Bytes of an answer that are in memory at a time."""
_STOP_SECONDS = 150
"""That a job may take to save before it is killed; the executor's own limit is below."""


class _Client(JobSubmissionClient):
    """Ray's client, which never waits for ever, and goes nowhere else than to its cluster."""

    def _do_request(self, method: str, endpoint: str, **options: Any) -> requests.Response:
        limits = {"timeout": _ANSWER_SECONDS, "allow_redirects": False}
        return super()._do_request(method, endpoint, **limits, **options)


class Jobs:
    """The jobs of a cluster.

    Args:
        address: of its dashboard, as in http://127.0.0.1:8265.
        insecure: also one that asks for no token, or without encryption over a network.

    Raises:
        UserError: it cannot be reached, or not in a safe way.
    """

    def __init__(self, address: str, *, insecure: bool = False):
        self.address = address.rstrip("/")
        if _is_loopback(host := urlsplit(self.address).hostname or ""):
            # a proxy would look on its own machine
            os.environ["NO_PROXY"] = os.environ["no_proxy"] = host
        self._headers = _credentials(self.address, insecure)
        os.environ["RAY_API_SERVER_ADDRESS"] = self.address  # which Ray prefers to what it is given
        for name in ("dashboard_sdk", "job.sdk"):
            logging.getLogger(f"ray.dashboard.modules.{name}").setLevel(logging.WARNING)
        with self._answering():
            self._client = _Client(self.address, headers=self._headers)

    @contextmanager
    def _answering(self, job: str = "") -> Iterator[None]:
        """What goes wrong on the way, in one line."""
        try:
            yield
        except requests.RequestException as error:
            raise UserError(
                f"{self.address}: no answer any more ({type(error).__name__})"
            ) from error
        except (TypeError, ValueError, RecursionError) as error:
            raise UserError(f"{self.address}: answers with what is no answer of Ray's") from error
        except (RuntimeError, ConnectionError) as error:
            message = str(error)
            if job and ("status code 404" in message or "does not exist" in message):
                raise UserError(
                    f"no job {job} on {self.address}; `subquad submit status` lists them"
                ) from error
            last = (message.strip().splitlines() or [""])[-1]
            raise UserError(f"{self.address}: refused: {last}") from error

    def submit(
        self, archive: Path, words: Sequence[str], job: str, metadata: dict[str, str]
    ) -> None:
        """Upload a folder, packed, and start a command of subquad in it on the head node.

        Args:
            archive: the zip file.
            words: the command's.
            job: its name, which no other job has.
            metadata: kept with the job.
        """
        command = shlex.join(["exec", "python", "-m", "subquad.cli.main", *words])
        environment = {
            "working_dir": str(archive),
            "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(_STOP_SECONDS)},
        }
        with self._answering():
            self._client.submit_job(
                entrypoint=command, submission_id=job, runtime_env=environment, metadata=metadata
            )

    def info(self, job: str) -> JobDetails:
        """What the cluster knows of a job."""
        with self._answering(job):
            return self._client.get_job_info(job)

    def all(self) -> list[JobDetails]:
        """The jobs that subquad handed in, the newest last."""
        with self._answering():
            found = [job for job in self._client.list_jobs() if "subquad" in (job.metadata or {})]
        return sorted(found, key=lambda job: job.start_time or 0)

    def logs(self, job: str) -> str:
        """All that a job has said."""
        with self._answering(job):
            return self._client.get_job_logs(job)

    def follow(self, job: str, show: Callable[[str], None]) -> JobDetails:
        """Show what a job says until it ends; what is known of it then."""
        self.info(job)
        return asyncio.run(self._follow(job, show))

    async def _follow(self, job: str, show: Callable[[str], None]) -> JobDetails:
        shown = 0
        while True:
            place = 0
            try:
                async for text in self._lines(job):
                    show(text[max(0, shown - place) :])
                    place += len(text)
                    shown = max(shown, place)
            except (RuntimeError, aiohttp.ClientError):
                # the connection broke: asked below whether the cluster answers, and begun again
                pass
            info = self.info(job)
            if info.status.is_terminal():
                return info
            await asyncio.sleep(0.5)

    async def _lines(self, job: str) -> AsyncIterator[str]:
        """What a job says; while it says nothing, the cluster is asked whether it still answers."""
        tail = aiter(self._client.tail_job_logs(job))
        while True:
            following = asyncio.ensure_future(anext(tail, None))
            while not (await asyncio.wait({following}, timeout=_QUIET_SECONDS))[0]:
                self.info(job)
            text = await following
            if text is None:
                return
            yield text

    def stop(self, job: str) -> tuple[JobDetails, bool]:
        """Ask a job to save and to end, and wait until it has.

        Returns:
            what is known of it then, and whether it was running.
        """
        before = self.info(job)
        if before.status.is_terminal():
            return before, False
        with self._answering(job):
            self._client.stop_job(job)
        until = time.monotonic() + _STOP_SECONDS + 30
        while not (info := self.info(job)).status.is_terminal():
            if time.monotonic() > until:
                raise UserError(
                    f"job {job} has not ended after {_STOP_SECONDS + 30} s: {info.message}"
                )
            time.sleep(0.3)
        return info, True

    def fetch(self, job: str, into: Path, *, goes_on: str = "") -> list[Path]:
        """Copy what a job has made, without its checkpoints; see `ray.results.unpack`.

        Returns:
            the folders of runs, studies and searches.

        Raises:
            RunError: there is nothing, or it cannot be written.
        """
        node = quote(self.info(job).driver_node_id or "", safe="", errors="backslashreplace")
        name = quote(results_name(job), safe="", errors="backslashreplace")
        url = f"{self.address}/api/v0/logs/file?node_id={node}&filename={name}&lines=-1"
        options = {"timeout": _ANSWER_SECONDS, "stream": True, "allow_redirects": False}
        with self._answering(job), requests.get(url, headers=self._headers, **options) as found:
            if found.status_code != 200:
                raise RunError(
                    f"job {job}: nothing to fetch: it has written no results, or still runs"
                )
            return unpack(job, found.iter_content(_AT_ONCE), into, goes_on=goes_on)


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
    if _is_loopback(parts.hostname) and not insecure:
        _refuse_strange_listener(address, parts.port or (443 if parts.scheme == "https" else 80))
    token = _token()
    if token is None:
        raise UserError(
            f"{address} asks for a token: set RAY_AUTH_TOKEN or "
            "RAY_AUTH_TOKEN_PATH, as on the cluster"
        )
    if parts.scheme == "http" and not _is_loopback(parts.hostname) and not insecure:
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
    strangers = _listeners(port) - {os.getuid(), 0}
    if strangers:
        names = ", ".join(f"user {uid}" for uid in sorted(strangers))
        raise UserError(
            f"{address}: {names} listens there, not you, and would get the token: "
            "open your own tunnel to another "
            "port, or write --insecure if this cluster is theirs"
        )


def _listeners(port: int) -> set[int]:
    """Users whose programs listen on a port of this machine, as Linux tells; none elsewhere."""
    found: set[int] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split()
            user = fields[7]
            if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(int(user))
    return found


def _status(address: str, headers: dict[str, str]) -> int:
    """How a dashboard answers: 200, 401 or 403."""
    try:
        answer = requests.get(
            f"{address}/api/version", headers=headers, timeout=_PROBE_SECONDS, allow_redirects=False
        )
        known = answer.status_code in (401, 403) or "ray_version" in answer.json()
    except requests.ConnectionError as error:
        why = (
            "its certificate is not trusted"
            if isinstance(error, requests.exceptions.SSLError)
            else "no connection"
        )
        raise UserError(f"{address}: {why}; is the cluster up, and the tunnel to it?") from error
    except requests.Timeout as error:
        raise UserError(f"{address}: no answer within {_PROBE_SECONDS} s") from error
    except (ValueError, TypeError, requests.RequestException) as error:
        raise UserError(f"{address} is no Ray dashboard") from error
    if not known:
        raise UserError(f"{address} is no Ray dashboard")
    return answer.status_code


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


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
