"""Comparing what should be equal, and keeping the worst that was seen."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from subquad.testing.check import CheckFailed, Finding

ROUNDING = 1e-9
"""Allowed in float64 where the same number is computed along another path: another shape, the compiler, a decode cache.
Other kernels add in another order. Seven decimals above float64's own rounding, for methods that amplify it; far below
what any real dependence does."""

FEW_ULP = 64 * torch.finfo(torch.float64).eps
"""Allowed in float64 for another memory layout of the same numbers, relative to the largest: a matrix product reads a
transposed operand with another kernel, whose sums have another order."""


class Meter:
    """Compares tensors with one tolerance.

    Args:
        allowed: largest difference, relative to the largest value; 0: equal bit for bit.
        of: what the largest value is of, for messages.
    """

    def __init__(self, allowed: float, of: str = "the largest output"):
        self.allowed = allowed
        self.of = of
        self.worst = 0.0

    def compare(self, what: str, got: Tensor, expected: Tensor, *, scale: Tensor | None = None) -> None:
        """Compare two tensors.

        Args:
            what: the comparison in words, for messages.
            got, expected: of one shape.
            scale: whose largest value counts; that of the two tensors where None.

        Raises:
            CheckFailed: another shape or dtype, or too different.
        """
        if got.shape != expected.shape or got.dtype != expected.dtype:
            raise CheckFailed(f"{what}: {_kind(got)} instead of {_kind(expected)}")
        seen = difference(got, expected, scale)
        self.worst = max(self.worst, seen)
        if seen > self.allowed:
            raise CheckFailed(f"{what}: differs by {seen:.1e} of {self.of}, allowed {self.limit}")

    def compare_all(self, got: Mapping[str, Tensor], expected: Mapping[str, Tensor], about: str = "") -> None:
        """Compare tensors by name. The largest value of all of them counts: one may be zero but for rounding.

        Raises:
            CheckFailed: as `compare`.
        """
        if expected:
            scale = torch.stack([one.detach().abs().max() for one in expected.values()])
            for name, value in expected.items():
                self.compare(f"{name}{about}", got[name], value, scale=scale)

    def zero(self, what: str, got: Tensor, *, scale: Tensor) -> None:
        """Compare with zero.

        Raises:
            CheckFailed: too far from zero.
        """
        self.compare(what, got, torch.zeros_like(got), scale=scale)

    @property
    def limit(self) -> str:
        """What is allowed, in words."""
        return f"{self.allowed:.1e}" if self.allowed else "0, bit for bit"

    def finding(self, note: str = "") -> Finding:
        """The worst that was seen."""
        seen = "equal bit for bit" if self.worst == 0 else f"{self.worst:.1e} of {self.of}, allowed {self.limit}"
        figures = {"worst": self.worst, "allowed": self.allowed}
        return Finding(f"{seen}; {note}" if note else seen, figures)


def difference(got: Tensor, expected: Tensor, scale: Tensor | None = None) -> float:
    """The largest difference over the largest magnitude; infinite where one is not finite and they are not equal."""
    if torch.equal(got, expected):
        return 0.0
    largest = torch.stack([one.detach().abs().max() for one in ((got, expected) if scale is None else (scale,))]).max()
    gap = ((got - expected).abs().max() / largest).item()
    return gap if gap < float("inf") else float("inf")


def finite(what: str, *values: Tensor | None) -> None:
    """Refuse NaN and infinity.

    Raises:
        CheckFailed: how many there are.
    """
    for value in values:
        if value is not None and not value.isfinite().all():
            wrong = int((~value.isfinite()).sum())
            raise CheckFailed(f"{what}: {wrong} of {value.numel()} values are NaN or infinite")


def _kind(x: Tensor) -> str:
    return f"{tuple(x.shape)} {str(x.dtype).removeprefix('torch.')}"
