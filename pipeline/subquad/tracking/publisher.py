"""The driver's side of tracking: starts the process that sends a folder, and tells it the end;
`sync` is the same, later.

Nothing here fails with a server, or waits for one before training ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import click
from pydantic import BaseModel

from subquad.addresses import mask
from subquad.errors import ConfigError, UserError
from subquad.experiment.refusals import refusal, validated
from subquad.experiment.schema import Tracking
from subquad.record.layout import enter
from subquad.record.names import EXPERIMENT, SEARCH
from subquad.record.trust import given_addresses, remember_address
from subquad.tracking.address import VARIABLE, sqlite_path, store_uri
from subquad.tracking.folders import parts_in, read_yaml, root_above, whole_of

_EXTRA = "MLflow is not installed: pip install 'subquad[mlflow]'"
_IDLE_SECONDS = 10.0
"""That the process beside training gets to end; on a busy machine it may have got no time at all,
and another one does its work.
"""
_LIGHT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Upload:
    """What is sent, and where to.

    Attributes:
        folder: a run, or a study or search with all runs below it.
        uri: the MLflow store, absolute, with its credentials.
        experiment: name of the MLflow experiment.
    """

    folder: Path
    uri: str
    experiment: str


class Summary(BaseModel, frozen=True):
    """What reached MLflow.

    Attributes:
        delivered: every record, artefact and status is there.
        uri: the store, without credentials; None where tracking is off.
        experiment_id: MLflow's id of the experiment.
        parent_run_id: the study's or search's run.
        run_ids: MLflow's run ids, in the order of the runs; those that have one.
        error: why something was not delivered, one line without credentials.
    """

    delivered: bool
    uri: str | None = None
    experiment_id: str | None = None
    parent_run_id: str | None = None
    run_ids: tuple[str, ...] = ()
    error: str | None = None


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
    folder = whole_of(folder.resolve())
    uri = check_tracking(tracking, root_above(folder))
    if not uri:
        return Publisher(None)
    if find_spec("mlflow") is None:
        click.echo(f"{_EXTRA} (metrics stay in the run directory)", err=True)
        return Publisher(None)
    return Publisher(Upload(folder, uri, tracking.experiment or name))


def sync(folder: Path, *, uri: str | None = None, timeout: float = 600.0) -> Summary:
    """Bring everything of a run, study or search to MLflow; doing it twice sends nothing twice.

    Args:
        folder: a run, a study, a search with all its trials and its final study; a part of one
            stands for the whole.
        uri: the store; None: what the experiment says, else the environment, else sqlite beside
            the runs.
        timeout: most seconds this may take.

    Raises:
        RunError: the folder is neither a run nor a study nor a search.
        ConfigError: the address is no store, or the folder's experiment no experiment.
        UserError: only the folder names it, or MLflow is not installed.
    """
    return _send(upload_of(folder, uri), timeout)


def upload_of(folder: Path, given: str | None) -> Upload:
    """What `sync` sends, and where to.

    Raises:
        See `sync`.
    """
    if find_spec("mlflow") is None:
        raise UserError("subquad sync needs MLflow: pip install 'subquad[mlflow]'")
    folder = enter(whole_of(folder.resolve()))
    first = next(iter(parts_in(folder) or [folder]))
    written = read_yaml(folder / SEARCH).get("experiment") or read_yaml(first / EXPERIMENT)
    found, faults = validated(_Written, written, (), dict)
    if found is None:
        raise ConfigError(f"{first}: {refusal(faults)}")
    name = found.tracking.experiment or found.name or folder.name
    if given is not None:
        return Upload(folder, store_uri(given, Path.cwd(), key="--uri"), name)
    root = root_above(folder)
    uri = store_uri(found.tracking.address, root)
    if found.tracking.address:
        shown = mask(uri)
        refuse_strange(uri, root, f"{folder}: {shown}", f"--uri {shown}")
    return Upload(folder, uri, name)


class _Written(BaseModel):
    """What an experiment says of where it is sent."""

    name: str = ""
    tracking: Tracking = Tracking()


class Publisher:
    """The driver's hand on the process that sends. Made by `open_publisher`.

    Args:
        upload: None where nothing is sent.
    """

    def __init__(self, upload: Upload | None):
        self.upload = upload
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start sending; returns at once and never raises for trouble with the server or this
        machine.
        """
        if self.upload:
            with suppress(OSError):  # `close` tries again
                self._process = _start(self.upload, idle=True)

    def close(self, *, timeout: float = 20.0) -> Summary:
        """Send what is left, with artefacts and each run's status; never raises for server trouble.

        Args:
            timeout: most seconds this may take, and 10 more for the process beside training to
                end. What is not sent by then, `subquad sync` sends later.
        """
        if self.upload is None:
            return Summary(delivered=True)
        if self._process:
            summary = _answer(self._process, _IDLE_SECONDS)
            if summary.uri:
                return summary
        return _send(self.upload, timeout)


def _send(upload: Upload, timeout: float) -> Summary:
    """Send what is missing now, in a process of its own."""
    try:
        summary = _answer(_start(upload), timeout)
    except OSError as error:
        summary = Summary(delivered=False, error=f"the process that sends: {error}")
    return summary.model_copy(update={"uri": mask(upload.uri)})


def _start(upload: Upload, *, idle: bool = False) -> subprocess.Popen[str]:
    """In a session of its own, so that Ctrl-C in the terminal stops training first and this one
    after it. The address may hold a password, so it is in no command line.

    Args:
        idle: it gets time that nobody else wants, and goes on until its input ends.

    Raises:
        OSError: this machine has no room for it.
    """
    command = [sys.executable, "-P", "-m", "subquad.tracking"]
    command += [str(upload.folder), upload.experiment, *["idle"] * idle]
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE if idle else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **_LIGHT, VARIABLE: upload.uri},
        text=True,
        start_new_session=True,
    )


def _answer(process: subprocess.Popen[str], seconds: float) -> Summary:
    """What the process says once its input has ended; without an address, why it says nothing."""
    try:
        answer, _ = process.communicate(timeout=seconds)
        return Summary.model_validate_json(answer)
    except subprocess.TimeoutExpired:
        reason = f"not all was sent within {seconds:g} s"
    except (OSError, ValueError):
        reason = f"the process that sends ended ({process.returncode})"
    finally:
        if process.poll() is None:  # leave no process behind
            process.kill()
            process.communicate()
    return Summary(delivered=False, error=reason)
