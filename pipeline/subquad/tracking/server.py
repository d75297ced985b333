"""A local MLflow server on the loopback interface: started, waited for, stopped with everything
it started.
"""

from __future__ import annotations

import contextlib
import html
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from subquad.errors import SubquadError, UserError
from subquad.runs import write_text
from subquad.tracking.address import ARTIFACTS, DATABASE, sqlite_uri

SECRET = "SUBQUAD_UI_SECRET"
"""The variable in which the server gets its secret; only processes of the same user can read it."""
TOKEN, COOKIE = "token", "subquad-ui"
"""Where a browser brings the secret first, and where it keeps it."""
OPEN = "/health"
"""What answers everybody: that the server runs."""
_HOST = "127.0.0.1"
_START_SECONDS, _STOP_SECONDS = 90.0, 10.0
_SETTINGS = {
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # nothing here needs its eight extra processes
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
}
"""Defaults: a value the user has set stays."""


@contextlib.contextmanager
def serving(
    root: Path, port: int | None = None
) -> Iterator[tuple[str, str, subprocess.Popen[bytes]]]:
    """Serve the database in `root` during the block; yields address, secret and process once the
    server answers.

    Without the secret nothing is shown or changed: every user of this machine reaches its loopback
    interface.

    Args:
        root: folder with mlruns.db.
        port: None: a free one.

    Raises:
        UserError: the port is in use.
        SubquadError: the server ended, or did not answer within 90 s.
    """
    port = _free_port(port)
    address, root = f"http://{_HOST}:{port}", root.resolve()
    secret = secrets.token_urlsafe(32)
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            _command(root, port),
            cwd="/",  # uvicorn imports from where it stands
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**_SETTINGS, **os.environ, SECRET: secret},
            start_new_session=True,
        )
        try:
            if not _answers(process, address):
                output.seek(0)
                text = output.read().decode(errors="replace").strip() or "it said nothing"
                last = text.splitlines()[-1].strip()
                raise SubquadError(f"the MLflow server did not start: {last}")
            yield address, secret, process
        finally:
            _stop(process)


def _command(root: Path, port: int) -> list[str]:
    command = [sys.executable, "-P", "-m", "mlflow", "server"]
    command += ["--host", _HOST, "--port", str(port), "--workers", "1"]
    command += ["--app-name", "subquad"]
    command += ["--backend-store-uri", sqlite_uri(root / DATABASE)]
    command += ["--artifacts-destination", (root / ARTIFACTS).as_uri()]
    return command


def newest_page(address: str, secret: str) -> str:
    """Where a server shows the runs of its newest experiment; without these words it would show
    traces of LLMs.
    """
    query = "max_results=1&order_by=creation_time%20DESC"
    bearer = {"Authorization": f"Bearer {secret}"}
    request = urllib.request.Request(
        f"{address}/api/2.0/mlflow/experiments/search?{query}", headers=bearer
    )
    with urllib.request.urlopen(request) as answer:
        (newest,) = json.load(answer)["experiments"]
    return (
        f"{address}/?{TOKEN}={secret}#/experiments/{newest['experiment_id']}?workflowTy"
        "pe=machine_learning"
    )


@contextlib.contextmanager
def leading_page(page: str) -> Iterator[str]:
    """The address of a file that leads to a page during the block. Other users see the words a
    browser starts with.
    """
    with tempfile.TemporaryDirectory(
        prefix="subquad-ui-"
    ) as folder:  # which only this user may enter
        path = Path(folder, "open.html")
        write_text(path, f'<meta http-equiv="refresh" content="0; url={html.escape(page)}">\n')
        yield path.as_uri()


def _free_port(port: int | None) -> int:
    """The port asked for, or any that is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(port is not None))
        try:
            probe.bind((_HOST, port or 0))
        except OSError as error:
            raise UserError(
                f"--port {port}: {error.strerror}; leave --port out for a free one"
            ) from error
        return probe.getsockname()[1]


def _answers(process: subprocess.Popen[bytes], address: str) -> bool:
    """Wait until the server answers; False where it ended, or took too long."""
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"{address}{OPEN}", timeout=2) as answer,
        ):
            return answer.status == 200
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the whole process group, also where its leader has ended already or a second Ctrl-C
    comes.
    """
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
