"""Random search.

Reference: Bergstra and Bengio, "Random search for hyper-parameter optimization", JMLR 2012.
"""

from __future__ import annotations

from collections.abc import Sequence

from subquad.search.choose import NoSettings
from subquad.search.searcher import Goal, Searcher
from subquad.search.searchers.fresh import fresh, tried
from subquad.search.trial import Trial
from subquad.space import Point, Space


class Random(Searcher):
    """Draws of the space by seed and number; no point of a finite space comes twice. Ignores a goal's cost."""

    schema = NoSettings

    def __init__(self, space: Space, goal: Goal, seed: int, settings: NoSettings | None = None):
        super().__init__(space, goal, seed)

    def suggest(self, number: int, known: Sequence[Trial]) -> Point | None:
        return fresh(self.space, self.seed, number, tried(known))
