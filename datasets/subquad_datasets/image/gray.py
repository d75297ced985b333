"""From colours to gray values. ... any shape, N images."""

from __future__ import annotations

import numpy as np


def to_gray(colours: np.ndarray) -> np.ndarray:
    """`floor((0.2989 R + 0.5870 G + 0.1140 B) / 255 * 255.5)`, TensorFlow's way through floating
    point and back.

    Computed in integers, so the same on every machine. A float32 evaluation differs in 237 of the
    2^24 colours, by one.

    Args:
        colours: (..., 3) uint8, red, green, blue.

    Returns:
        (...,) uint8.
    """
    red, green, blue = (colours[..., channel].astype(np.int64) for channel in range(3))
    weighted = 2989 * red + 5870 * green + 1140 * blue
    return (weighted * 511 // 5_100_000).astype(np.uint8)
