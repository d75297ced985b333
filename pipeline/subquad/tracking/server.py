"""A local MLflow server on the loopback interface: started, waited for, stopped with everything
it started.
"""

from __future__ import annotations

import contextlib
import html
import http.client
import os
import secrets
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from subquad.errors import UserError
from subquad.record.files import write_text
from subquad.tracking.address import ARTIFACTS, DATABASE, sqlite_uri

ROOT = "SUBQUAD_UI_ROOT"
"""The variable that tells the server below which folder artefacts are served."""
USER = "admin"
"""The one user of a server; MLflow's clients take it as MLFLOW_TRACKING_USERNAME."""
LOGIN = "/login"
"""Where a browser brings the password first."""
_HOST = "127.0.0.1"
_START_SECONDS, _STOP_SECONDS = 90.0, 10.0
_SETTINGS = {
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # nothing here needs its eight extra processes
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "MLFLOW_BASIC_AUTH_FAIL_CLOSED": "true",
    "MLFLOW_ENABLE_AI_GATEWAY": "false",  # a stranger's database may name models and addresses
    "MLFLOW_WEBHOOK_ALLOWED_SCHEMES": "none",
}
"""Defaults: a value the user has set stays."""
_LOGIN = """[mlflow]
default_permission = NO_PERMISSIONS
database_uri = sqlite:///users.db
authorization_function = subquad.tracking.gate:authorize
auth_cache_ttl_seconds = 3600
"""
"""MLflow's settings of its login. Checks of a password are made to be slow, so it remembers one."""


@contextlib.contextmanager
def serving(
    root: Path, port: int | None = None
) -> Iterator[tuple[str, str, subprocess.Popen[bytes]]]:
    """Serve the database in `root` during the block; yields address, password and process once the
    server answers.

    Without the password nothing is shown or changed: every user of this machine reaches its
    loopback interface.

    Args:
        root: folder with mlruns.db.
        port: None: a free one.

    Raises:
        UserError: the port is in use, the server ended, or it did not answer within 90 s.
    """
    port = _free_port(port)
    password = secrets.token_hex(12)
    with (
        tempfile.TemporaryDirectory(prefix="subquad-ui-") as folder,  # only this user may enter it
        tempfile.TemporaryFile() as output,
    ):
        login = Path(folder, "login.ini")
        write_text(login, _LOGIN)
        own = {
            ROOT: str(root.resolve()),
            "MLFLOW_AUTH_CONFIG_PATH": str(login),
            "MLFLOW_AUTH_ADMIN_USERNAME": USER,
            "MLFLOW_AUTH_ADMIN_PASSWORD": password,
            "MLFLOW_FLASK_SERVER_SECRET_KEY": secrets.token_hex(),
        }
        process = subprocess.Popen(
            _command(root.resolve(), port),
            cwd=folder,  # uvicorn imports from where it stands, and users.db is there
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**_SETTINGS, **os.environ, **own},
            start_new_session=True,
        )
        try:
            if not _answers(process, port):
                output.seek(0)
                text = output.read().decode(errors="replace").strip() or "it said nothing"
                last = text.splitlines()[-1].strip()
                raise UserError(f"the MLflow server did not start: {last}")
            yield f"http://{_HOST}:{port}", password, process
        finally:
            _stop(process)


def _command(root: Path, port: int) -> list[str]:
    command = [sys.executable, "-P", "-m", "mlflow", "server"]
    command += ["--host", _HOST, "--port", str(port), "--workers", "1"]
    command += ["--app-name", "basic-auth", "--x-frame-options", "DENY"]
    command += ["--allowed-hosts", f"{_HOST}:{port}"]
    command += ["--backend-store-uri", sqlite_uri(root / DATABASE)]
    command += ["--artifacts-destination", (root / ARTIFACTS).as_uri()]
    return command


def newest_page(root: Path, address: str, password: str) -> str:
    """Where a browser logs in and sees the runs of the newest experiment in `root`; without these
    words MLflow would show traces of LLMs.
    """
    query = (
        "SELECT coalesce(max(experiment_id), 0) FROM experiments WHERE lifecycle_stage = 'active'"
    )
    database = f"{(root.resolve() / DATABASE).as_uri()}?mode=ro"
    with contextlib.closing(sqlite3.connect(database, uri=True)) as connection:
        [(newest,)] = connection.execute(query)
    place = address.replace("//", f"//{USER}:{password}@")
    return f"{place}{LOGIN}#/experiments/{newest}?workflowType=machine_learning"


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


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until the server answers; False where it ended, or took too long."""
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        server = http.client.HTTPConnection(_HOST, port, timeout=2)  # which asks no proxy
        with contextlib.suppress(OSError), contextlib.closing(server):
            server.request("GET", "/health")
            return server.getresponse().status == 200
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
