"""Reduce 8-bit images with a Lanczos kernel, in integers: bit for bit what Pillow's `resize` gives.

Reference: Lanczos kernel of three lobes; fixed point with 22 fractional bits and rounding to 8 bits
after either pass, as in Pillow's `Resample.c`, through which the original images were drawn.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

_LOBES = 3
_BITS = 22


def reduce_image(image: np.ndarray, size: int) -> np.ndarray:
    """(size, size) uint8 of a square (n, n) uint8 image, n >= size: columns first, then rows."""
    weights = _weights(len(image), size)
    return _rounded(weights @ _rounded(image.astype(np.int64) @ weights.T))


def _rounded(sums: np.ndarray) -> np.ndarray:
    return ((sums + (1 << (_BITS - 1))) >> _BITS).clip(0, 255).astype(np.uint8)


@cache
def _weights(large: int, small: int) -> np.ndarray:
    """(small, large) int64, 1.0 being 2**22. Every row sums to about 1, at the borders too."""
    scale = large / small
    table = np.zeros((small, large), dtype=np.int64)
    for row in range(small):
        centre = (row + 0.5) * scale
        first = max(0, int(centre - _LOBES * scale + 0.5))
        last = min(large, int(centre + _LOBES * scale + 0.5))
        values = [_kernel((place - centre + 0.5) / scale) for place in range(first, last)]
        total = sum(values)
        table[row, first:last] = [_fixed(value / total) for value in values]
    return table


def _fixed(value: float) -> int:
    return int(math.copysign(0.5, value) + value * (1 << _BITS))


def _kernel(x: float) -> float:
    if -_LOBES <= x < _LOBES:
        return _sinc(x) * _sinc(x / _LOBES)
    return 0.0


def _sinc(x: float) -> float:
    if x:
        return math.sin(math.pi * x) / (math.pi * x)
    return 1.0
