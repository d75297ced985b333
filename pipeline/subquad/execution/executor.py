"""What trains runs: an executor that the command line or the Python API hands in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from subquad.engine.loop import PruneReason, no_reason
from subquad.experiment import Run, Study
from subquad.experiment.schema import Resources
from subquad.preparation.preflight import Room, check_parts, naming, one_of_each
from subquad.tracking.publisher import check_tracking

GOES_ON = "`subquad resume` goes on from the newest checkpoint"
Made = TypeVar("Made")


@dataclass(frozen=True)
class Source:
    """Where an executor's runs come from, and who is told of them. All is called in the driver's
    process, one at a time.

    Attributes:
        next_run: the next run to start; None: none now, ask again when another one has ended.
        ended: told of each run that has a result.
        prune_reason: see `engine.loop.Signals`.
        alone: the only run of all: what is wrong with it is raised, not its result.
    """

    next_run: Callable[[], Run | None]
    ended: Callable[[Run], None] = lambda run: None
    prune_reason: PruneReason = no_reason
    alone: bool = False


class Executor(ABC):
    """Trains runs, several side by side.

    Attributes:
        words: how it trains, for the line that a command begins with.
        options: of `resume`, for a run that shall go on as it began.
        settings: what a new experiment has because of where it trains, as KEY=VALUE.
    """

    words: str
    options: tuple[str, ...]
    settings: tuple[str, ...] = ()

    def placed(self, overrides: Sequence[str]) -> tuple[str, ...]:
        """Overrides of a new experiment, with what the place decides where they do not say it."""
        keys = {text.partition("=")[0] for text in overrides}
        return (
            *(setting for setting in self.settings if setting.partition("=")[0] not in keys),
            *overrides,
        )

    def preflight(self, study: Study, *, writes: bool = True) -> None:
        """Refuse what cannot run, before a folder is made or a cluster started; what takes no time
        comes first.

        Args:
            writes: storage is looked at, too.

        Raises:
            UserError: Ray or MLflow is asked for and not installed,
                or the cluster cannot be reached.
            ConfigError: more CPUs or GPUs are asked than there are, or `tracking.uri` is no store.
            DataError, PluginError: see `check_parts`.
        """
        self.check()
        study = one_of_each(study)
        for run in study.runs:
            experiment = run.experiment
            with naming(run, study):
                self.check_fit(experiment.resources)
                check_tracking(experiment.tracking, Path.cwd())
        self.look(study, writes=writes)

    @abstractmethod
    def check(self) -> None:
        """Refuse to begin where a library is missing, or a cluster cannot be reached.

        Raises:
            UserError: which.
        """

    def check_fit(self, resources: Resources) -> None:
        """Refuse workers that never fit.

        Raises:
            ConfigError: what is asked, and what there is.
        """
        self.room(resources).check(resources)

    @abstractmethod
    def room(self, resources: Resources) -> Room:
        """What workers can be given; a cluster that may grow is asked for what these resources
        need.
        """

    def look(self, study: Study, *, writes: bool) -> None:
        """Look at data and models where they will be used; here they are used on this machine.
        See `check_parts`.
        """
        check_parts(study, writes=writes)

    def there(self, make: Callable[[], Made], resources: Resources) -> Made:
        """An object whose methods work where the data and devices are, with what one worker is
        given: here.
        """
        return make()

    def freed(self, made: Made) -> Made:
        """What `there` made, without the devices it was given."""
        return made

    def kept(self) -> AbstractContextManager[None]:
        """What is started for one work serves the next ones, in the block."""
        return nullcontext()

    @abstractmethod
    def work(self, source: Source, folder: Path) -> int:
        """Train what a source gives, as many runs at once as there is room, until it gives none
        and none runs.

        A run goes on from its newest checkpoint, also after its workers died; one that cannot be
        trained gets a result all the same. A run that a signal stopped has none, and the source is
        not told of it.

        Args:
            folder: of the run, study or search: in it lies the file that stops workers.

        Returns:
            the signal that stopped it, 0 where none did.

        Raises:
            UserError: the only run cannot start, another process writes a run, or a disk is full.
            TrainingFailed: workers could not be started.
        """
