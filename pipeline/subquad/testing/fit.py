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

SLIGHT = 0.01
"""A share of the count that an L log L term may have at the longest length without being held against L: a sort of one
number for each token, say. It stays below 3 % at every length that fits into a memory."""

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
    models = {name: _nearest(lengths, y, ("L", name)) for name in CLASSES}
    residuals = {name: model.distance for name, model in models.items()}
    exponent = _exponent(lengths, y)
    return Fit(_smallest(models) or _mixed(lengths, y) or (MORE if exponent > 2 else None), residuals, exponent)


@dataclass(frozen=True)
class _Model:
    """A mixture: its largest relative distance from a count, and its last term's share of the last count."""

    distance: float
    share: float


def _smallest(models: dict[str, _Model]) -> str | None:
    for place, name in enumerate(CLASSES):
        own, much = models[name].distance, BETTER if place else BETTER_THAN_L
        if own <= EXACT or (own <= NEAR and _best_rival(models, place) * much > own):
            return name
    return None


def _best_rival(models: dict[str, _Model], place: int) -> float:
    """The distance of the nearest higher class; none where that is a slight L log L, which all of them mimic."""
    nearest = min(CLASSES[place + 1 :], key=lambda name: models[name].distance, default=None)
    if nearest is None or (nearest == "L log L" and models[nearest].share <= SLIGHT):
        return math.inf
    return models[nearest].distance


def _mixed(lengths: Sequence[int], y: np.ndarray) -> str | None:
    """The smallest class that fits with the terms of all classes below it: L^2 beside L log L, say."""
    fits = (_nearest(lengths, y, CLASSES[:count]).distance <= NEAR for count in range(1, len(CLASSES) + 1))
    return next((name for name, near in zip(CLASSES, fits, strict=True) if near), None)


def _nearest(lengths: Sequence[int], y: np.ndarray, names: Sequence[str]) -> _Model:
    """The nearest non-negative mixture of 1 and the named terms."""
    terms = [lambda _: 1.0, *(TERMS[name] for name in dict.fromkeys(names))]
    columns = [np.array([term(length) for length in lengths]) / y for term in terms]
    places = range(len(columns))
    chosen = (subset for count in range(1, len(columns) + 1) for subset in combinations(places, count))
    return min((_mixture(columns, subset) for subset in chosen), key=lambda model: model.distance)


def _mixture(columns: Sequence[np.ndarray], chosen: Sequence[int]) -> _Model:
    """Least squares of some columns against ones; infinitely far where a coefficient is negative."""
    matrix = np.stack([columns[place] for place in chosen], 1)
    scale = np.abs(matrix).max(0)
    solution = np.linalg.lstsq(matrix / scale, np.ones(len(matrix)), rcond=None)[0]
    if (solution < 0).any():
        return _Model(math.inf, 0.0)
    parts = matrix / scale * solution
    return _Model(
        float(np.abs(parts.sum(1) - 1).max()), float(parts[-1, -1]) if chosen[-1] == len(columns) - 1 else 0.0
    )


def _exponent(lengths: Sequence[int], y: np.ndarray) -> float:
    half = len(lengths) // 2
    x = np.log(np.asarray(lengths, dtype=float)[half:])
    return float(np.polyfit(x, np.log(y[half:]), 1)[0])
