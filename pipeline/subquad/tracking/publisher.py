"""The driver's handle on tracking: start it, train, close it; and `sync`, which sends later what was not sent.

Nothing here fails with a server, or waits for one longer than a second.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import click

from subquad.addresses import HIDDEN, mask
from subquad.errors import ConfigError, UserError, plain
from subquad.experiment.schema import Tracking
from subquad.runs import EXPERIMENT, SEARCH, enter, runs_below, runs_root
from subquad.tracking.address import VARIABLE, StoreDown, artifact_folder, check_server, sqlite_path, store_uri
from subquad.tracking.folders import parts_of, read_yaml
from subquad.tracking.spool import SyncState
from subquad.tracking.upload import Summary, Upload, summarise
from subquad.trust import given_addresses, remember_address

_EXTRA = "MLflow is not installed: pip install 'subquad[mlflow]'"
_START_SECONDS = 0.5
"""That a start may wait for a server to connect, and again for its answer."""
_LIGHT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def check_tracking(tracking: Tracking, root: Path) -> str:
    """The store that runs are sent to, before there are any; empty where tracking is off.

    Args:
        tracking: the experiment's settings.
        root: folder that holds `runs/`.

    Raises:
        ConfigError: `tracking.uri` is no store.
        UserError: `tracking.uri` is given but MLflow is not installed, or only a file names it.
    """
    if not tracking.enabled:
        return ""
    uri = store_uri(tracking.uri, root)
    if tracking.uri is not None and find_spec("mlflow") is None:
        raise UserError(f"tracking.uri is given, but {_EXTRA}, or set tracking.enabled=false")
    if tracking.uri is not None:
        refuse_strange(uri, root, f"tracking.uri: {mask(uri)}", f"tracking.uri={mask(uri)}")
    return uri


def refuse_strange(uri: str, root: Path, label: str, remedy: str) -> None:
    """Refuse a store that only an experiment or a folder names: it would get metrics, and secrets of the environment.

    A database file below `root` is that folder's own. What the command line gives is remembered.

    Args:
        uri: of the store, absolute.
        root: folder that holds `runs/`.
        label: what names it, for the message.
        remedy: what to write on the command line.

    Raises:
        UserError: neither the environment nor a command line gave it.
    """
    database = sqlite_path(uri)
    if database is not None and database.resolve().is_relative_to(root.resolve()):
        return
    given = [os.environ.get(VARIABLE) or "", *given_addresses()]
    for address in given:
        with suppress(ConfigError):
            if address and store_uri(address, root).rstrip("/") == uri.rstrip("/"):
                remember_address(uri)
                return
    raise UserError(
        f"{label} is an address that you have not given yourself, and would get what is tracked and the secrets of "
        f"MLFLOW_TRACKING_TOKEN and the like: if you trust it, write {remedy} once, or set {VARIABLE}"
    )


def open_publisher(tracking: Tracking, folder: Path, *, name: str) -> Publisher:
    """A publisher for a folder; one that does nothing where tracking is off or MLflow is not installed.

    Args:
        tracking: the experiment's settings.
        folder: of a run, study or search, written down already; runs below it may come later.
        name: the MLflow experiment's name, unless `tracking` names one.

    Raises:
        ConfigError: `tracking.uri` is no store.
        UserError: `tracking.uri` is given but MLflow is not installed, or only a file names it.
    """
    folder = folder.resolve()
    root = _root(folder)
    uri = check_tracking(tracking, root)
    if not uri:
        return Publisher(None)
    if find_spec("mlflow") is None:
        click.echo(f"{_EXTRA} (metrics stay in the run directory)", err=True)
        return Publisher(None)
    try:
        check_server(uri, _START_SECONDS)
    except StoreDown as error:
        click.echo(plain(f"MLflow does not answer: {error}; the run goes on, `subquad sync` sends it later"), err=True)
    experiment, artifacts = tracking.experiment or name, artifact_folder(uri, root)
    return Publisher(Upload(uri=uri, experiment=experiment, artifacts=artifacts, folder=folder))


def sync(folder: Path, *, uri: str | None = None, timeout: float = 600.0) -> Summary:
    """Bring everything of a run, study or search to MLflow; doing it twice sends nothing twice.

    Args:
        folder: a run, a study, a search with all its trials and its final study; a part of one stands for the whole.
        uri: the store; None: where the run was tracked, else what the experiment or the environment says.
        timeout: most seconds this may take.

    Raises:
        RunError: the folder is neither a run nor a study nor a search.
        ConfigError: the address is no store, or its password is not known here.
        UserError: MLflow is not installed.
    """
    parts = list(map(enter, parts_of(folder.resolve())))
    if find_spec("mlflow") is None:
        raise UserError("subquad sync needs MLflow: pip install 'subquad[mlflow]'")
    first, *others = [Publisher(_upload_of(part, uri)).close(timeout=timeout) for part in parts]
    for one in others:
        both = {"delivered": first.delivered and one.delivered, "pending": first.pending + one.pending}
        both |= {"run_ids": first.run_ids + one.run_ids, "error": first.error or one.error}
        first = first.model_copy(update=both)
    return first


def _upload_of(folder: Path, given: str | None) -> Upload:
    """What is to be sent of a run, study or search, from its folder alone.

    The store is the given one, else where the folder was tracked, else what its experiment says, else the
    environment's, else sqlite beside the runs.

    Raises:
        ConfigError: the address is no store, or its password is not known here.
        UserError: only the folder names it.
    """
    settings = read_yaml(folder / SEARCH).get("experiment") or {}
    if not settings:
        settings = read_yaml(next(iter(runs_below(folder)), folder) / EXPERIMENT)
    tracking, tracked, root = settings.get("tracking") or {}, SyncState.load(folder), _root(folder)
    if given is not None:
        uri = store_uri(given, Path.cwd(), key="--uri")
    elif tracked is not None:
        uri = _with_password(tracked.uri, root)
    else:
        uri = store_uri(tracking.get("uri"), root)
    if given is None and uri != store_uri(None, root):
        refuse_strange(uri, root, f"{folder}: {mask(uri)}", f"--uri {mask(uri)}")
    name = tracked.experiment if tracked else tracking.get("experiment") or settings.get("name") or folder.name
    return Upload(uri=uri, experiment=str(name), artifacts=artifact_folder(uri, root), folder=folder)


def _with_password(tracked: str, root: Path) -> str:
    if HIDDEN not in tracked:
        return tracked
    address = os.environ.get(VARIABLE)
    found = store_uri(address, root) if address else ""
    if mask(found) != tracked:
        raise ConfigError(
            f"{tracked}: this address had a user and a password, which are never saved; give --uri or set {VARIABLE}"
        )
    return found


def _root(folder: Path) -> Path:
    """The folder that holds `runs/`; the folder's own parent where there is no such."""
    runs = runs_root(folder)
    return runs.parent if runs.name == "runs" else runs


class Publisher:
    """Runs the sending process. Made by `open_publisher`.

    Args:
        upload: None where nothing is sent.
    """

    def __init__(self, upload: Upload | None):
        self.upload = upload
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[bytes] | None = None
        self._trouble: str | None = None
        self._summary: Summary | None = None if upload else Summary(delivered=True)

    def start(self) -> None:
        """Start sending; returns at once and never raises for trouble with the server or this machine."""
        if self.upload is None or self._process is not None or self._trouble is not None:
            return
        try:
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `close`)
            self._process = _start_child(self._errors)
            assert self._process.stdin is not None
            self._process.stdin.write(self.upload.model_dump_json() + "\n")
            self._process.stdin.flush()
        except OSError as error:
            self._trouble = f"the process that sends to MLflow did not start: {error}"
            self._forget_errors()

    def close(self, *, timeout: float = 20.0) -> Summary:
        """Send what is left, with artefacts and each run's status; never raises for server trouble.

        Args:
            timeout: most seconds this may take. What is not sent by then, `subquad sync` sends later.
        """
        self.start()
        if self._summary is None:
            assert self.upload is not None
            self._summary = self._ask_to_close(timeout) or summarise(self.upload, self._trouble)
        return self._summary

    def _ask_to_close(self, timeout: float) -> Summary | None:
        process = self._process
        if process is None:
            return None
        try:
            answer, _ = process.communicate(f"close {timeout}\n", timeout=timeout)
            if answer.strip():
                return Summary.model_validate_json(answer)
            self._trouble = self._last_words(process.returncode, timeout)
        except subprocess.TimeoutExpired:
            self._trouble = f"not all was sent within {timeout:g} s"
        except (OSError, ValueError) as error:
            self._trouble = f"the process that sends to MLflow broke off: {error}"
        finally:
            if process.poll() is None:  # leave no process behind
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
            self._forget_errors()
        return None

    def _forget_errors(self) -> None:
        if self._errors is not None:
            self._errors.close()

    def _last_words(self, code: int, timeout: float) -> str:
        """Why the process gave no answer: it reached its limit of time, or the last line it wrote."""
        if code == 1:
            return f"not all was sent within {timeout:g} s"
        assert self._errors is not None
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "no reason given")
        return f"the process that sends ended ({code}): {said}"


def _start_child(errors: IO[bytes]) -> subprocess.Popen[str]:
    """In a session of its own, so that Ctrl-C in the terminal stops training first and this one after it."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "subquad.tracking.upload"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env={**os.environ, **_LIGHT},
        text=True,
        start_new_session=True,
    )
