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
from subquad.record.layout import enter, runs_below
from subquad.record.names import EXPERIMENT, SEARCH
from subquad.record.trust import given_addresses, remember_address
from subquad.tracking.address import SETTINGS, VARIABLE, sqlite_path, store_uri
from subquad.tracking.mirror import read_mapping, root_above, whole_of

_EXTRA = "MLflow is not installed: pip install 'subquad[mlflow]'"
_IDLE_SECONDS = 10.0
"""That the process beside training gets to end; on a busy machine it may have got no time at all,
and another one does its work.
"""


class Summary(BaseModel, frozen=True):
    """What reached MLflow.

    Attributes:
        delivered: every record, artefact and status is there.
        uri: the store, without credentials; None where tracking is off.
        run_id: MLflow's, of a study or search its own; empty where it has none yet.
        error: why something was not delivered, one line without credentials.
    """

    delivered: bool
    uri: str | None = None
    run_id: str = ""
    error: str | None = None


def given_store(uri: str | None, root: Path) -> str:
    """The absolute address of a store that an experiment or a folder names: it would get metrics,
    and secrets of the environment, so the user must have given it.

    A database file below `root` is that folder's own. What the command line gives is remembered.

    Args:
        uri: None: the environment's, or the folder's own.
        root: folder that holds `runs/`.

    Raises:
        ConfigError: it is no store.
        UserError: neither the environment nor a command line gave it.
    """
    store = store_uri(uri, root)
    database = sqlite_path(store)
    if uri is None or (database and database.resolve().is_relative_to(root.resolve())):
        return store
    for address in filter(None, [os.environ.get(VARIABLE), *given_addresses()]):
        with suppress(ConfigError):
            if store_uri(address, root).rstrip("/") == store.rstrip("/"):
                remember_address(store)
                return store
    raise UserError(
        f"{mask(store)} is an address that you have not given yourself, and would get what is "
        "tracked and the secrets of MLFLOW_TRACKING_TOKEN and the like: if you trust it, write it "
        f"once on the command line (tracking.uri=... or sync --uri ...), or set {VARIABLE}"
    )


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
    if tracking.uri and find_spec("mlflow") is None:
        raise UserError(f"tracking.uri is given, but {_EXTRA}, or set tracking.uri=off")
    return given_store(tracking.uri, root)


def open_publisher(tracking: Tracking, folder: Path, *, name: str) -> Publisher:
    """A publisher for a folder; one that does nothing where tracking is off or MLflow is not
    installed.

    Args:
        tracking: the experiment's settings.
        folder: of a run, study or search, written down already; runs below it may come later.
        name: the MLflow experiment's name, unless `tracking` names one.

    Raises:
        See `check_tracking`.
    """
    folder = whole_of(folder.resolve())
    uri = check_tracking(tracking, root_above(folder))
    if uri and find_spec("mlflow") is None:
        click.echo(f"{_EXTRA} (metrics stay in the run directory)", err=True)
        uri = ""
    return Publisher(folder, uri, tracking.experiment or name)


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
    if find_spec("mlflow") is None:
        raise UserError("subquad sync needs MLflow: pip install 'subquad[mlflow]'")
    folder = enter(whole_of(folder.resolve()))
    written = read_mapping(folder / SEARCH).get("experiment")
    if not isinstance(written, dict):
        written = read_mapping(next(iter(runs_below(folder)), folder) / EXPERIMENT)
    tracking, faults = validated(Tracking, written.get("tracking") or {}, ("tracking",), dict)
    if tracking is None:
        raise ConfigError(f"{folder}: {refusal(faults)}")
    if uri is None:
        uri = given_store(tracking.address, root_above(folder))
    else:
        uri = store_uri(uri, Path.cwd(), key="--uri")
        remember_address(uri)
    return Publisher(
        folder, uri, str(tracking.experiment or written.get("name") or folder.name)
    ).close(timeout=timeout)


@dataclass
class Publisher:
    """What is sent and where to, and the driver's hand on the process that sends it.

    Attributes:
        folder: a run, or a study or search with all runs below it.
        uri: the MLflow store, absolute, with its credentials; empty: nothing is sent.
        experiment: name of the MLflow experiment.
    """

    folder: Path
    uri: str
    experiment: str
    _process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start sending, in time that nobody else wants; returns at once and never raises for
        trouble with the server or this machine.
        """
        if self.uri:
            with suppress(OSError, AttributeError):  # `close` tries again
                self._process = self._start()
                # a nice value would count within its session alone
                os.sched_setscheduler(self._process.pid, os.SCHED_IDLE, os.sched_param(0))

    def close(self, *, timeout: float = 20.0) -> Summary:
        """Send what is left, with artefacts and each run's status; never raises for server trouble.

        Args:
            timeout: most seconds this may take, and 10 more for the process beside training to
                end. What is not sent by then, `subquad sync` sends later.
        """
        if not self.uri:
            return Summary(delivered=True)
        try:
            if self._process:
                summary = _answer(self._process, _IDLE_SECONDS)
                if summary.uri:
                    return summary
            summary = _answer(self._start(), timeout)
        except OSError as error:
            summary = Summary(delivered=False, error=f"the process that sends: {error}")
        return summary.model_copy(update={"uri": mask(self.uri)})

    def _start(self) -> subprocess.Popen[str]:
        """In a session of its own, so that Ctrl-C in the terminal stops training first and this one
        after it. The address may hold a password, so it is in no command line.

        Raises:
            OSError: this machine has no room for it.
        """
        command = [sys.executable, "-P", "-m", "subquad.tracking.importing"]
        return subprocess.Popen(
            [*command, str(self.folder), self.experiment],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**SETTINGS, **os.environ, VARIABLE: self.uri},
            text=True,
            start_new_session=True,
        )


def _answer(process: subprocess.Popen[str], seconds: float) -> Summary:
    """What the process says once its input has ended; without an address, why it says nothing."""
    with process:
        try:
            answer, _ = process.communicate(timeout=seconds)
            return Summary.model_validate_json(answer)
        except subprocess.TimeoutExpired:
            process.kill()
            reason = f"not all was sent within {seconds:g} s"
        except ValueError:
            reason = f"the process that sends ended ({process.returncode})"
    return Summary(delivered=False, error=reason)
