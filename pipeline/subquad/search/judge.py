"""A scheduler, asked by the engine after every evaluation of a trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from subquad.search.folder import Trials, place_of
from subquad.search.scheduler import Scheduler

if TYPE_CHECKING:
    from subquad.engine.progress import Progress
    from subquad.engine.ticket import Ticket


@dataclass(frozen=True)
class Judge:
    """What `engine.run.Signals` asks: why a trial shall end, "" where it shall go on.

    It knows nothing but the search's folder, so it may travel to another process that sees the same files.

    Attributes:
        trials: the search's.
        schedulers: of each subject, by label.
    """

    trials: Trials
    schedulers: Mapping[str, Scheduler]

    def __call__(self, ticket: Ticket, progress: Progress) -> str:
        _, subject, number = place_of(ticket.folder)
        return self.schedulers[subject].reason_to_stop(number, self.trials.of(subject))
