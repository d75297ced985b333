"""Whether a mixer's time and memory grow as declared, proven from counts. No time is judged: it goes to the figures.

Counted at lengths that are powers of two, each time on a mixer built for that length: one forward and backward pass in
training mode and one in evaluation mode with padding, added. The class is that of `fit`. A claim has to be tight: the
larger of FLOPs and bytes must reach it, and neither may pass it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch

from subquad.cost import Count, count_pass
from subquad.errors import SubquadError
from subquad.testing.check import Check, CheckFailed, Finding, NotProven
from subquad.testing.fit import MIN_LENGTHS, Fit, above, fit
from subquad.testing.subject import Subject

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


@dataclass(frozen=True, kw_only=True)
class Growth:
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
    def flops(self) -> Fit:
        """What the FLOPs grow like."""
        return self._fit("flops")

    @property
    def moved(self) -> Fit:
        """What the bytes grow like."""
        return self._fit("moved")

    def _fit(self, name: str) -> Fit:
        """Over all lengths, or else over the longest five."""
        counts = [getattr(one, name) for one in self.counts]
        found = fit(self.lengths, counts)
        return found if found.growth else fit(self.lengths[-MIN_LENGTHS:], counts[-MIN_LENGTHS:])

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


def growth_of(subject: Subject) -> Growth:
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


_counted: dict[int, tuple[Subject, Growth]] = {}
_MOST_KEPT = 32


def _climb(subject: Subject) -> Growth:
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
        counts.append(count_at(subject, length))
        seconds.append(round(time.process_time() - start, 4))
    lengths = ladder[: len(counts)]
    return Growth(lengths=tuple(lengths[-KEPT:]), counts=tuple(counts[-KEPT:]), seconds=tuple(seconds[-KEPT:]))


def _too_much(ladder: list[int], counts: list[Count], declared: str) -> bool:
    """Whether the next length is likely to cost more than it may."""
    before, last = counts[-2:]
    foretold = {name: getattr(last, name) ** 2 / max(getattr(before, name), 1) for name in LIMITS}
    found = fit(ladder[: len(counts)], [one.flops for one in counts]).growth
    patience = PATIENCE if found and above(found, declared) else 1.0
    return any(foretold[name] > patience * limit for name, limit in LIMITS.items())


def count_at(subject: Subject, length: int) -> Count:
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


def _flops(subject: Subject) -> Finding:
    growth, declared = growth_of(subject), subject.facts.complexity
    flops, moved = growth.flops, growth.moved
    figures = _figures(growth, flops, [one.flops for one in growth.counts])
    found = _judged("FLOPs", flops, declared, growth)
    if found == declared or above(str(moved.growth), declared):
        return Finding(f"{flops}, declared {declared}", figures)
    if moved.growth == declared:
        return Finding(f"{flops}; bytes reach the declared {declared}", figures)
    raise CheckFailed(f"declared {declared}, but FLOPs grow like {flops} and bytes like {moved}: declare the larger")


def _bytes(subject: Subject) -> Finding:
    growth, declared = growth_of(subject), subject.facts.complexity
    if declared != "L^2" and growth.squares:
        name, size = next(iter(growth.squares.items()))
        raise CheckFailed(
            f"declared {declared}, but the largest tensor that {name} makes grows like L^2: {size:,} numbers at length "
            f"{growth.lengths[-1]}, {growth.counts[-2].largest[name]:,} at {growth.lengths[-2]}"
        )
    moved = growth.moved
    _judged("bytes", moved, declared, growth)
    return Finding(f"{moved}, declared {declared}", _figures(growth, moved, [one.moved for one in growth.counts]))


def _judged(what: str, found: Fit, declared: str, growth: Growth) -> str:
    """The class, if it is certain and not above the declared one. What could not be counted only adds to it."""
    if found.growth and above(found.growth, declared):
        raise CheckFailed(f"{what} grow like {found}, declared {declared}")
    if growth.unknown:
        raise NotProven(
            f"nobody can count {', '.join(growth.unknown)}: give it a formula with "
            "torch.utils.flop_counter.register_flop_formula"
        )
    if not found.growth:
        raise NotProven(f"{what} fit no class: exponent {found.exponent:.2f}, distances {_percent(found)}")
    return found.growth


def _percent(found: Fit) -> str:
    return ", ".join(f"{name} {100 * distance:.1f} %" for name, distance in found.residuals.items())


def _figures(growth: Growth, found: Fit, counts: list[int]) -> dict[str, Any]:
    return {
        "class": found.growth,
        "exponent": round(found.exponent, 3),
        "distances": {name: float(f"{distance:.3g}") for name, distance in found.residuals.items()},
        "lengths": list(growth.lengths),
        "counts": counts,
        "cpu_seconds": list(growth.seconds),
    }


CHECKS = [
    Check(
        name="complexity-flops", shows="operations grow with the length as declared, no slower, no faster", run=_flops
    ),
    Check(name="complexity-bytes", shows="bytes moved and single tensors grow no faster than declared", run=_bytes),
]
