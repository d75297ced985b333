"""What every searcher can do: say which point to try next, given what was tried."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from subquad.search.trial import Trial
from subquad.space import Point, Space


@dataclass(frozen=True)
class Goal:
    """What a search is after.

    Attributes:
        metric: of the task, on the validation split.
        mode: whether more or less of it is better.
        cost: a second objective, less of it is better: training seconds or counted FLOPs of a trial. Searchers that
            know one objective only, and schedulers, do not look at it.
    """

    metric: str
    mode: Literal["max", "min"]
    cost: Literal["none", "seconds", "flops"] = "none"


class Searcher(ABC):
    """Suggests points. A pure function of its arguments: nothing is remembered between calls.

    Args:
        space: what is searched.
        goal: what is better.
        seed: of the search.
    """

    def __init__(self, space: Space, goal: Goal, seed: int):
        self.space = space
        self.goal = goal
        self.seed = seed

    @abstractmethod
    def suggest(self, number: int, known: Sequence[Trial]) -> Point | None:
        """The point of trial `number`; None where there is nothing left to try.

        Args:
            number: 0, 1, 2, ...
            known: trials with smaller numbers, by number; some may still run.
        """
