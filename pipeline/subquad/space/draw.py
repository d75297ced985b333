"""A random value of a dimension as a pure function of (seed, number, dimension): no state, so nothing to restore.

Raw words of the counter-based Philox generator, whose stability NumPy promises over versions. The counter holds a hash
of the dimension's name, so that a dimension keeps its values when others join or leave the space.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np

from subquad.space.dimension import Dimension


def word(seed: int, number: int, path: str, attempt: int) -> int:
    """64 random bits.

    Args:
        seed: of the search, 0 to 2**64 - 1.
        number: of the point, from 0.
        path: the dimension.
        attempt: how many points of this number were refused before.
    """
    name = int.from_bytes(hashlib.sha256(path.encode()).digest()[:8], "little")
    counter = np.array([0, 0, name, attempt], dtype=np.uint64)
    key = np.array([seed, number], dtype=np.uint64)
    return int(np.random.Philox(counter=counter, key=key).random_raw(1)[0])


def value(dimension: Dimension, bits: int) -> Any:
    """The value that 64 random bits choose.

    Those of continuous ranges have few digits, so that a table shows them as they are: steps of a millionth of the
    range, for a log range six digits.
    """
    if dimension.is_listed:
        return dimension.values[_below(len(dimension.values), bits)]
    if dimension.kind == "int":
        return _whole(dimension, bits)
    if dimension.log:
        return tidy(dimension, math.exp(_between(math.log(dimension.low), math.log(dimension.high), bits)))
    return tidy(dimension, _between(dimension.low, dimension.high, bits))


def tidy(dimension: Dimension, drawn: float) -> float:
    """A value of a continuous range with few digits, still in it."""
    if dimension.log:
        kept = float(f"{drawn:.6g}")
    else:
        kept = round(drawn, 6 - math.floor(math.log10(dimension.high - dimension.low)))
    return min(max(kept, dimension.low), dimension.high)


def _whole(dimension: Dimension, bits: int) -> int:
    if dimension.log:
        drawn = round(math.exp(_between(math.log(dimension.low - 0.5), math.log(dimension.high + 0.5), bits)))
        return int(min(max(drawn, dimension.low), dimension.high))
    assert dimension.count is not None
    return int(dimension.low) + dimension.step * _below(dimension.count, bits)


def _below(count: int, bits: int) -> int:
    """One of 0 .. count-1; what is left of uniformity is 1 part in 2**64 / count."""
    return (bits * count) >> 64


def _between(low: float, high: float, bits: int) -> float:
    return low + (high - low) * ((bits >> 11) * 2.0**-53)
