"""Grid search: every point once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import islice

import numpy as np

from subquad.errors import ConfigError
from subquad.experiment.settings import one_line
from subquad.plugin import Config, param
from subquad.search.searcher import Goal, Searcher
from subquad.search.trial import Trial
from subquad.space import Point, Space

MAX_SHUFFLED = 100_000
"""Points that are held in memory to walk them in another order."""


class GridSettings(Config):
    shuffle: bool = param(True, meaning="walk the points in an order of the seed; false: the last dimension first")


class Grid(Searcher):
    """The n-th point of the grid for trial n, and none after the last. Ignores a goal's cost.

    The order is shuffled by the seed, as the first points of a grid in order lie in one corner of it: a budget that
    ends early would never see the others.

    Raises:
        ConfigError: the space is continuous, or too large to be shuffled.
    """

    schema = GridSettings

    def __init__(self, space: Space, goal: Goal, seed: int, settings: GridSettings | None = None):
        super().__init__(space, goal, seed)
        self.settings = settings or GridSettings()
        space.grid()  # refuses continuous dimensions
        size = space.size()
        if self.settings.shuffle and (size is None or size > MAX_SHUFFLED):
            raise ConfigError(
                one_line(
                    f"searcher.shuffle: space {space.name} has more than {MAX_SHUFFLED:,} points; "
                    "write shuffle false, narrow the space, or take searcher random"
                )
            )

    def suggest(self, number: int, known: Sequence[Trial]) -> Point | None:
        if self.settings.shuffle:
            return dict(self._shuffled[number]) if number < len(self._shuffled) else None
        return next(islice(self.space.grid(), number, None), None)

    @cached_property
    def _shuffled(self) -> list[Point]:
        points = list(self.space.grid())
        words = np.random.Philox(key=np.array([self.seed, 0], dtype=np.uint64)).random_raw(len(points))
        return [points[index] for index in np.argsort(words, kind="stable")]
