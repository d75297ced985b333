"""What checks of the certificate compare, and what they say of it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from subquad.errors import SubquadError

ROUNDING = 1e-9
"""Allowed in float64 where the same number is computed along another path: another shape, the
compiler, a decode cache. Other kernels add in another order. Seven decimals above float64's own
rounding, for methods that amplify it; far below what any real dependence does.
"""


@dataclass
class ObservedCalls:
    """What a check has called a mixer with.

    Attributes:
        observed: lengths, formats, modes and roles.
        last: those of the last call.
    """

    observed: dict[str, set[Any]] = field(default_factory=dict)
    last: dict[str, Any] = field(default_factory=dict)

    def note(self, **call: Any) -> None:
        """Add a call, or what is known of the next one."""
        for name, value in call.items():
            self.observed.setdefault(name, set()).add(value)
        self.last |= call

    @property
    def words(self) -> str:
        """The last call, for messages; "" before the first."""
        if "length" not in self.last:
            return ""
        length = self.last["length"]
        plural = "" if length == 1 else "s"
        role = self.last.get("role", "self")
        number_format = self.last["format"]
        return f" ({number_format}, {length} token{plural}, {self.last['mode']}, role {role})"


_LOOKED: ContextVar[ObservedCalls] = ContextVar("looked")


def looked() -> ObservedCalls:
    """Where calls are noted; of no check outside of one."""
    return _LOOKED.get(ObservedCalls())


@contextlib.contextmanager
def looking() -> Iterator[ObservedCalls]:
    """Notes the calls that are made inside."""
    token = _LOOKED.set(ObservedCalls())
    try:
        yield looked()
    finally:
        _LOOKED.reset(token)


class CheckFailed(SubquadError, AssertionError):
    """A mixer does not have the property; the message says what was seen and what was allowed, and
    ends with the last call.
    """

    def __init__(self, message: str):
        super().__init__(f"{message}{looked().words}")


class NotProven(SubquadError):
    """The property could be neither shown nor refuted, such as a complexity with operations
    nobody can count.
    """


class NotTested(NotProven):
    """Something else has to be mended first: the message is the reason, behind "not tested"."""

    def __init__(self, reason: str):
        super().__init__(f"not tested{reason}")


class NotApplicable(SubquadError):
    """Building or calling the mixer showed that the check has nothing to stand on; the message
    is the reason.
    """


@dataclass(frozen=True)
class Finding:
    """What a check saw, in a few words and in figures."""

    words: str = ""
    figures: dict[str, Any] = field(default_factory=dict)


Comparison = tuple[Any, ...]
"""What `Meter.compare` takes: words, what was got, what was expected (None for zeros), and
perhaps whose largest value counts.
"""

Comparisons = Generator[Comparison, None, Finding | str | None]
"""What a check compares, and a note on all of it, perhaps with figures."""


class Meter:
    """Compares tensors that should be equal with one tolerance, and keeps the worst that was seen.

    Args:
        allowed: largest difference, relative to the largest value; 0: equal bit for bit.
        of: what the largest value is of, for messages.
        advice: what to do about a difference that is no more than `ROUNDING`.
    """

    def __init__(self, allowed: float, of: str = "the largest output", advice: str = ""):
        self.allowed = allowed
        self.limit = f"{allowed:.1e}" if allowed else "0, bit for bit"
        self.of = of
        self.advice = advice
        self.worst = 0.0
        self.compared = 0
        self.failed = 0
        self.largest: CheckFailed | None = None

    def compare(
        self, what: str, got: Tensor, expected: Tensor | None, scale: Tensor | None = None
    ) -> None:
        """Compare two tensors. `finding` tells the largest difference of all.

        Args:
            what: the comparison in words, for messages.
            got: a tensor.
            expected: another of its shape; zeros where None.
            scale: whose largest value counts; that of the two tensors where None.

        Raises:
            CheckFailed: another shape or dtype.
        """
        if expected is None:
            expected = torch.zeros_like(got)
        if kind(got) != kind(expected):
            raise CheckFailed(f"{what}: {kind(got)} instead of {kind(expected)}")
        apart = _difference(got, expected, scale)
        self.compared += 1
        if apart > self.allowed:
            self.failed += 1
            if self.largest is None or apart > self.worst:
                reason = f"differs by {apart:.1e} of {self.of}"
                if apart == math.inf:
                    reason = _not_finite(got, expected, scale) or reason
                self.largest = CheckFailed(f"{what}: {reason}, allowed {self.limit}")
        self.worst = max(self.worst, apart)

    def finding(self, note: Finding | str | None = None) -> Finding:
        """The worst that was seen.

        Raises:
            CheckFailed: it is more than allowed.
        """
        if self.largest:
            message = str(self.largest)
            if self.failed > 1:
                among = f"{self.failed} differences in {self.compared} comparisons"
                message += f"; the largest of {among}"
            if self.advice and self.worst <= ROUNDING:
                message += f"; {self.advice}"
            self.largest.args = (message,)
            raise self.largest
        further = note if isinstance(note, Finding) else Finding(note or "")
        words = "equal bit for bit"
        if self.worst:
            words = f"{self.worst:.1e} of {self.of}, allowed {self.limit}"
        if further.words:
            words += f"; {further.words}"
        figures = {"worst": self.worst, "allowed": self.allowed, **further.figures}
        return Finding(words, figures)


def _not_finite(*tensors: Tensor | None) -> str:
    """Where tensors that are compared hold NaN or infinity; "" where none does."""
    wrong = [tensor for tensor in tensors if tensor is not None and not tensor.isfinite().all()]
    # a whole batch of tokens says more than what was picked from it
    wrong.sort(key=lambda tensor: tensor.dim() != 3)
    return f"has {_wrong_numbers(wrong[0])}" if wrong else ""


def _wrong_numbers(x: Tensor) -> str:
    """How many numbers are not finite, and the first one's place."""
    places = (~x.isfinite()).nonzero().tolist()
    words = f"NaN or infinity in {len(places)} of {x.numel()} numbers"
    names = ("sample", "token", "number") if x.dim() == 3 else ("row", "column")
    first = []
    for name, index in zip(names, places[0], strict=False):
        first.append(f"{name} {index}")
    if first:
        words += f", the first at {', '.join(first)}"
    return words


def each(
    got: Mapping[str, Tensor],
    expected: Mapping[str, Tensor],
    about: str = "",
    *,
    scale: Iterable[Tensor] | None = None,
) -> Iterator[Comparison]:
    """Comparisons of tensors by name. The largest value of all of them counts: one may be zero but
    for rounding.

    Args:
        scale: whose largest value counts; that of `expected` where None.
    """
    known = expected.values() if scale is None else scale
    largest = torch.stack([_size(tensor) for tensor in known]) if expected else None
    for name, value in expected.items():
        yield f"{name}{about}", got[name], value, largest


def _size(tensor: Tensor) -> Tensor:
    return tensor.detach().abs().max() if tensor.numel() else tensor.new_zeros(())


def _difference(got: Tensor, expected: Tensor, scale: Tensor | None) -> float:
    """The largest difference over the largest magnitude; infinite where one is not finite and
    they are not equal.
    """
    if torch.equal(got, expected):
        return 0.0
    magnitude = max(_size(got), _size(expected)) if scale is None else _size(scale)
    gap = (_size(got - expected) / magnitude).item()
    return gap if gap < math.inf else math.inf


def kind(x: Tensor) -> str:
    """Shape and dtype in words."""
    return f"{tuple(x.shape)} {word(x.dtype)}"


def word(dtype: torch.dtype) -> str:
    """A number format, as `float32`."""
    return str(dtype).removeprefix("torch.")


def finite(what: str, *values: Tensor | None) -> None:
    """Refuse NaN and infinity.

    Raises:
        CheckFailed: how many there are, and where the first one is.
    """
    for value in values:
        if value is not None and not value.isfinite().all():
            raise CheckFailed(f"{what}: {_wrong_numbers(value)}")
