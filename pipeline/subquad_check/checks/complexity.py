"""Whether a mixer's time and memory grow as declared, proven from counts. Time goes to the figures;
it is judged only where numbers came from Python or NumPy, whose work nobody counts.

Counted at lengths that are powers of two, each time on a mixer built for that length: a forward
and backward pass in training mode, another one there with padding, and a forward pass in evaluation
mode with padding, added. A claim has to be tight: the larger of FLOPs and bytes must reach it, and
neither may pass it.

Letters: L length.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import torch

from subquad.errors import SubquadError
from subquad.plugin import Complexity
from subquad_check.cases import shows
from subquad_check.fits import TERMS, Fit, exceeds, fit_growth, larger
from subquad_check.meter import CheckFailed, Finding, NotProven
from subquad_check.subject import CheckSubject

if TYPE_CHECKING:
    from subquad.cost import Count

SHORTER = (16, 32)
LADDER = tuple(2**power for power in range(6, 17))
KEPT = 6
"""So many of the longest lengths that the limits below allow are judged: short ones are full of
other terms, and a mixer may do short sequences another way.
"""

LIMITS = {"flops": 2.2e10, "moved": 1.2e10, "operations": 3.1e4, "peak": 2.5e7}
"""What one length may cost, foretold from the two before it: a second or two, tensors of 100 MB."""

PATIENCE = 2
"""A mixer about to fail may cost so much more: it may have another way for the next length."""

SQUARE = 2**1.75
"""Growth of a tensor, length doubled, from which on it counts as an L x L one."""

MIN_LENGTHS = 5

INCONVENIENT = 2.0
"""So many times the cost of a power of two is more than padding."""

STEEPER = 2.0
"""Where numbers came from outside: CPU time that grows so many times as much as it should, while
the length doubles twice, is that of other work.
"""

COUNTED = {"FLOPs": "flops", "bytes": "moved"}
"""Both of which are held against a claim: words and attributes of `Count`."""


@dataclass(frozen=True)
class _Growth:
    """Counts over rising lengths, and the CPU time of each, for the reader."""

    lengths: tuple[int, ...]
    counts: tuple[Count, ...]
    seconds: tuple[float, ...] = ()

    def fit(self, name: str) -> Fit:
        """What "flops" or "moved" bytes grow like: over all lengths, or else over the longest
        five.
        """
        counts = self.numbers(name)
        found = fit_growth(self.lengths, counts)
        if found.growth:
            return found
        return fit_growth(self.lengths[-MIN_LENGTHS:], counts[-MIN_LENGTHS:])

    def numbers(self, name: str) -> list[int]:
        """Of "flops" or "moved" bytes at each length."""
        return [getattr(count, name) for count in self.counts]

    @property
    def squares(self) -> dict[str, int]:
        """Operations whose largest tensor grows like L^2, and its elements at the longest
        length; largest first.
        """
        *_, before, last, end = self.counts
        found = Counter[str]()
        for name, size in end.largest.items():
            middle = last.largest.get(name, size)
            grew = middle >= SQUARE * before.largest.get(name, size)
            if size and grew and size >= SQUARE * middle:
                found[name] = size
        return dict(found.most_common())

    def _check_time(self, what: str, declared: str) -> None:
        """Of work outside of torch.

        Raises:
            CheckFailed: it takes more time than is declared.
        """
        if not any(count.has_entered for count in self.counts):
            return
        term = TERMS[declared]
        expected = term(self.lengths[-1]) / term(self.lengths[-3])
        *_, before, _, needed = self.seconds
        if needed <= STEEPER * expected * before:
            return
        raise CheckFailed(
            f"CPU time grows {needed / max(before, 1e-6):.0f} times while the length grows "
            f"4 times, declared {declared}: {what} of torch do not, so it is spent in Python or "
            "NumPy"
        )

    def held_against(self, what: str, declared: str) -> tuple[Fit, dict[str, Any]]:
        """The class, if it is certain and not above the declared one, and figures. What nobody
        counts only adds to it.

        Args:
            what: "FLOPs" or "bytes".

        Raises:
            CheckFailed: it is above the declared one.
            NotProven: it is not certain, or some operations cannot be counted.
        """
        found = self.fit(COUNTED[what])
        if found.growth and exceeds(found.growth, declared):
            message = f"{what} grow like {found}, declared {declared}"
            if what == "bytes":
                names = [name for name, _ in self.counts[-1].moved_by.most_common(2)]
                message += f", most of them by {' and '.join(names)}"
                if "aten::select_backward" in names:
                    message += (
                        ": the gradient of each x[:, t] is as large as x, that of x.unbind(1) "
                        "is not"
                    )
            raise CheckFailed(message)
        self._check_time(what, declared)
        unknown = set[str]().union(*(count.unknown for count in self.counts))
        if unknown:
            raise NotProven(
                f"nobody can count {', '.join(sorted(unknown))}: give it a formula with "
                "torch.utils.flop_counter.register_flop_formula"
            )
        if not found.growth:
            words = [f"{key} {100 * apart:.1f} %" for key, apart in found.residuals.items()]
            raise NotProven(
                f"{what} fit no class: exponent {found.exponent:.2f}, distances {', '.join(words)}"
            )
        return found, {
            "class": found.growth,
            "exponent": round(found.exponent, 3),
            "distances": {key: float(f"{apart:.3g}") for key, apart in found.residuals.items()},
            "lengths": list(self.lengths),
            "counts": self.numbers(COUNTED[what]),
            "cpu_seconds": list(self.seconds),
        }


def _growth_of(subject: CheckSubject) -> _Growth:
    """Counts of a subject.

    Raises:
        NotProven: it takes too few lengths.
    """
    every = (*SHORTER, *LADDER)
    takes = [length for length in every if subject.at_most(length) == length]
    ladder = takes[len(SHORTER) :]

    @cache
    def count(length: int) -> tuple[Count, float]:
        start = time.process_time()
        return _count_at(subject, length), round(time.process_time() - start, 4)

    # a loop over tokens in Python: so many operations that `MIN_LENGTHS` would take minutes
    most = LIMITS["operations"] / 2 ** (MIN_LENGTHS - 1)
    if len(ladder) < MIN_LENGTHS or count(ladder[0])[0].operations > most:
        ladder = takes  # short lengths tell less
    if len(ladder) < MIN_LENGTHS:
        raise NotProven(
            f"takes {subject.facts.max_length} positions at most: {len(ladder)} lengths to count "
            f"at ({', '.join(map(str, every[:MIN_LENGTHS]))}, ...), and {MIN_LENGTHS} are needed"
        )
    found = _Growth((), ())
    for end in range(1, len(ladder) + 1):
        if end > MIN_LENGTHS and _is_too_much(found, str(subject.facts.complexity)):
            break
        lengths = tuple(ladder[:end][-KEPT:])
        found = _Growth(lengths, *zip(*map(count, lengths), strict=True))
    return found


def growth_of(subject: CheckSubject) -> Complexity:
    """What both checks would hold against a declaration: the larger class of FLOPs and bytes.

    Raises:
        CheckFailed: more than L^2, or tensors that grow faster than both.
        NotProven: it is not certain.
    """
    growth = _growth_of(replace(subject, facts=replace(subject.facts, complexity="L^2")))
    flops, moved = (growth.held_against(what, "L^2")[0] for what in COUNTED)
    declared = larger(flops, moved)
    squares = growth.squares
    if declared != "L^2" and squares:
        raise CheckFailed(f"tensors of {', '.join(squares)} grow like L^2, the rest less")
    return cast(Complexity, declared)


def _is_too_much(growth: _Growth, declared: str) -> bool:
    """Whether the next length is likely to cost more than it may."""
    *_, before, last = growth.counts
    recent = _Growth(growth.lengths[-MIN_LENGTHS:], growth.counts[-MIN_LENGTHS:])
    patience = 1
    for name in COUNTED.values():
        found = recent.fit(name).growth
        if not found or exceeds(found, declared):
            patience = PATIENCE
    return any(
        getattr(last, name) ** 2 / max(getattr(before, name), 1) > patience * limit
        for name, limit in LIMITS.items()
    )


def _count_at(subject: CheckSubject, length: int) -> Count:
    """Training of one sample without a mask, and of two with one; evaluation with one. An eighth of
    one sample is padding.
    """
    from subquad.cost import count_pass  # here: torch's formulas import triton

    mixer = subject.build(max_len=length, dtype=torch.float32)
    x = subject.tokens(2, length, dtype=torch.float32)
    keep = torch.arange(length) < torch.tensor([[length], [length - length // 8]])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            mixer.train()
            training = count_pass(mixer, x[:1]) + count_pass(mixer, x, keep=keep)
            return training + count_pass(mixer.eval(), x, keep=keep, backward=False)
        except SubquadError:
            raise
        except Exception as error:  # whether the mixer runs at all is for other checks
            raise NotProven(
                f"cannot be run and counted at length {length}: {type(error).__name__}: "
                f"{' '.join(str(error).split())[:200]}"
            ) from error


@shows(
    "operations and bytes moved grow with the length as declared, single tensors no faster",
    excluded=lambda subject: "" if subject.facts.complexity else "complexity not claimed",
)
def _complexity(subject: CheckSubject) -> Finding:
    growth = _growth_of(subject)
    declared = str(subject.facts.complexity)
    for name, size in growth.squares.items():
        if declared != "L^2":
            raise CheckFailed(
                f"declared {declared}, but the largest tensor that {name} makes grows like L^2: "
                f"{size:,} numbers at length {growth.lengths[-1]}, "
                f"{growth.counts[-2].largest[name]:,} at {growth.lengths[-2]}"
            )
    held = {what: growth.held_against(what, declared) for what in COUNTED}
    flops, moved = (found for found, _ in held.values())
    is_slight = declared == "L log L" and flops.has_slight
    if declared not in (flops.growth, moved.growth) and not is_slight:
        raise CheckFailed(
            f"declared {declared}, but FLOPs grow like {flops} and bytes like {moved}: declare "
            f"{larger(flops, moved)}"
        )
    _count_at_prime(subject, growth)
    words = f"FLOPs {flops}, bytes {moved}, declared {declared}"
    if is_slight:
        words += ", of which a slight L log L"
    return Finding(words, {what.lower(): figures for what, (_, figures) in held.items()})


def _count_at_prime(subject: CheckSubject, growth: _Growth) -> None:
    """Lengths that are powers of two may be convenient ones.

    Raises:
        CheckFailed: a length without divisors costs far more than the next power of two.
    """
    length = growth.lengths[-3]
    prime = next(
        odd
        for odd in range(length - 1, 2, -2)
        if all(odd % divisor for divisor in range(3, math.isqrt(odd) + 1, 2))
    )
    found = _count_at(subject, prime)
    for what, name in COUNTED.items():
        times = getattr(found, name) / max(getattr(growth.counts[-3], name), 1)
        if times > INCONVENIENT:
            raise CheckFailed(
                f"{what} at {prime:,} tokens, a prime number, "
                f"are {times:.1f} times those at {length:,}"
            )
