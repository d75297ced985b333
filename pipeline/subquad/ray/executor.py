"""The executor that goes through Ray: Ray Train for a study's runs, Ray Tune for a search's trials."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import subquad.errors
from subquad.drivers.executor import Ended, Executor, NextRun
from subquad.drivers.preflight import Room, this_machine
from subquad.drivers.signals import Signum, listening
from subquad.engine import attempts
from subquad.engine.loop import Judge
from subquad.errors import TrainingFailed, UserError
from subquad.experiment import Run
from subquad.experiment.schema import Resources
from subquad.ray.cluster import in_cluster
from subquad.ray.search import run_trials
from subquad.ray.train import fitted
from subquad.runs import STOP

_NEEDED = ("ray", "fsspec", "pandas", "pyarrow", "requests")
"""Ray, and what `ray.train` and `ray.tune` import of other packages."""
_NO_START, _MOST_STARTS = ("WorkerGroupStartupTimeoutError", "WorkerGroupStartupFailedError"), 12
"""Why workers could not start that others' use of the room, or a lost machine, may cause; and how often it may."""


class RayExecutor(Executor):
    """Workers of a Ray cluster of our own on this machine."""

    words = "through Ray, which takes some seconds to start"
    option = ""

    def check(self) -> None:
        # Told without importing Ray: its settings are read when it is.
        lacking = [name for name in _NEEDED if find_spec(name) is None]
        if lacking:
            what = "Ray is not installed" if "ray" in lacking else f"Ray needs {', '.join(lacking)}"
            raise UserError(f"{what}: pip install 'subquad[ray]', or go without Ray by --local")

    def room(self, resources: Resources) -> Room:
        return this_machine()

    def train(self, runs: Sequence[Run], resources: Resources, folder: Path) -> None:
        self.room(resources).check(resources)
        plain, stop = [self.plain(one) for one in runs], self.seen(folder / STOP)
        with listening(folder / STOP) as signum:
            fruitless = 0
            while True:
                before = attempts.count(runs)
                outcome = self.session(lambda storage: fitted(plain, resources, stop, storage), signum)
                fruitless = fruitless + 1 if attempts.count(runs) == before else 0
                raised = None if signum() else outcome.get("raised")
                if raised is None or not self.recovers(raised, resources, signum, fruitless):
                    break
        _raise(outcome, signum)

    def recovers(self, error: BaseException, resources: Resources, signum: Signum, fruitless: int) -> bool:
        """Whether to go on after Ray Train gave up.

        Args:
            error: why it did.
            fruitless: how often in a row, before any worker began.

        Raises:
            TrainingFailed: there is no room for the workers any more.
        """
        cause = type(getattr(error, "controller_failure", error)).__name__
        return fruitless < (_MOST_STARTS if cause in _NO_START else 1)

    def search(self, next_run: NextRun, judge: Judge | None, ended: Ended) -> int:
        return run_trials(self, next_run, judge, ended)

    def session(self, work: Callable[[str], Any], signum: Signum, judge: Judge | None = None) -> dict[str, Any]:
        """What work on the cluster "returned" or "raised"; it is given a folder for Ray's own files."""
        return in_cluster(work, signum)

    def seen(self, path: Path) -> str:
        """A path of this machine as workers reach it."""
        return str(path)

    def asked(self, judge: Judge | None) -> Judge | None:
        """The judge of trials as workers ask it."""
        return judge

    def plain(self, run: Run) -> dict[str, Any]:
        """A run's plain values, its folder as workers reach it."""
        return run.plain() | {"place": self.seen(run.folder)}


def _raise(outcome: dict[str, Any], signum: Signum) -> None:
    returned, raised = outcome.get("returned"), outcome.get("raised")
    if returned and "error" in returned:
        raise getattr(subquad.errors, returned["kind"], UserError)(returned["error"])
    if raised is not None and not signum():
        last = str(raised).strip().splitlines()
        raise TrainingFailed(
            f"Ray Train gave up: {type(raised).__name__}: {last[-1] if last else ''}; `subquad resume` goes on from "
            "the newest checkpoint"
        ) from raised
