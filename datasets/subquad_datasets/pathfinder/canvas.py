"""Many images at once: which pixels are taken, and adding one paddle to each of them.

Letters: N images, n of them at work, K end points.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from subquad_datasets.pathfinder.stream import below
from subquad_datasets.pathfinder.tables import DEAD_END, DEGREES, SOLID, Stamps, Tables

SEGMENT_TRIALS = 3
"""Draws of an end point for one paddle: where its mask clashes with what is there, another is
drawn.
"""


@dataclass
class Snake:
    """The growing ends of one snake in each of N images; arrays (N,) of flat positions and indices.

    Attributes:
        pivot: where the last paddle was turned around.
        orientation: of the last paddle.
        start: where the last paddle is drawn from.
        stamp: which line it is.
    """

    pivot: np.ndarray
    orientation: np.ndarray
    start: np.ndarray
    stamp: np.ndarray


class Canvas:
    """Masks of N images.

    Args:
        tables: of the drawing.
        count: N.

    Attributes:
        mask: (N * size,) uint8, 255 where a pixel is taken.
        dilated: (N * size,) uint8, the same, widened by the margin.
        base: (N,) where each image begins.
    """

    def __init__(self, tables: Tables, count: int):
        self.tables = tables
        self.size = len(tables.border)
        self.mask = np.tile(tables.border, count)
        self.dilated = np.tile(tables.border_dilated, count)
        self.base = np.arange(count, dtype=np.int64) * self.size

    def clear(self, count: int) -> None:
        """In the first `count` images only the border is taken."""
        self.mask.reshape(-1, self.size)[:count] = self.tables.border
        self.dilated.reshape(-1, self.size)[:count] = self.tables.border_dilated

    def add(
        self, rows: np.ndarray, start: np.ndarray, stamp: np.ndarray, *, core: bool = False
    ) -> None:
        """Take the room of one paddle in each image of `rows` (n,).

        Args:
            rows: images.
            start: (n,) flat position the paddle is drawn from.
            stamp: (n,) which line.
            core: keep of the mask only what can clash; enough where nothing but clashes is asked
                for.
        """
        at = self.base[rows] + start
        lay(self.mask, at, self.tables.dense if core else self.tables.mask, stamp)
        lay(self.dilated, at, self.tables.dilated, stamp)

    def extend(
        self, rows: np.ndarray, snake: Snake, keys: np.ndarray, place: int, *, core: bool = False
    ) -> np.ndarray:
        """Try to add one paddle to `snake` in each of the images `rows` (n,).

        The last paddle enters the masks when its follower is found, so that it is never in its own
        follower's way.

        Args:
            rows: images.
            snake: is moved on where a paddle was found.
            keys: (N,) random streams.
            place: first of `SEGMENT_TRIALS` words to use.
            core: see `add`.

        Returns:
            the images of `rows` where it was found.
        """
        tables = self.tables
        orientation = snake.orientation[rows]
        pivot = snake.pivot[rows] + tables.steps[orientation]
        free = SOLID - self.dilated.take((self.base[rows] + pivot)[:, None] + tables.ends)
        weight = np.cumsum(free * tables.weights.take(orientation, axis=0), axis=1, dtype=np.int32)
        alive = np.flatnonzero(weight[:, -1] > DEAD_END)
        rows = rows[alive]
        pivot = pivot[alive]
        weight = weight[alive]
        chosen, fits = self._choose(rows, pivot, weight, keys[rows], place)
        rows = rows[fits]
        pivot = pivot[fits]
        chosen = chosen[fits]
        self.add(rows, snake.start[rows], snake.stamp[rows], core=core)
        snake.pivot[rows] = pivot
        snake.orientation[rows] = DEGREES + chosen
        snake.start[rows] = pivot + tables.ends[chosen]
        snake.stamp[rows] = tables.stamp_of[DEGREES + chosen]
        return rows

    def _choose(
        self, rows: np.ndarray, pivot: np.ndarray, weight: np.ndarray, keys: np.ndarray, place: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """An end point each, (n,), and whether its paddle has room, (n,)."""
        tables = self.tables
        chosen = np.zeros(len(rows), np.int64)
        has_room = np.zeros(len(rows), bool)
        open_ = np.arange(len(rows))
        for trial in range(SEGMENT_TRIALS):
            drawn = below(weight[open_, -1], keys[open_], place + trial)
            end = (weight[open_] <= drawn[:, None]).sum(axis=1)
            at = self.base[rows[open_]] + pivot[open_] + tables.ends[end]
            fits = ~self._clashes(at, tables.stamp_of[DEGREES + end])
            chosen[open_] = end
            has_room[open_] = fits
            open_ = open_[~fits]
            if not len(open_):
                break
        return chosen, has_room

    def _clashes(self, at: np.ndarray, stamp: np.ndarray) -> np.ndarray:
        core = self.tables.core
        return np.any(
            self.mask.take(at[:, None] + core.places[stamp]) >= core.levels[stamp], axis=1
        )


def lay(flat: np.ndarray, at: np.ndarray, stamps: Stamps, stamp: np.ndarray) -> None:
    """Raise `flat` to the levels of one stamp at each of the flat positions `at` (n,), all in
    different images.
    """
    places = at[:, None] + stamps.places[stamp]
    flat[places] = np.maximum(flat.take(places), stamps.levels[stamp])
