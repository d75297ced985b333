"""Which class of growth exact counts belong to: L, L log L, L^1.5, L^2 or more.

A class fits where some non-negative mixture of {1, L, f(L)} is near every count. Counts of a program are exact but for
padding to convenient lengths, which adds a few percent without order. So the smallest class that is near enough
(`NEAR`) is right, unless a higher one is nearer by so much (`BETTER`) that the rest was its term, no accident: a small
L log L beside a large L leaves 1 % without that term and nothing with it.

Letters: L length, f the class's own term.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

NEAR = 0.04
"""Largest relative distance from a count that a class may have: roundings up of FFT lengths and block sizes."""

BETTER_THAN_L, BETTER = 6.0, 2.0
"""A higher class that is nearer by such a factor takes the place of a lower one that is near enough. L has one term
less, so that any other class is somewhat nearer by accident."""

EXACT = 1e-9
"""A distance of rounding errors: nothing is left for a higher class to explain."""

MIN_LENGTHS = 5

TERMS: dict[str, Callable[[float], float]] = {
    "L": float,
    "L log L": lambda length: length * math.log2(length),
    "L^1.5": lambda length: length**1.5,
    "L^2": lambda length: length**2,
}
CLASSES = tuple(TERMS)
MORE = "more than L^2"
ORDER = (*CLASSES, MORE)


@dataclass(frozen=True)
class Fit:
    """What counts grow like.

    Attributes:
        growth: one of `ORDER`, or None where no class fits and the growth is not above L^2 either.
        residuals: the largest relative distance of each class from a count.
        exponent: slope of log count over log L between the longer half of the lengths.
    """

    growth: str | None
    residuals: dict[str, float]
    exponent: float

    def __str__(self) -> str:
        return f"{self.growth or 'no class'} (exponent {self.exponent:.2f})"


def above(growth: str, limit: str) -> bool:
    """Whether one class of growth is higher than another."""
    return ORDER.index(growth) > ORDER.index(limit)


def fit(lengths: Sequence[int], counts: Sequence[float]) -> Fit:
    """The class of exact counts; nothing at all counts as L.

    Args:
        lengths: at least `MIN_LENGTHS`, rising.
        counts: one for each, >= 0.

    Raises:
        ValueError: too few, or not one count for each length.
    """
    if len(lengths) != len(counts) or len(set(lengths)) < MIN_LENGTHS:
        raise ValueError(f"needs counts at {MIN_LENGTHS} lengths or more, got {len(counts)} at {sorted(set(lengths))}")
    if not any(counts):
        return Fit("L", dict.fromkeys(CLASSES, 0.0), 0.0)
    y = np.maximum(np.asarray(counts, dtype=float), 1.0)
    residuals = {name: _distance(lengths, y, ("L", name)) for name in CLASSES}
    exponent = _exponent(lengths, y)
    return Fit(_smallest(residuals) or _mixed(lengths, y) or (MORE if exponent > 2 else None), residuals, exponent)


def _smallest(residuals: dict[str, float]) -> str | None:
    for place, name in enumerate(CLASSES):
        own, much = residuals[name], BETTER if place else BETTER_THAN_L
        best_above = min((residuals[higher] for higher in CLASSES[place + 1 :]), default=math.inf)
        if own <= EXACT or (own <= NEAR and best_above * much > own):
            return name
    return None


def _mixed(lengths: Sequence[int], y: np.ndarray) -> str | None:
    """The smallest class that fits with the terms of all classes below it: L^2 beside L log L, say."""
    return next((name for n, name in enumerate(CLASSES, 1) if _distance(lengths, y, CLASSES[:n]) <= NEAR), None)


def _distance(lengths: Sequence[int], y: np.ndarray, names: Sequence[str]) -> float:
    """The largest relative distance of the nearest non-negative mixture of 1 and the named terms."""
    columns = [
        np.ones(len(y)),
        *(np.array([TERMS[name](length) for length in lengths]) for name in dict.fromkeys(names)),
    ]
    columns = [column / y for column in columns]
    return min(
        (_of_subset(chosen) for n in range(1, len(columns) + 1) for chosen in combinations(columns, n)), default=1.0
    )


def _of_subset(columns: Sequence[np.ndarray]) -> float:
    """Least squares over these columns against ones; infinite where a coefficient is negative."""
    matrix = np.stack(columns, 1)
    scale = np.abs(matrix).max(0)
    solution = np.linalg.lstsq(matrix / scale, np.ones(len(matrix)), rcond=None)[0]
    if (solution < 0).any():
        return math.inf
    return float(np.abs(matrix / scale @ solution - 1).max())


def _exponent(lengths: Sequence[int], y: np.ndarray) -> float:
    half = len(lengths) // 2
    x = np.log(np.asarray(lengths, dtype=float)[half:])
    return float(np.polyfit(x, np.log(y[half:]), 1)[0])
