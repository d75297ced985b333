"""Where the two discs stand, seen in the pixels, and what that alone says of the label: a shortcut
past the curves.

Two ends of one snake lie otherwise to each other, and to the border, than ends of two snakes do.
Letters: N images, L = H * H pixels, row by row.
"""

from __future__ import annotations

import numpy as np

from subquad_datasets.pathfinder.render import marker_image

MAX_IMAGES = 50_000
"""Of TRAIN that are looked at: more hardly tell more, and cost seconds."""

_DIM = 50
_AT_ONCE = 4_000_000
"""Pixels whose disc-likeness is held at once."""


def find_discs(pixels: np.ndarray, size: int, radius: float) -> np.ndarray:
    """(N, 4) uint8, y and x of one disc and then of the other, in any order, of images (N, L) with
    H = `size`.

    A disc is bright all over, a line is not: nine points of a disc, each relative to what it has
    there, and the darkest of them counts.
    """
    step = max(1, int(0.6 * radius))
    discs = np.empty((len(pixels), 4), np.uint8)
    for start in range(0, len(pixels), max(1, _AT_ONCE // size**2)):
        rows = slice(start, start + max(1, _AT_ONCE // size**2))
        bright = _disc_likeness(pixels[rows].reshape(-1, size, size), step, radius)
        for disc in (0, 2):
            y, x = np.divmod(bright.reshape(len(bright), -1).argmax(axis=1), size)
            discs[rows, disc] = y
            discs[rows, disc + 1] = x
            _blot(bright, y, x, 2 * step)
    return discs


def _disc_likeness(images: np.ndarray, step: int, radius: float) -> np.ndarray:
    """(N, H, H) uint16, high at the centres of discs."""
    size = images.shape[1]
    reach = 4 * step
    disc = marker_image(2 * reach + 1, (reach, reach), radius).astype(np.uint16)
    padded = np.pad(images, ((0, 0), (step, step), (step, step))).astype(np.uint16)
    bright = np.full(images.shape, np.iinfo(np.uint16).max)
    for y in (0, step, 2 * step):
        for x in (0, step, 2 * step):
            if (level := disc[reach - step + y, reach - step + x]) >= _DIM:
                np.minimum(
                    bright,
                    padded[:, y : y + size, x : x + size] * np.uint16(255) // level,
                    out=bright,
                )
    return bright


def _blot(bright: np.ndarray, y: np.ndarray, x: np.ndarray, reach: int) -> None:
    """Darken what is around (y, x), (N,) each."""
    around = np.arange(-reach, reach + 1)
    last = bright.shape[1] - 1
    rows, columns = (np.clip(at[:, None] + around, 0, last) for at in (y, x))
    bright[np.arange(len(bright))[:, None, None], rows[:, :, None], columns[:, None]] = 0


def guess(discs: np.ndarray, labels: np.ndarray, others: np.ndarray) -> np.ndarray:
    """(n,) 0 or 1: the commoner label of the images of TRAIN whose discs stand nearest to those
    `asked` for, (n, 4).

    Of N images the nearest N^0.4, either disc being the first, by their four coordinates and twice
    the distance of the two: as good as boosted trees for 1,600 to 54,000 images of 32 to 256 pixels
    (docs/measurements.md).

    Args:
        discs: (N, 4) of TRAIN.
        labels: (N,) of TRAIN.
    """
    from scipy.spatial import KDTree

    discs = discs[:MAX_IMAGES]
    labels = labels[:MAX_IMAGES]
    both_ways = KDTree(np.concatenate([_features(discs), _features(discs[:, [2, 3, 0, 1]])]))
    _, near = both_ways.query(_features(others), k=max(2, round(len(discs) ** 0.4)))
    return (labels[near % len(discs)].mean(axis=1) > 0.5).astype(np.int64)


def _features(discs: np.ndarray) -> np.ndarray:
    """(N, 5) float64."""
    places = discs.astype(np.float64)
    vertical = places[:, 0] - places[:, 2]
    horizontal = places[:, 1] - places[:, 3]
    apart = np.hypot(vertical, horizontal)
    return np.column_stack([places, 2 * apart])
