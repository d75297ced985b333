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
from collections.abc import Iterator
from pathlib import Path

from subquad.errors import UserError
from subquad.record.files import write_text
from subquad.tracking.address import ARTIFACTS, DATABASE, SETTINGS, sqlite_uri

ROOT = "SUBQUAD_UI_ROOT"
"""The variable that tells the server below which folder artefacts are served."""
USER = "admin"
"""The one user of a server; MLflow's clients take it as MLFLOW_TRACKING_USERNAME."""
LOGIN = "/login"
"""Where a browser brings the password first."""
_HOST = "127.0.0.1"
_START_SECONDS = 90.0
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
        with _listening(port) as listener:
            _, bound = listener.getsockname()
            process = subprocess.Popen(
                _command(root.resolve(), bound),
                cwd=folder,  # uvicorn imports from where it stands, and users.db is there
                stdin=listener.fileno(),  # whose port nobody else can take meanwhile
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**SETTINGS, **os.environ, **own},
                start_new_session=True,
            )
        try:
            if not _answers(bound):
                output.seek(0)
                text = output.read().decode(errors="replace").strip() or "it said nothing"
                raise UserError(f"the MLflow server did not start: {text.splitlines()[-1].strip()}")
            yield f"http://{_HOST}:{bound}", password, process
        finally:  # with all that it started
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _listening(port: int | None) -> socket.socket:
    try:
        listener = socket.create_server((_HOST, port or 0))
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise UserError(f"--port {port}: {reason}; leave --port out for a free one") from error
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # uvicorn sees no TCP in it
    return listener


def _command(root: Path, port: int) -> list[str]:
    return [
        *(sys.executable, "-P", "-m", "mlflow", "server", "--uvicorn-opts", "--fd 0"),
        *("--host", _HOST, "--port", str(port), "--workers", "1"),
        *("--app-name", "basic-auth", "--x-frame-options", "DENY"),
        *("--allowed-hosts", f"{_HOST}:{port}"),
        *("--backend-store-uri", sqlite_uri(root / DATABASE)),
        *("--artifacts-destination", (root / ARTIFACTS).as_uri()),
    ]


def _answers(port: int) -> bool:
    """Wait until the server answers; False where it ended, or took too long."""
    server = http.client.HTTPConnection(_HOST, port, timeout=_START_SECONDS)  # asks no proxy
    with contextlib.suppress(OSError), contextlib.closing(server):
        server.request("GET", "/health")
        return server.getresponse().status == 200
    return False


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
    browser starts with, and may not enter its folder.
    """
    with tempfile.TemporaryDirectory(prefix="subquad-ui-") as folder:
        path = Path(folder, "open.html")
        write_text(path, f'<meta http-equiv="refresh" content="0; url={html.escape(page)}">\n')
        yield path.as_uri()
