"""What trains runs: an executor that the command line or the Python API hands in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from subquad.drivers.preflight import Room, check_parts, naming
from subquad.engine.loop import Judge
from subquad.experiment import Run, Study
from subquad.experiment.schema import Resources
from subquad.tracking.publisher import check_tracking
from subquad.trust import refuse_strange_storage

Made = TypeVar("Made")

NextRun = Callable[[], Run | None]
"""The next trial to start; None: none now, ask again when another one has ended."""
Ended = Callable[[Run], None]
"""Told of each trial that has a result."""


class Executor(ABC):
    """Trains the runs of a study, and the trials of a search.

    Attributes:
        words: how it trains, for the line that a command begins with.
        option: of `resume`, for a run that shall go on as it began.
    """

    words: str
    option: str

    def preflight(self, study: Study) -> None:
        """Refuse what cannot run, before a folder is made or a cluster started; what takes no time comes first.

        Raises:
            UserError: only a file names the storage; Ray or MLflow is asked for and not installed, or the cluster
                cannot be reached.
            ConfigError: more CPUs or GPUs are asked than there are, or `tracking.uri` is no store.
            DataError, PluginError: see `check_parts`.
        """
        self.check()
        for run in study.runs:
            with naming(run, study):
                self.room(run.experiment.resources).check(run.experiment.resources)
                check_tracking(run.experiment.tracking, Path.cwd())
                refuse_strange_storage(run.experiment.resources.storage)
        self.look(study)

    @abstractmethod
    def check(self) -> None:
        """Refuse to begin where a library is missing, or a cluster cannot be reached.

        Raises:
            UserError: which.
        """

    @abstractmethod
    def room(self, resources: Resources) -> Room:
        """What workers can be given; a cluster that may grow is asked for what these resources need."""

    def look(self, study: Study) -> None:
        """Look at data and models where they will be used; here they are used on this machine. See `check_parts`."""
        check_parts(study)

    def there(self, make: Callable[[], Made], resources: Resources) -> Made:
        """An object whose methods work where the data and devices are, with what one worker is given: here."""
        return make()

    def freed(self, made: Made) -> Made:
        """What `there` made, without the devices it was given."""
        return made

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
