"""A check of the certificate: how it compares, and what comes of it, whatever a mixer does: raise, print, exit."""

from __future__ import annotations

import contextlib
import logging
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from subquad.errors import SubquadError
from subquad.registry.foreign import cause, plain, state_kept
from subquad.testing.subject import CheckSubject

Status = Literal["passed", "failed", "excluded", "not proven"]

ROUNDING = 1e-9
"""Allowed in float64 where the same number is computed along another path: another shape, the compiler, a decode cache.
Other kernels add in another order. Seven decimals above float64's own rounding, for methods that amplify it; far below
what any real dependence does."""


class CheckFailed(SubquadError, AssertionError):
    """A mixer does not have the property; the message says what was seen and what was allowed."""


class NotProven(SubquadError):
    """The property could be neither shown nor refuted, such as a complexity with operations nobody can count."""


class NotApplicable(SubquadError):
    """Building or calling the mixer showed that the check has nothing to stand on; the message is the reason."""


@dataclass(frozen=True)
class Finding:
    """What a check saw, in a few words and in figures."""

    seen: str = ""
    figures: dict[str, Any] = field(default_factory=dict)


class Meter:
    """Compares tensors that should be equal with one tolerance, and keeps the worst that was seen.

    Args:
        allowed: largest difference, relative to the largest value; 0: equal bit for bit.
        of: what the largest value is of, for messages.
    """

    def __init__(self, allowed: float, of: str = "the largest output"):
        self.allowed = allowed
        self.limit = f"{allowed:.1e}" if allowed else "0, bit for bit"
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
            raise CheckFailed(f"{what}: {kind(got)} instead of {kind(expected)}")
        seen = _difference(got, expected, (got, expected) if scale is None else (scale,))
        self.worst = max(self.worst, seen)
        if seen > self.allowed:
            raise CheckFailed(f"{what}: differs by {seen:.1e} of {self.of}, allowed {self.limit}")

    def compare_all(
        self,
        got: Mapping[str, Tensor],
        expected: Mapping[str, Tensor],
        about: str = "",
        *,
        scale: Iterable[Tensor] | None = None,
    ) -> None:
        """Compare tensors by name. The largest value of all of them counts: one may be zero but for rounding.

        Args:
            scale: whose largest value counts; that of `expected` where None.

        Raises:
            CheckFailed: as `compare`.
        """
        largest = [one.detach().abs().max() for one in (expected.values() if scale is None else scale)]
        for name, value in expected.items():
            self.compare(f"{name}{about}", got[name], value, scale=torch.stack(largest))

    def zero(self, what: str, got: Tensor, *, scale: Tensor) -> None:
        """Compare with zero.

        Raises:
            CheckFailed: too far from zero.
        """
        self.compare(what, got, torch.zeros_like(got), scale=scale)

    def finding(self, note: str = "") -> Finding:
        """The worst that was seen."""
        seen = "equal bit for bit" if self.worst == 0 else f"{self.worst:.1e} of {self.of}, allowed {self.limit}"
        return Finding(f"{seen}; {note}" if note else seen, {"worst": self.worst, "allowed": self.allowed})


def _difference(got: Tensor, expected: Tensor, scale: tuple[Tensor, ...]) -> float:
    """The largest difference over the largest magnitude; infinite where one is not finite and they are not equal."""
    if torch.equal(got, expected):
        return 0.0
    gap = ((got - expected).abs().max() / max(one.detach().abs().max() for one in scale)).item()
    return gap if gap < float("inf") else float("inf")


def kind(x: Tensor) -> str:
    """Shape and dtype in words."""
    return f"{tuple(x.shape)} {str(x.dtype).removeprefix('torch.')}"


def finite(what: str, *values: Tensor | None) -> None:
    """Refuse NaN and infinity.

    Raises:
        CheckFailed: how many there are.
    """
    for value in values:
        if value is not None and not value.isfinite().all():
            wrong = int((~value.isfinite()).sum())
            raise CheckFailed(f"{what}: {wrong} of {value.numel()} values are NaN or infinite")


@dataclass(frozen=True, kw_only=True)
class Check:
    """One property.

    Attributes:
        name: as `--only` and exclusions name it, such as "causal-outputs".
        shows: the property in one line.
        run: returns what it saw, or raises `CheckFailed`, `NotProven` or `NotApplicable`.
        excluded: why it does not apply to a subject, from the subject's facts; "" where it does.
    """

    name: str
    shows: str
    run: Callable[[CheckSubject], Finding]
    excluded: Callable[[CheckSubject], str] = lambda subject: ""


def shows(property: str, **options: Callable[[CheckSubject], str]) -> Callable[[Callable[..., Finding]], Check]:
    """Makes a check of the decorated function, whose name is the check's: `_causal_outputs` is "causal-outputs".

    Args:
        property: what it shows, in one line.
        options: `excluded` of the check.
    """

    def make(run: Callable[..., Finding]) -> Check:
        return Check(name=run.__name__.strip("_").replace("_", "-"), shows=property, run=run, **options)

    return make


@dataclass(frozen=True, kw_only=True)
class CheckOutcome:
    """What came of one check of one subject.

    Attributes:
        subject, check: their names.
        status: "passed", "failed", "excluded" or "not proven".
        detail: what was seen, or why it is excluded.
        seconds: how long it took.
        figures: numbers behind the detail.
        traceback: of an exception that no check expects; "" elsewhere.
        again: what repeats a check that failed or is not proven; "" elsewhere.
    """

    subject: str
    check: str
    status: Status
    detail: str = ""
    seconds: float = 0.0
    figures: dict[str, Any] = field(default_factory=dict)
    traceback: str = ""
    again: str = ""


@dataclass(frozen=True)
class CheckCase:
    """One check of one way of building a mixer. Call it to run it in a test.

    Attributes:
        check: the property.
        subject: the mixer with its parameters.
        exclude: reasons by check name.
    """

    check: Check
    subject: CheckSubject
    exclude: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        built = f"{self.subject.variant}+causal" if self.subject.causal else self.subject.variant
        return f"{self.subject.resolved.found.name}/{built}/{self.check.name}"

    def __call__(self) -> Finding:
        """Run the check; an excluded one is skipped with its reason.

        Raises:
            CheckFailed: the mixer lacks the property; the message says what was seen and what is allowed.
            NotProven: neither shown nor refuted.
        """
        try:
            return self._finding()
        except NotApplicable as reason:
            import pytest  # only here: a certificate needs none

            pytest.skip(str(reason))
        except Exception as error:
            error.add_note(f"again: {self.again}")
            raise

    @property
    def again(self) -> str:
        """What repeats it."""
        return self.subject.again([self.check.name])

    def outcome(self) -> CheckOutcome:
        """Run the check; nothing a mixer raises gets through but Ctrl-C."""
        start = time.perf_counter()
        status: Status
        figures, trace = {}, ""
        try:
            finding = self._finding()
            status, detail, figures = "passed", finding.seen, finding.figures
        except NotApplicable as reason:
            status, detail = "excluded", str(reason)
        except NotProven as error:
            status, detail = "not proven", str(error)
        except CheckFailed as error:
            status, detail = "failed", str(error)
        except (Exception, SystemExit) as error:
            status, trace = "failed", traceback.format_exc()
            detail = f"{type(error).__name__}: {error}" if isinstance(error, SubquadError) else cause(error)
        return CheckOutcome(
            subject=str(self.subject),
            check=self.check.name,
            status=status,
            detail=plain(" ".join(detail.split()), 1000),
            seconds=time.perf_counter() - start,
            figures=figures,
            traceback=trace,
            again=self.again if status in ("failed", "not proven") else "",
        )

    def _finding(self) -> Finding:
        with _quiet():
            if by_hand := self.exclude.get(self.check.name):
                raise NotApplicable(f"by the user: {by_hand}")
            if reason := self.check.excluded(self.subject):
                raise NotApplicable(reason)
            return self.check.run(self.subject)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No warnings, one thread, gradients on; generators and defaults are put back afterwards.

    Tensors are small, so that more threads cost more than they save, and one thread adds in one order.
    """
    torch_log, threads = logging.getLogger("torch"), torch.get_num_threads()
    level = torch_log.level
    with warnings.catch_warnings(), state_kept(), torch.enable_grad():
        warnings.simplefilter("ignore")
        torch_log.setLevel(logging.CRITICAL)
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            torch_log.setLevel(level)
