"""Starts `subquad sync FOLDER --follow` beside a driver and ends it; `sync` is the same, later.

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
from subquad.errors import ConfigError, SubquadError, UserError, escaped
from subquad.experiment.schema import OFF, Tracking
from subquad.runs import EXPERIMENT, SEARCH, enter, runs_below
from subquad.tracking.address import VARIABLE, StoreDown, check_server, sqlite_path, store_uri
from subquad.tracking.folders import parts_of, read_yaml
from subquad.tracking.state import Summary, SyncState, Upload, root_above, summarise
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
    if tracking.uri is None:
        return uri
    if find_spec("mlflow") is None:
        raise UserError(f"tracking.uri is given, but {_EXTRA}, or set tracking.uri=off")
    shown = mask(uri)
    refuse_strange(uri, root, f"tracking.uri: {shown}", f"tracking.uri={shown}")
    return uri


def refuse_strange(uri: str, root: Path, label: str, remedy: str) -> None:
    """Refuse a store that only an experiment or a folder names: it would get metrics, and secrets
    of the environment.

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
    for address in filter(None, [os.environ.get(VARIABLE), *given_addresses()]):
        with suppress(ConfigError):
            if store_uri(address, root).rstrip("/") == uri.rstrip("/"):
                remember_address(uri)
                return
    raise UserError(
        f"{label} is an address that you have not given yourself, and would get "
        "what is tracked and the secrets of "
        f"MLFLOW_TRACKING_TOKEN and the like: if you trust it, write {remedy} "
        f"once, or set {VARIABLE}"
    )


def open_publisher(tracking: Tracking, folder: Path, *, name: str) -> Publisher:
    """A publisher for a folder; one that does nothing where tracking is off or MLflow is not
    installed.

    Args:
        tracking: the experiment's settings.
        folder: of a run, study or search, written down already; runs below it may come later.
        name: the MLflow experiment's name, unless `tracking` names one.

    Raises:
        ConfigError: `tracking.uri` is no store.
        UserError: `tracking.uri` is given but MLflow is not installed, or only a file names it.
    """
    folder = folder.resolve()
    uri = check_tracking(tracking, root_above(folder))
    if not uri:
        return Publisher(None)
    if find_spec("mlflow") is None:
        click.echo(f"{_EXTRA} (metrics stay in the run directory)", err=True)
        return Publisher(None)
    try:
        check_server(uri, _START_SECONDS)
    except StoreDown as error:
        message = f"MLflow does not answer: {error}; the run goes on, `subquad sync` sends it later"
        click.echo(escaped(message), err=True)
    return Publisher(Upload(folder, uri, tracking.experiment or name))


def sync(folder: Path, *, uri: str | None = None, timeout: float = 600.0) -> Summary:
    """Bring everything of a run, study or search to MLflow; doing it twice sends nothing twice.

    Args:
        folder: a run, a study, a search with all its trials and its final study; a part of one
            stands for the whole.
        uri: the store; None: where the run was tracked, else what the experiment or the environment
            says.
        timeout: most seconds this may take.

    Raises:
        RunError: the folder is neither a run nor a study nor a search.
        ConfigError: the address is no store, or its password is not known here.
        UserError: MLflow is not installed.
    """
    uploads = [upload_of(enter(part), uri) for part in parts_of(folder.resolve())]
    whole, *others = [Publisher(upload).close(timeout=timeout) for upload in uploads]
    for final in others:
        both = {
            "delivered": whole.delivered and final.delivered,
            "pending": whole.pending + final.pending,
            "run_ids": whole.run_ids + final.run_ids,
            "error": whole.error or final.error,
        }
        whole = whole.model_copy(update=both)
    return whole


def upload_of(folder: Path, given: str | None) -> Upload:
    """What is to be sent of a run, study or search, from its folder alone.

    The store is the given one, else where the folder was tracked, else what its experiment says,
    else the environment's, else sqlite beside the runs.

    Raises:
        ConfigError: the address is no store, or its password is not known here.
        UserError: only the folder names it, or MLflow is not installed.
    """
    if find_spec("mlflow") is None:
        raise UserError("subquad sync needs MLflow: pip install 'subquad[mlflow]'")
    root = root_above(folder)
    tracked = SyncState.load(folder)
    tracking = {}
    if tracked:
        name = tracked.experiment
    else:
        # the experiment of a search, of a run, or of the first run of a study
        experiment = read_yaml(folder / SEARCH).get("experiment")
        if not experiment:
            experiment = read_yaml(next(iter(runs_below(folder)), folder) / EXPERIMENT)
        tracking = experiment.get("tracking") or {}
        name = str(tracking.get("experiment") or experiment.get("name") or folder.name)
    if given is not None:
        uri = store_uri(given, Path.cwd(), key="--uri")
        return Upload(folder, uri, name)
    if tracked:
        uri = _with_password(tracked.uri, root)
    else:
        named = tracking.get("uri")
        uri = store_uri(None if named == OFF else named, root)
    if uri != store_uri(None, root):
        shown = mask(uri)
        refuse_strange(uri, root, f"{folder}: {shown}", f"--uri {shown}")
    return Upload(folder, uri, name)


def _with_password(tracked: str, root: Path) -> str:
    if HIDDEN not in tracked:
        return tracked
    address = os.environ.get(VARIABLE)
    found = store_uri(address, root) if address else ""
    if mask(found) != tracked:
        raise ConfigError(
            f"{tracked}: this address had a user and a password, which are never "
            f"saved; give --uri or set {VARIABLE}"
        )
    return found


class Publisher:
    """The driver's hand on the process that sends. Made by `open_publisher`.

    Args:
        upload: None where nothing is sent.
    """

    def __init__(self, upload: Upload | None):
        self.upload = upload
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[bytes] | None = None
        self._trouble: str | None = None
        self._summary: Summary | None = None if upload else Summary(delivered=True)

    def start(self, *, rest: float = 60.0) -> None:
        """Start sending; returns at once and never raises for trouble with the server or this
        machine.

        Args:
            rest: most seconds that the process may go on once this one has ended.
        """
        upload = self.upload
        if upload is None or self._process is not None or self._trouble is not None:
            return
        try:
            # so that any process can send it, now and later
            SyncState.of(upload.folder, upload).save(upload.folder)
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `close`)
            self._process = _start_child(upload, max(rest, 1.0), self._errors)
        except (OSError, SubquadError) as error:
            self._trouble = f"the process that sends to MLflow did not start: {error}"

    def close(self, *, timeout: float = 20.0) -> Summary:
        """Send what is left, with artefacts and each run's status; never raises for server trouble.

        Args:
            timeout: most seconds this may take. What is not sent by then, `subquad sync` sends
                later.
        """
        self.start(rest=timeout)
        if self._summary is None:
            assert self.upload is not None
            self._summary = self._answer(timeout) or summarise(self.upload, self._trouble)
            if self._errors is not None:
                self._errors.close()
        return self._summary

    def _answer(self, timeout: float) -> Summary | None:
        """What the process says once its input has ended; None where it says nothing."""
        process = self._process
        if process is None:
            return None
        try:
            answer, _ = process.communicate(timeout=timeout)
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
        return None

    def _last_words(self, code: int, timeout: float) -> str:
        """Why the process gave no answer: it reached its limit of time, or the last line it
        wrote.
        """
        if code == -signal.SIGALRM:
            return f"not all was sent within {timeout:g} s"
        assert self._errors is not None
        self._errors.seek(0)
        last_line = self._errors.read().decode(errors="replace").strip().rpartition("\n")[2].strip()
        return f"the process that sends ended ({code}): {last_line or 'no reason given'}"


def _start_child(upload: Upload, rest: float, errors: IO[bytes]) -> subprocess.Popen[str]:
    """In a session of its own, so that Ctrl-C in the terminal stops training first and this one
    after it. The address may hold a password, so it is in no command line.
    """
    command = [sys.executable, "-P", "-m", "subquad.cli.main", "sync", str(upload.folder)]
    return subprocess.Popen(
        [*command, "--follow", "--timeout", str(rest), "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env={**os.environ, **_LIGHT, VARIABLE: upload.uri},
        text=True,
        start_new_session=True,
    )
