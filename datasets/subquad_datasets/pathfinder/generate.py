"""Whole images with labels: two snakes, distractors, and two markers on one snake (label 1) or on
both (label 0).

An image is a pure function of (drawing, seed, split, index). Letters: N images, H height and width.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from subquad_datasets.pathfinder.canvas import Canvas
from subquad_datasets.pathfinder.distractors import Distractors, draw_distractors
from subquad_datasets.pathfinder.drawing import Drawing
from subquad_datasets.pathfinder.pairs import PairDrawer, Pairs
from subquad_datasets.pathfinder.render import Renderer
from subquad_datasets.pathfinder.stream import below, child_keys, image_keys
from subquad_datasets.pathfinder.tables import Tables, build_tables

MARGIN_WORD = 1
MARKER_WORD = 2
"""Words of an image's stream."""

DISTRACTOR_STREAM = 1 << 40
LABEL_STREAM = 1 << 41
"""Numbers of streams below it; attempts at the two snakes are numbered from 0."""


@dataclass(frozen=True)
class Scenes:
    """What N images of one margin show.

    Attributes:
        tables: of their margin.
        pairs: the two snakes.
        distractors: the short ones.
        marked: (N, 2) flat positions of the markers.
    """

    tables: Tables
    pairs: Pairs
    distractors: Distractors
    marked: np.ndarray


def draw_images(
    drawing: Drawing, seed: int, split: int, indices: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Images `indices` (N,) of a split.

    Returns:
        (N, H * H) uint8 pixels, row by row, and (N,) uint8 labels.
    """
    labels = draw_labels(seed, split, indices)
    keys = image_keys(seed, split, indices)
    return draw_marked(drawing, keys, labels, below(2, keys, MARKER_WORD)), labels


def draw_marked(
    drawing: Drawing, keys: np.ndarray, labels: np.ndarray, first: np.ndarray
) -> np.ndarray:
    """(N, H * H) uint8: images with these streams and labels; a disc lies on the first tip of
    snake `first` (N,).
    """
    pixels = np.empty((len(keys), drawing.window**2), dtype=np.uint8)
    for margin, rows in _by_margin(drawing, keys):
        scenes = draw_scenes(drawing, margin, keys[rows], labels[rows], first[rows])
        images = _renderer(drawing, margin).render(scenes.pairs, scenes.distractors, scenes.marked)
        pixels[rows] = images.reshape(len(rows), -1)
    return pixels


def draw_tips(drawing: Drawing, keys: np.ndarray) -> np.ndarray:
    """(N, 2, 2, 2) int64: of the images with these streams each snake's first and last tip, y
    and x.
    """
    tips = np.empty((len(keys), 2, 2, 2), dtype=np.int64)
    for margin, rows in _by_margin(drawing, keys):
        drawer = _pair_drawer(drawing, margin)
        ends = drawer.draw(keys[rows]).start[:, :, [0, -1]]
        tips[rows] = np.stack(drawer.tables.split(ends), axis=-1)
    return tips


def _by_margin(drawing: Drawing, keys: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Margins, each with the rows of its images."""
    margin = below(len(drawing.margins), keys, MARGIN_WORD)
    for number, value in enumerate(drawing.margins):
        if len(rows := np.flatnonzero(margin == number)):
            yield value, rows


def draw_labels(seed: int, split: int, indices: np.ndarray) -> np.ndarray:
    """(N,) uint8: of the images 2 i and 2 i + 1 one has label 0 and one label 1, which of them
    is random.
    """
    of_pairs = child_keys(
        image_keys(seed, split, indices // 2), np.full(len(indices), LABEL_STREAM)
    )
    return (below(2, of_pairs, 0) ^ (indices & 1)).astype(np.uint8)


def draw_scenes(
    drawing: Drawing,
    margin: int,
    keys: np.ndarray,
    labels: np.ndarray,
    first: np.ndarray | None = None,
) -> Scenes:
    """What the images with streams `keys` (N,) show, all with this margin; `first` as for
    `draw_marked`.
    """
    drawer = _pair_drawer(drawing, margin)
    pairs = drawer.draw(keys)
    canvas = room_left(drawer.tables, pairs)
    distractors = draw_distractors(
        drawing, canvas, child_keys(keys, np.full(len(keys), DISTRACTOR_STREAM))
    )
    rows = np.arange(len(keys))
    if first is None:
        first = below(2, keys, MARKER_WORD)
    other = np.where(labels == 1, first, 1 - first)
    marked = np.stack([pairs.start[rows, first, 0], pairs.start[rows, other, -1]], axis=1)
    return Scenes(drawer.tables, pairs, distractors, marked)


def room_left(tables: Tables, pairs: Pairs) -> Canvas:
    """The masks of N pairs. The last paddle of each first snake is not in them (as upstream)."""
    count, _, paddles = pairs.start.shape
    canvas = Canvas(tables, count)
    rows = np.arange(count)
    for snake, paddle in np.ndindex(2, paddles):
        if (snake, paddle) != (0, paddles - 1):
            canvas.add(rows, pairs.start[:, snake, paddle], pairs.stamp[:, snake, paddle])
    return canvas


@cache
def _pair_drawer(drawing: Drawing, margin: int) -> PairDrawer:
    return PairDrawer(drawing, build_tables(drawing, margin))


@cache
def _renderer(drawing: Drawing, margin: int) -> Renderer:
    return Renderer(drawing, _pair_drawer(drawing, margin).tables)
