"""Whether a mixer's time and memory grow as declared, proven from counts. No time is judged: it goes to the figures.

Counted at lengths that are powers of two, each time on a mixer built for that length: one forward and backward pass in
training mode and one in evaluation mode with padding, added. A claim has to be tight: the larger of FLOPs and bytes
must reach it, and neither may pass it.

A class of growth fits where some non-negative mixture of {1, L, f(L)} is near every count. Counts of a program are
exact but for padding to convenient lengths, which adds a few percent without order. So the smallest class that is near
enough (`NEAR`) is right, unless a higher one is nearer by so much (`BETTER`) that the rest was its term, no accident: a
small L log L beside a large L leaves 1 % without that term and nothing with it.

Letters: L length, f the class's own term.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import nnls

from subquad.cost import Count, count_pass
from subquad.errors import SubquadError
from subquad.testing.check import CheckFailed, Finding, NotProven, shows
from subquad.testing.subject import CheckSubject

LADDER = tuple(2**power for power in range(6, 17))
KEPT = 6
"""So many of the longest lengths that the limits below allow are judged: short ones are full of other terms, and a
mixer may do short sequences another way."""

LIMITS = {"flops": 3e10, "moved": 1.6e10, "operations": 4e4, "peak": 2.5e7}
"""What one length may cost, foretold from the two before it: a second or two, tensors of 100 MB."""

PATIENCE = 4.5
"""A mixer about to fail may cost so much more: it may have another way for the next length."""

SQUARE = 2**1.75
"""Growth of a tensor, length doubled, from which on it counts as an L x L one."""

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


@dataclass(frozen=True, kw_only=True)
class _Growth:
    """Counts over lengths.

    Attributes:
        lengths: rising.
        counts: one for each.
        seconds: CPU time of each, for the reader.
    """

    lengths: tuple[int, ...]
    counts: tuple[Count, ...]
    seconds: tuple[float, ...]

    @property
    def flops(self) -> _Fit:
        """What the FLOPs grow like."""
        return self._fit("flops")

    @property
    def moved(self) -> _Fit:
        """What the bytes grow like."""
        return self._fit("moved")

    def _fit(self, name: str) -> _Fit:
        """Over all lengths, or else over the longest five."""
        counts = [getattr(one, name) for one in self.counts]
        found = _fit_growth(self.lengths, counts)
        return found if found.growth else _fit_growth(self.lengths[-MIN_LENGTHS:], counts[-MIN_LENGTHS:])

    @property
    def unknown(self) -> tuple[str, ...]:
        """Operations nobody can count."""
        return tuple(sorted({name for one in self.counts for name in one.unknown}))

    @property
    def squares(self) -> dict[str, int]:
        """Operations whose largest tensor grows like L^2, and its elements at the longest length; largest first."""
        before, last, end = (one.largest for one in self.counts[-3:])
        found = {
            name: size
            for name, size in end.items()
            if size >= SQUARE * last.get(name, size) and last[name] >= SQUARE * before.get(name, size)
        }
        return dict(sorted(found.items(), key=lambda one: -one[1]))


def _growth_of(subject: CheckSubject) -> _Growth:
    """Counts of a subject, made once.

    Raises:
        NotProven: it takes too few lengths.
    """
    kept = _counted.get(id(subject))
    if kept is None:
        if len(_counted) >= _MOST_KEPT:
            _counted.pop(next(iter(_counted)))
        # The subject is kept too, so that its id is not given to another one.
        kept = _counted[id(subject)] = (subject, _climb(subject))
    return kept[1]


_counted: dict[int, tuple[CheckSubject, _Growth]] = {}
_MOST_KEPT = 32


def _climb(subject: CheckSubject) -> _Growth:
    ladder = [length for length in LADDER if subject.at_most(length) == length]
    if len(ladder) < MIN_LENGTHS:
        raise NotProven(
            f"takes {subject.facts.max_length} positions at most: {len(ladder)} lengths to count at "
            f"({', '.join(map(str, LADDER[:MIN_LENGTHS]))}, ...), and {MIN_LENGTHS} are needed"
        )
    counts: list[Count] = []
    seconds: list[float] = []
    for length in ladder:
        if len(counts) >= MIN_LENGTHS and _too_much(ladder, counts, subject.facts.complexity):
            break
        start = time.process_time()
        counts.append(_count_at(subject, length))
        seconds.append(round(time.process_time() - start, 4))
    lengths = ladder[: len(counts)]
    return _Growth(lengths=tuple(lengths[-KEPT:]), counts=tuple(counts[-KEPT:]), seconds=tuple(seconds[-KEPT:]))


def _too_much(ladder: list[int], counts: list[Count], declared: str) -> bool:
    """Whether the next length is likely to cost more than it may."""
    before, last = counts[-2:]
    foretold = {name: getattr(last, name) ** 2 / max(getattr(before, name), 1) for name in LIMITS}
    found = _fit_growth(ladder[: len(counts)], [one.flops for one in counts]).growth
    patience = PATIENCE if found and _exceeds(found, declared) else 1.0
    return any(foretold[name] > patience * limit for name, limit in LIMITS.items())


def _count_at(subject: CheckSubject, length: int) -> Count:
    """Both passes at one length; an eighth of the tokens is padding in the second."""
    mixer = subject.build(max_len=length, dtype=torch.float32)
    x = subject.tokens(1, length, dtype=torch.float32)
    keep = torch.arange(length)[None] < length - length // 8
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            return count_pass(mixer.train(), x) + count_pass(mixer.eval(), x, keep=keep)
        except SubquadError:
            raise
        except Exception as error:  # whether the mixer runs at all is for other checks
            text = " ".join(str(error).split())[:200]
            raise NotProven(f"cannot be run and counted at length {length}: {type(error).__name__}: {text}") from error


@shows("operations grow with the length as declared, no slower, no faster")
def _complexity_flops(subject: CheckSubject) -> Finding:
    growth, declared = _growth_of(subject), subject.facts.complexity
    flops, moved = growth.flops, growth.moved
    figures = _figures(growth, flops, [one.flops for one in growth.counts])
    found = _judged("FLOPs", flops, declared, growth)
    if found == declared or _exceeds(str(moved.growth), declared):
        return Finding(f"{flops}, declared {declared}", figures)
    if moved.growth == declared:
        return Finding(f"{flops}; bytes reach the declared {declared}", figures)
    raise CheckFailed(f"declared {declared}, but FLOPs grow like {flops} and bytes like {moved}: declare the larger")


@shows("bytes moved and single tensors grow no faster than declared")
def _complexity_bytes(subject: CheckSubject) -> Finding:
    growth, declared = _growth_of(subject), subject.facts.complexity
    if declared != "L^2" and growth.squares:
        name, size = next(iter(growth.squares.items()))
        raise CheckFailed(
            f"declared {declared}, but the largest tensor that {name} makes grows like L^2: {size:,} numbers at length "
            f"{growth.lengths[-1]}, {growth.counts[-2].largest[name]:,} at {growth.lengths[-2]}"
        )
    moved = growth.moved
    _judged("bytes", moved, declared, growth)
    return Finding(f"{moved}, declared {declared}", _figures(growth, moved, [one.moved for one in growth.counts]))


def _judged(what: str, found: _Fit, declared: str, growth: _Growth) -> str:
    """The class, if it is certain and not above the declared one. What could not be counted only adds to it."""
    if found.growth and _exceeds(found.growth, declared):
        raise CheckFailed(f"{what} grow like {found}, declared {declared}")
    if growth.unknown:
        raise NotProven(
            f"nobody can count {', '.join(growth.unknown)}: give it a formula with "
            "torch.utils.flop_counter.register_flop_formula"
        )
    if not found.growth:
        raise NotProven(f"{what} fit no class: exponent {found.exponent:.2f}, distances {_percent(found)}")
    return found.growth


def _percent(found: _Fit) -> str:
    return ", ".join(f"{name} {100 * distance:.1f} %" for name, distance in found.residuals.items())


def _figures(growth: _Growth, found: _Fit, counts: list[int]) -> dict[str, Any]:
    return {
        "class": found.growth,
        "exponent": round(found.exponent, 3),
        "distances": {name: float(f"{distance:.3g}") for name, distance in found.residuals.items()},
        "lengths": list(growth.lengths),
        "counts": counts,
        "cpu_seconds": list(growth.seconds),
    }


@dataclass(frozen=True)
class _Fit:
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


def _exceeds(growth: str, limit: str) -> bool:
    """Whether one class of growth is higher than another."""
    return ORDER.index(growth) > ORDER.index(limit)


def _fit_growth(lengths: Sequence[int], counts: Sequence[float]) -> _Fit:
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
        return _Fit("L", dict.fromkeys(CLASSES, 0.0), 0.0)
    y = np.maximum(np.asarray(counts, dtype=float), 1.0)
    models = {name: _nearest(lengths, y, ("L", name)) for name in CLASSES}
    residuals = {name: model.distance for name, model in models.items()}
    exponent = _exponent(lengths, y)
    return _Fit(_smallest(models) or _mixed(lengths, y) or (MORE if exponent > 2 else None), residuals, exponent)


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
    """The non-negative mixture of 1 and the named terms that is nearest by least squares, relative to the counts."""
    terms = [lambda _: 1.0, *(TERMS[name] for name in dict.fromkeys(names))]
    matrix = np.array([[term(length) for term in terms] for length in lengths]) / y[:, None]
    matrix /= matrix.max(0)
    parts = matrix * nnls(matrix, np.ones(len(y)))[0]
    return _Model(float(np.abs(parts.sum(1) - 1).max()), float(parts[-1, -1]))


def _exponent(lengths: Sequence[int], y: np.ndarray) -> float:
    half = len(lengths) // 2
    x = np.log(np.asarray(lengths, dtype=float)[half:])
    return float(np.polyfit(x, np.log(y[half:]), 1)[0])
