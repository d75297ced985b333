"""What checks of the certificate compare, and what they say of it."""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from subquad.errors import SubquadError
from subquad.output.terminal import quantity

HALF = (torch.float16, torch.bfloat16)
"""The formats of half precision."""

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
        last = {"role": "self", **self.last}
        tokens = quantity(last["length"], "token")
        return f" ({last['format']}, {tokens}, {last['mode']}, role {last['role']})"


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
perhaps whose largest value counts, and what is allowed of this one.
"""

Comparisons = Generator[Comparison, None, Finding | str | None]
"""What a check compares, and a note on all of it, perhaps with figures."""


def within(allowed: float, comparisons: Iterable[Comparison]) -> Iterator[Comparison]:
    """Comparisons, each with its scale, beside exact ones, of which so much is allowed."""
    for comparison in comparisons:
        yield *comparison, allowed


class Meter:
    """Compares tensors that should be equal with one tolerance, and keeps the worst that was seen.

    Args:
        allowed: largest difference, relative to the largest value; 0: equal bit for bit.
        advice: what to do about a difference that is no more than `ROUNDING`.
    """

    def __init__(self, allowed: float, advice: str = ""):
        self.allowed = allowed
        self.advice = advice
        self.worst = 0.0
        self.rounding = 0.0
        self.compared = 0
        self.failed: list[tuple[float, CheckFailed]] = []

    def compare(
        self,
        what: str,
        got: Tensor,
        expected: Tensor | None,
        scale: Tensor | None = None,
        allowed: float = 0.0,
    ) -> None:
        """Compare two tensors. `finding` tells the largest difference of all.

        Args:
            what: the comparison in words, for messages.
            got: a tensor.
            expected: another of its shape; zeros where None.
            scale: whose largest value counts; that of the two tensors where None.
            allowed: of this comparison, where it is more than of the others.

        Raises:
            CheckFailed: another shape or dtype.
        """
        if expected is None:
            expected = torch.zeros_like(got)
        if kind(got) != kind(expected):
            raise CheckFailed(f"{what}: {kind(got)} instead of {kind(expected)}")
        apart = _difference(got, expected, scale)
        self.compared += 1
        if allowed:
            self.rounding = max(self.rounding, apart)
        else:
            self.worst = max(self.worst, apart)
        limit = max(self.allowed, allowed)
        if apart <= limit:
            return
        noun = next((noun for noun in ("gradient", "loss") if noun in what), "output")
        reason = f"differs by {apart:.1e} of the largest {noun}"
        compared = [tensor for tensor in (got, expected, scale) if tensor is not None]
        wrong = [tensor for tensor in compared if not _is_finite(tensor)]
        if wrong:
            # a whole batch of tokens says more than what was picked from it
            reason = f"has {_wrong_numbers(min(wrong, key=lambda tensor: tensor.dim() != 3))}"
        self.failed.append((apart, CheckFailed(f"{what}: {reason}, allowed {_limit(limit)}")))

    def compare_all(self, comparisons: Iterator[Comparison]) -> Any:
        """Returns what the generator returns at its end."""
        try:
            while True:
                self.compare(*next(comparisons))
        except StopIteration as end:
            return end.value

    def finding(self, note: Finding | str | None = None) -> Finding:
        """The worst that was seen.

        Raises:
            CheckFailed: it is more than allowed.
        """
        if self.failed:
            apart, largest = max(self.failed, key=lambda failure: failure[0])
            message = str(largest)
            if len(self.failed) > 1:
                message += f"; the largest of {len(self.failed)} differences"
                message += f" in {self.compared} comparisons"
            if self.advice and apart <= ROUNDING:
                message += f"; {self.advice}"
            largest.args = (message,)
            raise largest
        further = note if isinstance(note, Finding) else Finding(note or "")
        words = "equal bit for bit"
        if self.worst:
            words = f"{self.worst:.1e} of the largest, allowed {_limit(self.allowed)}"
        if self.rounding:
            words += f"; rounding {self.rounding:.1e}"
        if further.words:
            words += f"; {further.words}"
        return Finding(words, {"worst": self.worst, "allowed": self.allowed, **further.figures})


def _limit(allowed: float) -> str:
    return f"{allowed:.1e}" if allowed else "0, bit for bit"


def _is_finite(x: Tensor) -> bool:
    return bool(x.isfinite().all())


def _wrong_numbers(x: Tensor) -> str:
    """How many numbers are not finite, and the first one's place."""
    is_wrong = ~x.isfinite()
    places = is_wrong.nonzero().tolist()
    words = f"NaN or infinity in {len(places)} of {x.numel()} numbers"
    names = ["row", "column"]
    if x.dim() == 3:
        names = ["sample", "token", "number"]
    first = [f"{name} {index}" for name, index in zip(names, places[0], strict=False)]
    if first:
        words += f", the first at {', '.join(first)}"
    return words


def each(
    got: Mapping[str, Tensor],
    expected: Mapping[str, Tensor],
    about: str = "",
    *,
    scale: Mapping[str, Tensor] | None = None,
) -> Iterator[Comparison]:
    """Comparisons of tensors by name. The largest value of all gradients counts, and that of all
    others: one may be zero but for rounding.

    Args:
        scale: whose largest value counts; that of `expected` where None.
    """
    sizes = defaultdict[bool, list[Tensor]](list)
    for name, tensor in (scale or expected).items():
        sizes["gradient" in name].append(_size(tensor))
    for name, value in expected.items():
        yield f"{name}{about}", got[name], value, torch.stack(sizes["gradient" in name])


def _size(tensor: Tensor) -> Tensor:
    return tensor.detach().abs().max() if tensor.numel() else tensor.new_zeros(())


def _difference(got: Tensor, expected: Tensor, scale: Tensor | None) -> float:
    """The largest difference over the largest magnitude; infinite where one is not finite and
    they are not equal.
    """
    if torch.equal(got, expected):
        return 0.0
    magnitude = max(_size(got), _size(expected)) if scale is None else _size(scale)
    relative = (_size(got - expected) / magnitude).item()
    return math.inf if math.isnan(relative) else relative


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
        if value is not None and not _is_finite(value):
            raise CheckFailed(f"{what}: {_wrong_numbers(value)}")
