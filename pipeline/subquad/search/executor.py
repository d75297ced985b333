"""How trials are trained: one after the other in this process, or several at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from subquad.engine.group import Group
from subquad.engine.run import fail
from subquad.experiment import Run
from subquad.search.pruner import Pruning

NextRun = Callable[[], Run | None]
"""The next trial to start; None: none now, ask again when another one has ended."""
Ended = Callable[[Run], None]
"""Told of each trial that has a result."""


class Executor(ABC):
    """Trains trials until there are no more. Both callbacks are called in the driver's process, one at a time."""

    @abstractmethod
    def run(self, next_run: NextRun, judge: Pruning | None, ended: Ended) -> int:
        """Train what `next_run` gives, as many at once as there is room; done when it gives none and none runs.

        A trial goes on from its newest checkpoint, as any run; one that cannot be trained gets a result all the same:
        see `failed`. A trial that a signal stopped has none, and `ended` is not told of it.

        Args:
            judge: for `engine.run.Signals` on the first rank of each trial; it may be pickled. None: no trial is
                ended early.

        Returns:
            the signal that stopped it, 0 where none did.
        """


def failed(run: Run, reason: str) -> None:
    """Record that a trial failed, so that the search goes on without it."""
    fail(run, Group(), reason)


def make(*, local: bool) -> Executor:
    """The executor that suits: without Ray, trials are trained one after the other in this process."""
    if local:
        from subquad.search.local import LocalExecutor

        return LocalExecutor()
    from subquad.ray.tune import TuneExecutor

    return TuneExecutor()
