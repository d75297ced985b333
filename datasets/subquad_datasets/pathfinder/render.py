"""From paddles and tips to bytes: brightest of everything, then stretched to 0..255.

Letters: N images, H height and width, R reach of a marker.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from subquad_datasets.pathfinder.canvas import lay
from subquad_datasets.pathfinder.distractors import Distractors
from subquad_datasets.pathfinder.drawing import ANTIALIAS, Drawing
from subquad_datasets.pathfinder.lanczos import reduce_image
from subquad_datasets.pathfinder.pairs import Pairs
from subquad_datasets.pathfinder.tables import SOLID, Stamps, Tables

MARKER_CONTRAST = 100
"""Percent; the contrasts of a `Drawing` are relative to it."""

_LOBES = 3


class Renderer:
    """Draws images for one `Drawing` and one margin."""

    def __init__(self, drawing: Drawing, tables: Tables):
        self.tables = tables
        self.target = _bright(tables.line, drawing.target_contrast)
        self.distractor = _bright(tables.line, drawing.distractor_contrast)
        self.markers = Markers.of(drawing)

    def render(self, pairs: Pairs, distractors: Distractors, marked: np.ndarray) -> np.ndarray:
        """(N, H, H) uint8.

        Args:
            pairs: the two snakes of each image.
            distractors: the short ones.
            marked: (N, 2) flat positions of the markers.
        """
        tables = self.tables
        count = len(marked)
        size = len(tables.border)
        canvas = np.zeros(count * size, dtype=np.uint16)
        base = np.arange(count) * size
        for which in np.ndindex(pairs.start.shape[1:]):
            lay(canvas, base + pairs.start[:, *which], self.target, pairs.stamp[:, *which])
        for which in np.ndindex(distractors.start.shape[1:]):
            rows = np.flatnonzero(distractors.drawn[:, which[0]])
            lay(
                canvas,
                base[rows] + distractors.start[rows, *which],
                self.distractor,
                distractors.stamp[rows, *which],
            )
        image = canvas.reshape(count, tables.pitch, tables.pitch)
        for marker in marked.T:
            self.markers.add(image, *tables.split(marker), tables.rim)
        window = slice(tables.rim, tables.rim + tables.window)
        return stretch(image[:, window, window].astype(np.int64))


def stretch(values: np.ndarray) -> np.ndarray:
    """(N, H, H) uint8 of integers (N, H, H): the smallest of an image becomes 0, its largest
    255, halves go up.
    """
    low, high = (part(axis=(1, 2), keepdims=True) for part in (values.min, values.max))
    span = high - low
    rounded = (2 * SOLID * (values - low) + span) // (2 * span)
    return rounded.astype(np.uint8)


@dataclass(frozen=True)
class Markers:
    """Discs, by where they stand: reduced near a border an image looks a little different (as
    upstream).

    Attributes:
        window: H.
        reach: R, pixels around the centre that a disc can change.
        patches: (2 R + 1, 2 R + 1, 2 R + 1, 2 R + 1) uint16: by place of the centre (y, x), then
            the pixels around it. Places below R are distances from the first border, those above R
            from the other, R is anywhere between.
    """

    window: int
    reach: int
    patches: np.ndarray

    @classmethod
    def of(cls, drawing: Drawing) -> Markers:
        reach = math.ceil(drawing.marker_radius) + _LOBES
        side = 2 * reach + 1
        patches = np.zeros((side,) * 4, dtype=np.uint16)
        for y, x in np.ndindex(side, side):
            patches[y, x] = _patch(y, x, reach, drawing.marker_radius)
        return cls(drawing.window, reach, patches * MARKER_CONTRAST)

    def add(self, image: np.ndarray, y: np.ndarray, x: np.ndarray, rim: int) -> None:
        """Raise images (N, pitch, pitch) to a disc at (y, x) each, (N,), in pixels of the image."""
        around = np.arange(-self.reach, self.reach + 1) + rim
        places = (
            np.arange(len(image))[:, None, None],
            (y[:, None] + around)[:, :, None],
            (x[:, None] + around)[:, None],
        )
        image[places] = np.maximum(image[places], self.patches[self._place(y), self._place(x)])

    def _place(self, at: np.ndarray) -> np.ndarray:
        """(N,) places on one axis."""
        return np.minimum(at, self.reach) + np.maximum(at - (self.window - 1 - self.reach), 0)


def marker_image(window: int, centre: tuple[int, int], radius: float) -> np.ndarray:
    """(H, H) uint8: a disc around the pixel `centre`, drawn enlarged and reduced."""
    span = np.arange(window * ANTIALIAS)
    y, x = (span - part * ANTIALIAS for part in centre)
    disc = (y * y)[:, None] + x * x <= (radius * ANTIALIAS) ** 2
    return reduce_image(np.where(disc, SOLID, 0).astype(np.uint8), window)


def _patch(y: int, x: int, reach: int, radius: float) -> np.ndarray:
    """(2 R + 1, 2 R + 1) around a disc in the smallest window that has all places; 0 outside of
    it.
    """
    image = np.pad(marker_image(2 * reach + 1, (y, x), radius), reach)
    side = 2 * reach + 1
    return image[y : y + side, x : x + side]


def _bright(stamps: Stamps, percent: int) -> Stamps:
    return Stamps(stamps.places, (stamps.levels.astype(np.uint16) * percent).astype(np.uint16))
