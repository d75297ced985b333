"""The two long snakes of an image: drawn together, again from the start until both have all their
paddles.

An image's attempts have random streams of their own, numbered 0, 1, 2, ..., and the first that
succeeds counts. So it does not matter how many are tried at once, nor beside which other images.

Letters: N images, A attempts, T paddles of a snake. Axis of two: the two snakes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from subquad_datasets.pathfinder.canvas import SEGMENT_TRIALS, Canvas, Snake
from subquad_datasets.pathfinder.drawing import Drawing
from subquad_datasets.pathfinder.stream import below, child_keys
from subquad_datasets.pathfinder.tables import DEGREES, Tables

SEED_WORDS = 4
"""Words of an attempt's stream that its two first paddles use; those of the other paddles
follow.
"""

ATTEMPTS_AT_ONCE = {32: 2048, 64: 1024, 128: 256, 256: 64}
"""Enough to make NumPy's cost per call small, few enough for the cache."""

MOST_AHEAD = 128
"""Attempts at one image that are made at once: those after the first success are in vain."""


@dataclass(frozen=True)
class Pairs:
    """Two snakes in each of N images.

    Attributes:
        start: (N, 2, T) flat positions the paddles are drawn from; the first and the last are the
            snake's two tips.
        stamp: (N, 2, T) which lines.
    """

    start: np.ndarray
    stamp: np.ndarray


class PairDrawer:
    """Draws pairs for one `Drawing` and one margin."""

    def __init__(self, drawing: Drawing, tables: Tables):
        self.drawing = drawing
        self.tables = tables
        self.seeds = find_seeds(drawing, tables)
        at_once = ATTEMPTS_AT_ONCE.get(drawing.window, 64)
        self.canvas = Canvas(tables, at_once)

    def draw(self, keys: np.ndarray) -> Pairs:
        """The pairs of the images with streams `keys` (N,)."""
        shape = (len(keys), 2, self.drawing.contour_length)
        result = Pairs(np.zeros(shape, np.int64), np.zeros(shape, np.int64))
        missing = np.arange(len(keys))
        first = np.zeros(len(keys), np.int64)
        while len(missing):
            each = min(max(1, len(self.canvas.base) // len(missing)), MOST_AHEAD)
            trying = np.repeat(missing[: len(self.canvas.base)], each)
            number = first[trying] + np.tile(np.arange(each), len(trying) // each)
            good, pairs = self._attempt(child_keys(keys[trying], number))
            done, which = np.unique(trying[good], return_index=True)
            result.start[done] = pairs.start[which]
            result.stamp[done] = pairs.stamp[which]
            first[trying[::each]] += each
            missing = np.setdiff1d(missing, done)
        return result

    def _attempt(self, keys: np.ndarray) -> tuple[np.ndarray, Pairs]:
        """One attempt for each key (A,): the sorted indices of those that succeeded, and their
        pairs.
        """
        self.canvas.clear(len(keys))
        snakes = self._first_paddles(keys)
        rows = np.arange(len(keys))
        paddles = self.drawing.contour_length
        start = np.zeros((len(keys), 2, paddles), np.int64)
        stamp = np.zeros_like(start)
        for paddle in range(paddles):
            for which, snake in enumerate(snakes):
                if paddle:
                    place = SEED_WORDS + SEGMENT_TRIALS * (2 * (paddle - 1) + which)
                    rows = self.canvas.extend(rows, snake, keys, place, core=True)
                start[rows, which, paddle] = snake.start[rows]
                stamp[rows, which, paddle] = snake.stamp[rows]
        return rows, Pairs(start[rows], stamp[rows])

    def _first_paddles(self, keys: np.ndarray) -> tuple[Snake, Snake]:
        """The origins of both snakes: the second at `seed_distance` from the first, in any whole
        degree.
        """
        tables = self.tables
        seeds = self.seeds
        orientation = seeds.orientation[below(len(seeds.orientation), keys, 0)]
        start = seeds.start[orientation, below(seeds.count[orientation], keys, 1)]
        turn = below(DEGREES, keys, 2)
        second_orientation = below(DEGREES, keys, 3)
        y, x = tables.split(start)
        second_y = np.rint(y + seeds.away[turn, 0])
        second_x = np.rint(x + seeds.away[turn, 1])
        second_start = tables.flat(second_y, second_x).astype(np.int64)
        first = first_paddle(tables, start, orientation)
        second = first_paddle(tables, second_start, second_orientation)
        return first, second


@dataclass(frozen=True)
class Seeds:
    """Where a pair may begin.

    Attributes:
        orientation: usable orientations that fit into the window in the middle at all.
        start: (360, P) flat positions where a first paddle of an orientation fits, and
        count: (360,) how many there are.
        away: (360, 2) from the first origin to the second, in pixels, for each whole degree.
    """

    orientation: np.ndarray
    start: np.ndarray
    count: np.ndarray
    away: np.ndarray


def find_seeds(drawing: Drawing, tables: Tables) -> Seeds:
    """Every place for a first paddle at least twice `seed_distance` from the image's border."""
    far = 2 * drawing.seed_distance
    taken = np.ones((tables.pitch, tables.pitch), bool)
    inside = slice(tables.rim + far, -tables.rim - far)
    taken[inside, inside] = False
    free = np.flatnonzero(~taken)
    fits = []
    away = []
    for degree, shape in zip(range(DEGREES), tables.shape, strict=True):
        blocked = taken.ravel()[free[:, None] + shape].any(axis=1)
        fits.append(free[~blocked])
        y = drawing.seed_distance * math.sin(math.radians(degree))
        x = drawing.seed_distance * math.cos(math.radians(degree))
        away.append([round(y, 9), round(x, 9)])
    count = np.array([len(places) for places in fits])
    start = np.zeros((DEGREES, count.max()), np.int64)
    for row, places in zip(start, fits, strict=True):
        row[: len(places)] = places
    usable = np.flatnonzero(tables.usable & (count > 0))
    return Seeds(usable, start, count, np.array(away))


def first_paddle(tables: Tables, start: np.ndarray, orientation: np.ndarray) -> Snake:
    """Snakes of one paddle: arrays (n,)."""
    return Snake(
        start + tables.backs[orientation],
        orientation.copy(),
        start.copy(),
        tables.stamp_of[orientation],
    )
