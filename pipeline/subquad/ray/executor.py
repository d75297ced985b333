"""The executor that goes through Ray: Ray Tune for worker groups, Ray Train in those with several
workers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any

from subquad.errors import TrainingFailed, UserError
from subquad.execution.dispatcher import Dispatcher
from subquad.execution.executor import GOES_ON, Executor, Source
from subquad.execution.queue import RunQueue
from subquad.execution.signals import Signum, listening, signum_in, stop_watch
from subquad.experiment import Run
from subquad.experiment.schema import Resources
from subquad.preparation.preflight import Room, this_machine
from subquad.ray.cluster import OwnCluster
from subquad.ray.driver import Question, driver_here
from subquad.ray.train import (
    NO_START,
    fit_worker_group,
    machine_of,
    this_node,
    work_in_worker_group,
    worker_bundle,
)
from subquad.record.layout import runs_root
from subquad.record.names import STOP

_NEEDED = ("ray", "fsspec", "pandas", "pyarrow")
"""Ray, and what `ray.train` and `ray.tune` import of other packages."""


_NO_DRIVER = "the process that workers ask has died"
_FETCH_SECONDS = 5.0
"""Between looks at what workers elsewhere have written, for progress and tracking."""


class RayExecutor(Executor):
    """Workers of a Ray cluster of our own on this machine.

    Args:
        jobs: runs at once; None: as many as there is room for.
    """

    words = "through Ray, which takes some seconds to start"

    def __init__(self, jobs: int | None = None):
        self.jobs = jobs
        self.options = ("--jobs", str(jobs)) if jobs else ()
        self._cluster: OwnCluster | None = None

    def check(self) -> None:
        # Told without importing Ray: its settings are read when it is.
        lacking = [name for name in _NEEDED if find_spec(name) is None]
        if lacking:
            what = "Ray is not installed" if "ray" in lacking else f"Ray needs {', '.join(lacking)}"
            raise UserError(f"{what}: pip install 'subquad[ray]', or go without Ray by --local")

    def room(self, resources: Resources) -> Room:
        return this_machine()

    def room_now(self, resources: Resources) -> Room:
        """What worker groups for such runs may use together."""
        return this_machine()

    def check_room(self, resources: Resources, signum: Signum) -> None:
        """Refuse workers that never fit; machines that were lost may come back.

        Raises:
            ConfigError: what is asked, and what there is.
            TrainingFailed: machines that were lost do not come back.
        """
        self.check_fit(resources)

    def still_lacking(self, unplaced: list[Resources] | None) -> str:
        """Why workers that groups wait for are given up, "" where they are not.

        Args:
            unplaced: see `RunQueue`.
        """
        return ""

    def sent(self, run: Run) -> dict[str, Any]:
        """A run's plain values for a worker, which reaches its folder."""
        return run.as_values()

    def fetch(self, run: Run) -> None:
        """Bring a run's folder in line with what workers that do not reach it wrote elsewhere."""

    def work(self, source: Source, folder: Path) -> int:
        stop = folder / STOP
        with listening(stop) as signum, self.kept():
            queue = RunQueue(
                source,
                partial(self.check_room, signum=signum),
                self.room_now,
                self.jobs,
                signum,
                self.fetch,
            )
            dispatcher = Dispatcher(queue, source, stop, self.sent)
            outcome = self._fit(queue, dispatcher, folder, signum)
        if dispatcher.raised is not None:
            raise dispatcher.raised
        error = outcome.get("raised")
        if error is not None and not signum():
            last = str(error).strip().splitlines()
            raise TrainingFailed(
                f"Ray gave up: {type(error).__name__}: {last[-1] if last else ''}; {GOES_ON}"
            ) from error
        return signum()

    def _fit(
        self, queue: RunQueue, dispatcher: Dispatcher, folder: Path, signum: Signum
    ) -> dict[str, Any]:
        left = Event()
        root = runs_root(folder).parent
        look = stop_watch(partial(signum_in, folder / STOP))
        due = 0.0

        def leave(reason: str) -> None:
            left.set()
            dispatcher.give_up(TrainingFailed(f"{reason}; {GOES_ON}"))

        def is_left() -> bool:
            reason = "" if left.is_set() or signum() else self.still_lacking(queue.unplaced)
            if reason:
                leave(reason)
            return left.is_set()

        def answer(question: Question) -> Any:
            about, argument = question
            if about:
                return dispatcher.next_run(about, argument)
            return dispatcher.prune_reason(root / argument)

        def heard() -> int:
            nonlocal due
            if time.monotonic() > due:
                dispatcher.fetch()
                due = time.monotonic() + _FETCH_SECONDS
            return look()

        def fit() -> None:
            with driver_here(answer, heard, lambda reason: leave(f"{_NO_DRIVER} ({reason})")):
                _fit_worker_groups(dispatcher)

        assert self._cluster is not None
        return self._cluster.do(fit, signum, is_left)

    @contextmanager
    def kept(self) -> Iterator[None]:
        if self._cluster is not None:
            yield
            return
        self._cluster = self.cluster()
        try:
            yield
        finally:
            self._cluster.stop()
            self._cluster = None

    def cluster(self) -> OwnCluster:
        """Where it works."""
        return OwnCluster()


def _fit_worker_groups(dispatcher: Dispatcher) -> None:
    """Let Tune have worker groups until nothing is left to do. Each trial of its is one: a process
    that takes one run after the other, or waits for a Ray Train run with several workers that do.

    What is done next and what is ended early is decided by the driver; Tune has the processes. One
    that only waits for Ray Train is on the driver's machine and reserves nothing: if it held a CPU,
    such processes could keep each other's workers out.
    """
    from ray import tune

    # It tells of processes that died, whose runs go again.
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    with TemporaryDirectory(prefix="subquad-ray-", ignore_cleanup_errors=True) as folder:
        tune.Tuner(
            tune.with_resources(_worker_group, _place),
            tune_config=tune.TuneConfig(
                search_alg=_searcher(dispatcher),
                num_samples=-1,
                trial_dirname_creator=lambda trial: trial.trial_id,
            ),
            run_config=tune.RunConfig(name="worker_groups", storage_path=folder, verbose=0),
        ).fit()


def _searcher(dispatcher: Dispatcher) -> Any:
    """Our queue as Ray Tune's search algorithm: Tune is given groups, and tells where they end."""
    from ray.tune.search import Searcher

    class QueueSearcher(Searcher):
        def __reduce__(self) -> tuple[type[Searcher], tuple[()]]:
            """Tune saves it with its settings, for a resume of its own that never comes."""
            return Searcher, ()

        def suggest(self, trial_id: str) -> Any:
            """A group's values; None: none now; FINISHED: never again."""
            if group := dispatcher.open(trial_id):
                return {
                    "name": trial_id,
                    "resources": group.resources.model_dump(mode="json"),
                }
            return Searcher.FINISHED if dispatcher.idle else None

        def on_trial_complete(
            self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
        ) -> None:
            """Take back what the worker group still has."""
            if unstarted := "" if error or not result else result.get("unstarted", ""):
                dispatcher.close(
                    trial_id, f"its workers found no room ({unstarted})", most=NO_START[unstarted]
                )
            else:
                dispatcher.close(trial_id, "its process died")

        def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
            """Nothing: the folder remembers."""

    return QueueSearcher()


def _place(config: dict[str, Any]) -> Any:
    from ray.tune import PlacementGroupFactory

    resources = Resources.model_validate(config["resources"])
    bundle = worker_bundle(resources)
    machine = machine_of(resources)
    if resources.most > 1:
        bundle = {"memory": 1.0}  # Tune wants something to be reserved
        machine = this_node()
    return PlacementGroupFactory([bundle], bundle_label_selector=[machine])


def _worker_group(config: dict[str, Any]) -> dict[str, str]:
    """A worker group in its process. Its death counts as one of the run that it has."""
    name = config["name"]
    resources = Resources.model_validate(config["resources"])
    if resources.most > 1:
        return {"unstarted": fit_worker_group(name, resources)}
    from subquad.engine.group import Group
    from subquad.execution.local import device_of

    work_in_worker_group(name, Group(device=device_of(resources)))
    return {"unstarted": ""}
