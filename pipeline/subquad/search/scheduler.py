"""What every scheduler can do: say whether a trial is worth going on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from subquad.search.searcher import Goal
from subquad.search.trial import Trial


class Scheduler(ABC):
    """Judges trials. A pure function of the curves there are, so that it needs no memory of its own."""

    def __init__(self, goal: Goal):
        self.goal = goal

    @abstractmethod
    def reason_to_stop(self, number: int, known: Sequence[Trial]) -> str:
        """Why trial `number` shall end after its newest evaluation, in one line; "" where it shall go on.

        Trials are compared at equal fractions of their `total_steps`, as a searched batch size gives them different
        numbers of steps; one whose `total_steps` is 0 is not compared.

        Args:
            number: the trial, whose curve ends with the newest evaluation.
            known: every trial of the subject, also those that ended, and `number` itself.
        """
