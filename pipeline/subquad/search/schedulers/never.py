"""No scheduler: every trial trains to its end."""

from __future__ import annotations

from collections.abc import Sequence

from subquad.search.choose import NoSettings
from subquad.search.scheduler import Scheduler
from subquad.search.searcher import Goal
from subquad.search.trial import Trial


class Never(Scheduler):
    """Never stops a trial."""

    schema = NoSettings

    def __init__(self, goal: Goal, settings: NoSettings | None = None):
        super().__init__(goal)

    def reason_to_stop(self, number: int, known: Sequence[Trial]) -> str:
        return ""
