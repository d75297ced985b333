"""The stand-in for CIFAR-10: ten shapes in gray, drawn in blocks with integers only.

Place, size, direction, contrast and background of a shape are random, and noise lies over
everything. A shape is as often brighter as it is darker than its background, so that neither mean
gray nor any single pixel tells the class. Letters: N images, S = side.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap

from subquad.security.limits import allow_disk, allow_memory
from subquad_datasets.image.split import PIXELS, write_labels
from subquad_datasets.invented import Stream, balanced, below, source

VERSION = 1
"""Of what is drawn: raise it where the same seed would give other images."""

_PIXEL_BYTES = 48
"""That drawing a pixel takes at a time."""
BLOCK = 500
"""Images drawn at once, a multiple of ten; another number is another data set."""

_DIRECTIONS = 256
_COSINE = np.array(
    [round(1024 * math.cos(2 * math.pi * step / _DIRECTIONS)) for step in range(_DIRECTIONS)]
)
_Shape = Callable[[np.ndarray, np.ndarray], np.ndarray]


def _wide(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.maximum(abs(u), abs(v))


_SHAPES: dict[str, _Shape] = {
    "bar": lambda u, v: (abs(u) < 100) & (abs(v) < 30),
    "bars": lambda u, v: (_wide(u, v) < 90) & (abs(v) > 30),
    "chequer": lambda u, v: (_wide(u, v) < 90) & ((u > 0) != (v > 0)),
    "corner": lambda u, v: (_wide(u, v) < 90) & ((u < -40) | (v < -40)),
    "cross": lambda u, v: (_wide(u, v) < 100) & (np.minimum(abs(u), abs(v)) < 28),
    "disc": lambda u, v: u**2 + v**2 < 90**2,
    "frame": lambda u, v: (_wide(u, v) < 85) & (_wide(u, v) > 50),
    "ring": lambda u, v: (u**2 + v**2 < 100**2) & (u**2 + v**2 > 60**2),
    "square": lambda u, v: _wide(u, v) < 80,
    "triangle": lambda u, v: (v > -60) & (v + 2 * abs(u) < 100),
}
"""Whether a point belongs to a shape, by its coordinates in per cent of the size."""

CLASSES = tuple(_SHAPES)


@dataclass(frozen=True)
class GeneratedImages:
    """The images of all splits, in the place of files.

    Attributes:
        seed: of the images.
        sizes: images of "train" and of "test", independent streams; more only append.
        side: S.
    """

    seed: int
    sizes: dict[Stream, int]
    side: int

    def find(self, split: Stream) -> bool:
        """Whether there are images of a split."""
        return split in self.sizes

    def fingerprint(self, split: Stream) -> str:
        """What decides every byte."""
        return f"generated {VERSION}, seed {self.seed}, {self.sizes[split]} images"

    def pack(self, folder: Path, split: Stream) -> dict[str, Any]:
        """Write a split's images; a build of `prepare_once` with the facts of `Source.pack`."""
        size = self.sizes[split]
        allow_disk(f"{size:,} images of side {self.side:,}", size * self.side**2, folder)
        allow_memory(f"{BLOCK} images of side {self.side:,}", _PIXEL_BYTES * BLOCK * self.side**2)
        pixels = open_memmap(folder / PIXELS, mode="w+", dtype=np.uint8, shape=(size, self.side**2))
        labels = np.zeros(size, dtype=np.int64)
        for first in range(0, size, BLOCK):
            rows = slice(first, min(first + BLOCK, size))
            gray, drawn = draw_block(self.seed, split, first // BLOCK, self.side)
            pixels[rows] = gray[: size - first]
            labels[rows] = drawn[: size - first]
        pixels.flush()
        write_labels(folder, labels)
        counts = np.bincount(labels, minlength=len(CLASSES)).tolist()
        note = "stand-in data: generated images of ten shapes, not CIFAR-10"
        return {"classes": list(CLASSES), "counts": counts, "ordered": True, "note": note}


def draw_block(seed: int, split: Stream, number: int, side: int) -> tuple[np.ndarray, np.ndarray]:
    """(BLOCK, S * S) uint8 gray values and (BLOCK,) labels: a function of the arguments alone."""
    drawn = source(seed, split, number)
    labels = balanced(drawn.random_raw(BLOCK), len(CLASSES))
    place, size, direction, contrast, ground = drawn.random_raw(5 * BLOCK).reshape(5, BLOCK, 1)
    u, v = _coordinates(place, size, below(direction, _DIRECTIONS), side)
    inside = np.empty(u.shape, dtype=bool)
    for label, shape in enumerate(_SHAPES.values()):
        mine = labels == label
        inside[mine] = shape(u[mine], v[mine])
    step = (40 + below(contrast, 60)) * np.where(contrast & np.uint64(1), 1, -1)
    gray = (
        100 + below(ground, 56) + step * inside + _noise(drawn, BLOCK * side**2).reshape(BLOCK, -1)
    )
    return np.clip(gray, 0, 255).astype(np.uint8), labels


def _coordinates(
    place: np.ndarray, size: np.ndarray, direction: np.ndarray, side: int
) -> tuple[np.ndarray, np.ndarray]:
    """(N, S * S) int64 each: pixels along and across each shape's direction, in per cent of its
    size.

    The size lies between 7 and 11 of 32 pixels, the centre in the middle half of the image; both in
    1/1024 of a pixel.
    """
    radius = side * (224 + below(size, 129))
    row, column = (side * (256 + below(words, 513)) for words in (place, place << np.uint64(32)))
    pixel = np.arange(side**2)
    y = 1024 * (pixel // side) - row
    x = 1024 * (pixel % side) - column
    cosine = _COSINE[direction]
    sine = _COSINE[direction - _DIRECTIONS // 4]
    return 100 * (x * cosine + y * sine) // (1024 * radius), 100 * (y * cosine - x * sine) // (
        1024 * radius
    )


def _noise(drawn: np.random.Philox, count: int) -> np.ndarray:
    """(count,) int64, triangular between -32 and 32: two bytes of a word make one."""
    pairs = (
        drawn.random_raw(-(-count // 4)).astype("<u8").view(np.uint8)[: 2 * count].reshape(-1, 2)
    )
    return pairs.sum(axis=1, dtype=np.int64) // 8 - 32
