"""What exact counts over rising lengths grow like.

A class of growth fits where some non-negative mixture of {1, L, f(L)} is near every count. Counts
of a program are exact but for padding to convenient lengths, which adds a few percent without
order. So the smallest class that is near enough (`NEAR`) is right, unless a higher one is nearer by
so much (`BETTER`) that the rest was its term, no accident: a small L log L beside a large L leaves
1 % without that term and nothing with it.

Letters: L length, f the class's own term.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

NEAR = 0.04
"""Largest relative distance from a count that a class may have: roundings up of FFT lengths and
block sizes.
"""

BETTER_THAN_L, BETTER = 6.0, 2.0
"""A higher class that is nearer by such a factor takes the place of a lower one that is near
enough. L has one term less, so that any other class is somewhat nearer by accident.
"""

EXACT = 1e-9
"""A distance of rounding errors: nothing is left for a higher class to explain."""

SLIGHT = 0.01
"""A share of the count that an L log L term may have at the longest length without being held
against L: a sort of one number for each token, say. It stays below 3 % at every length that fits
into a memory.
"""

TERMS: dict[str, Callable[[Any], Any]] = {
    "L": lambda length: length,
    "L log L": lambda length: length * np.log2(length),
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
        has_slight: whether a slight L log L term stands beside the L.
        exponent: slope of log count over log L between the longer half of the lengths.
    """

    growth: str | None
    residuals: dict[str, float]
    exponent: float
    has_slight: bool = False

    def __str__(self) -> str:
        return f"{self.growth or 'no class'} (exponent {self.exponent:.2f})"


def exceeds(growth: str, limit: str) -> bool:
    """Whether one class of growth is higher than another."""
    return ORDER.index(growth) > ORDER.index(limit)


def larger(first: Fit, second: Fit) -> str:
    """The higher class of two."""
    return max([str(fit.growth) for fit in (first, second)], key=ORDER.index)


def fit_growth(lengths: Sequence[int], counts: Sequence[float]) -> Fit:
    """The class of exact counts, >= 0, at five rising lengths or more; nothing at all
    counts as L.
    """
    if not any(counts):
        return Fit("L", dict.fromkeys(CLASSES, 0.0), 0.0)
    y = np.maximum(np.asarray(counts, dtype=float), 1.0)
    models = {name: _nearest(lengths, y, ("L", name)) for name in CLASSES}
    residuals = {name: distance for name, (distance, _) in models.items()}
    half = len(lengths) // 2
    exponent, _ = np.polyfit(np.log(lengths[half:]), np.log(y[half:]), 1).tolist()
    growth = _smallest(models)
    if growth is None:
        # the smallest class that fits with the terms of all below it: L^2 beside L log L, say
        for count, name in enumerate(CLASSES, 1):
            distance, _ = _nearest(lengths, y, CLASSES[:count])
            if distance <= NEAR:
                growth = name
                break
        else:
            growth = MORE if exponent > 2 else None
    linear = residuals["L"]
    is_nearer = linear > EXACT and residuals["L log L"] * BETTER_THAN_L < linear
    return Fit(growth, residuals, exponent, growth == "L" and is_nearer)


def _smallest(models: dict[str, tuple[float, float]]) -> str | None:
    """The smallest class that is near enough, unless the nearest higher one is nearer by so much.

    None of those is a slight L log L, which all higher classes mimic.
    """
    for place, name in enumerate(CLASSES):
        own, _ = models[name]
        if own <= EXACT:
            return name
        if own > NEAR:
            continue
        higher = CLASSES[place + 1 :]
        if not higher:
            return name
        rival = min(higher, key=lambda other: models[other])
        distance, share = models[rival]
        is_slight = rival == "L log L" and share <= SLIGHT
        if is_slight or distance * (BETTER_THAN_L if name == "L" else BETTER) > own:
            return name
    return None


def _nearest(lengths: Sequence[int], y: np.ndarray, names: Sequence[str]) -> tuple[float, float]:
    """The non-negative mixture of 1 and the named terms that is nearest by least squares, relative
    to the counts.

    Returns:
        its largest relative distance from a count, and its last term's share of the last count.
    """
    from scipy.optimize import nnls  # here: it takes half as long to import as torch

    ones = np.ones(len(y))
    terms = [TERMS[name](np.asarray(lengths, dtype=float)) for name in dict.fromkeys(names)]
    matrix = np.stack([ones, *terms], 1) / y[:, None]
    matrix /= matrix.max(0)
    weights, _ = nnls(matrix, ones)
    parts = matrix * weights
    return float(np.abs(parts.sum(1) - 1).max()), float(parts[-1, -1])
