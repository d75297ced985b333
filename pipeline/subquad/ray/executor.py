"""The executor that goes through Ray: Ray Tune for worker groups, Ray Train in those with several
workers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
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
from subquad.ray.machines import node_here
from subquad.ray.worker_groups import fit_worker_groups
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
                fit_worker_groups(dispatcher, node_here())

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
