"""What trains runs: an executor that the command line or the Python API hands in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

from subquad.engine.loop import Judge
from subquad.experiment import Run
from subquad.experiment.schema import Resources

NextRun = Callable[[], Run | None]
"""The next trial to start; None: none now, ask again when another one has ended."""
Ended = Callable[[Run], None]
"""Told of each trial that has a result."""


class Executor(ABC):
    """Trains the runs of a study, and the trials of a search.

    Attributes:
        words: how it trains, for the line that a command begins with.
        option: of `resume`, for a run that shall go on as it began.
        reserves: CPUs are reserved for workers, so that no more can be asked for than there are.
    """

    words: str
    option: str
    reserves: bool

    @abstractmethod
    def check(self) -> None:
        """Refuse what cannot work here, before anything is made.

        Raises:
            UserError: a library that it needs is missing.
        """

    @abstractmethod
    def train(self, runs: Sequence[Run], resources: Resources, folder: Path) -> None:
        """Do runs that ask for the same workers, one after the other, until all are done or a signal arrives.

        Args:
            runs: what is done.
            resources: number of workers and what each gets.
            folder: the run's or study's folder.

        Raises:
            UserError: the only run cannot start.
            TrainingFailed: workers could not be started.
        """

    @abstractmethod
    def search(self, next_run: NextRun, judge: Judge | None, ended: Ended) -> int:
        """Train what `next_run` gives, as many trials at once as there is room, until it gives none and none runs.

        A trial goes on from its newest checkpoint, as any run; one that cannot be trained gets a result all the same.
        A trial that a signal stopped has none, and `ended` is not told of it. Both callbacks are called in the
        driver's process, one at a time.

        Args:
            judge: see `engine.loop.Signals`; it may be pickled. None: no trial is ended early.

        Returns:
            the signal that stopped it, 0 where none did.
        """
