"""What every scheduler can do: say whether a trial is worth going on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from subquad.search.searcher import Goal
from subquad.search.trial import Evaluation

Curve = tuple[Evaluation, ...]


class Scheduler(ABC):
    """Judges trials. A pure function of the curves there are, so that it needs no memory of its own."""

    def __init__(self, goal: Goal):
        self.goal = goal

    @abstractmethod
    def reason_to_stop(self, number: int, curves: Mapping[int, Curve], total_steps: int) -> str:
        """Why trial `number` shall end after its newest evaluation; "" where it shall go on.

        Args:
            number: the trial, whose curve ends with the newest evaluation.
            curves: evaluations so far of every trial of the subject, also of those that ended.
            total_steps: steps of a whole trial.
        """
