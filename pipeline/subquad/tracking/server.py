"""A local MLflow server on the loopback interface: started, waited for, stopped with everything it started."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from subquad.errors import SubquadError, UserError
from subquad.tracking.address import ARTIFACTS, DATABASE, sqlite_uri
from subquad.tracking.settings import server_environment

HOST = "127.0.0.1"
_START_SECONDS, _STOP_SECONDS = 90.0, 10.0


class Server:
    """A server that answers at `address`."""

    def __init__(self, address: str, process: subprocess.Popen[bytes]):
        self.address = address
        self._process = process

    def wait(self) -> int:
        """Wait until it ends by itself; its exit code."""
        return self._process.wait()


@contextlib.contextmanager
def serving(root: Path, port: int | None = None) -> Iterator[Server]:
    """Serve the database in `root` during the block; yields the server once it answers.

    Args:
        root: folder with mlruns.db.
        port: None: a free one.

    Raises:
        UserError: the port is in use.
        SubquadError: the server ended, or did not answer within 90 s.
    """
    port = _checked(port) if port is not None else _free_port()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            _command(root.resolve(), port),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=server_environment(),
            start_new_session=True,
        )
        try:
            _wait_for(process, f"http://{HOST}:{port}", output)
            yield Server(f"http://{HOST}:{port}", process)
        finally:
            _stop(process)


def _command(root: Path, port: int) -> list[str]:
    return [
        *(sys.executable, "-P", "-m", "mlflow", "server", "--host", HOST, "--port", str(port), "--workers", "1"),
        *("--backend-store-uri", sqlite_uri(root / DATABASE)),
        *("--artifacts-destination", (root / ARTIFACTS).as_uri()),
    ]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def _checked(port: int) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise UserError(f"--port {port}: {error.strerror}; leave --port out for a free one") from error
    return port


def _wait_for(process: subprocess.Popen[bytes], address: str, output) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not _answers(address):
        if process.poll() is not None or time.monotonic() > deadline:
            output.seek(0)
            lines = [line.strip() for line in output.read().decode(errors="replace").splitlines() if line.strip()]
            raise SubquadError(f"the MLflow server did not start: {lines[-1] if lines else 'it said nothing'}")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.2)


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=2) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the whole process group, also where its leader has ended already or a second Ctrl-C comes."""
    try:
        _signal(process, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
    finally:
        _signal(process, signal.SIGKILL)
        process.wait()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
