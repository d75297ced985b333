"""The driver's handle on tracking: start it, train, close it. Nothing here waits for or fails with a server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import click

from subquad.errors import UserError
from subquad.experiment.schema import Tracking
from subquad.tracking.address import artifact_folder, choose
from subquad.tracking.contracts import Plan, Summary, TrackedRun
from subquad.tracking.delivery import summarise
from subquad.tracking.settings import client_environment

_EXTRA = "MLflow is not installed: pip install 'subquad[mlflow]'"


def check_tracking(tracking: Tracking, root: Path) -> str:
    """The store that runs are sent to, before there are any.

    Args:
        tracking: the experiment's settings.
        root: folder that holds `runs/`.

    Raises:
        ConfigError: `tracking.uri` is no store.
        UserError: `tracking.uri` is given but MLflow is not installed.
    """
    if not tracking.enabled:
        return ""
    uri = choose(tracking.uri, root)
    if tracking.uri is not None and find_spec("mlflow") is None:
        raise UserError(f"tracking.uri is given, but {_EXTRA}, or set tracking.enabled=false")
    return uri


def open_publisher(
    tracking: Tracking,
    *,
    root: Path,
    name: str,
    runs: Sequence[TrackedRun],
    study: Path | None,
    search: Path | None = None,
) -> Publisher | NullPublisher:
    """A publisher for these runs; one that does nothing where tracking is off or MLflow is not installed.

    Args:
        tracking: the experiment's settings.
        root: folder that holds `runs/`.
        name: the MLflow experiment's name, unless `tracking` names one.
        runs: the run directories; for a study its cells, which may not exist yet.
        study: the study's folder; None for one run alone.
        search: a search's folder, written down already; its trials are found there, so there are no `runs`.

    Raises:
        ConfigError: `tracking.uri` is no store.
        UserError: `tracking.uri` is given but MLflow is not installed.
    """
    uri = check_tracking(tracking, root)
    if not uri:
        return NullPublisher()
    if find_spec("mlflow") is None:
        click.echo(f"{_EXTRA} (metrics stay in the run directory)", err=True)
        return NullPublisher()
    absolute = tuple(TrackedRun(run.folder.resolve(), run.label, run.params, run.tags) for run in runs)
    experiment = tracking.experiment or name
    return Publisher(
        Plan(
            uri=uri,
            experiment=experiment,
            artifacts=artifact_folder(uri, root),
            runs=absolute,
            study=study and study.resolve(),
            search=search and search.resolve(),
        )
    )


class NullPublisher:
    """Tracking that is off."""

    def start(self) -> None:
        """Do nothing."""

    def close(self, *, timeout: float = 20.0) -> Summary:
        """Nothing was to be delivered."""
        return Summary(delivered=True)


class Publisher:
    """Runs the sending process. Made by `open_publisher`."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[bytes] | None = None
        self._trouble: str | None = None
        self._summary: Summary | None = None

    def start(self) -> None:
        """Start sending; returns at once and never raises for trouble with the server or this machine."""
        if self._process is not None or self._trouble is not None:
            return
        try:
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `close`)
            self._process = _start_child(self._errors)
            assert self._process.stdin is not None
            self._process.stdin.write(self.plan.to_json() + "\n")
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
            answer = self._ask_to_close(timeout)
            self._summary = answer or summarise(self.plan, self._trouble)
        return self._summary

    def _ask_to_close(self, timeout: float) -> Summary | None:
        process = self._process
        if process is None:
            return None
        try:
            answer, _ = process.communicate(f"close {timeout}\n", timeout=timeout)
            if answer.strip():
                return Summary.from_json(answer)
            self._trouble = self._last_words(timeout)
        except subprocess.TimeoutExpired:
            self._trouble = f"not all was sent within {timeout:g} s"
        except (OSError, ValueError) as error:
            self._trouble = f"the process that sends to MLflow broke off: {error}"
        finally:
            _end(process)
            self._forget_errors()
        return None

    def _forget_errors(self) -> None:
        if self._errors is not None:
            self._errors.close()

    def _last_words(self, timeout: float) -> str:
        """Why the process gave no answer: it reached its limit of time, or the last line it wrote."""
        assert self._errors is not None
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "no reason given")
        code = self._process.returncode if self._process else None
        return (
            f"not all was sent within {timeout:g} s" if code == 1 else f"the process that sends ended ({code}): {said}"
        )


def _start_child(errors: IO[bytes]) -> subprocess.Popen[str]:
    """In a session of its own, so that Ctrl-C in the terminal stops training first and this one after it."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "subquad.tracking.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env=client_environment(),
        text=True,
        start_new_session=True,
    )


def _end(process: subprocess.Popen[str]) -> None:
    """Leave no process behind."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
