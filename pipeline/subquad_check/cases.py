"""A check of the certificate, and what comes of it, whatever a mixer does: raise, print, exit."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Literal

import torch
import torch._functorch.config as compiler_config

from subquad.errors import SubquadError, escaped
from subquad.nn.numbers import single_precision
from subquad_check.meter import (
    ROUNDING,
    CheckFailed,
    Comparisons,
    Finding,
    Meter,
    NotApplicable,
    NotProven,
    NotTested,
    looked,
    looking,
)
from subquad_check.subject import CheckSubject, named_cause
from subquad_check.switches import switches_kept

Status = Literal["passed", "failed", "excluded", "not proven"]

FIRST = "shapes"
"""The check that tells why a mixer cannot be called at all."""
SECONDS = 60.0
"""Of CPU time, for each check."""

_VERDICTS: dict[type[SubquadError], Status] = {
    NotApplicable: "excluded",
    NotProven: "not proven",
    NotTested: "not proven",
    CheckFailed: "failed",
}


Reason = Callable[[CheckSubject], str]
"""Why a check does not apply to a subject; "" where it does."""


def _applies(subject: CheckSubject) -> str:
    return ""


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
    excluded: Reason = _applies


def shows(
    property: str, *, excluded: Reason = _applies
) -> Callable[[Callable[..., Finding]], Check]:
    """Makes a check of the decorated function, whose name is the check's: `_causal_outputs` is
    "causal-outputs".

    Args:
        property: what it shows, in one line.
        excluded: why it does not apply to a subject.
    """

    def make(run: Callable[..., Finding]) -> Check:
        name = run.__name__.strip("_").replace("_", "-")
        return Check(name=name, shows=property, run=run, excluded=excluded)

    return make


_ROUNDS = "if this is rounding that follows from neighbours, declare it as leak"


def compares(
    property: str,
    allowed: float = ROUNDING,
    *,
    leaks: bool = False,
    excluded: Reason = _applies,
) -> Callable[[Callable[..., Comparisons]], Check]:
    """As `shows`, of a function that yields what must be equal, and may return a note.

    Args:
        property: what it shows, in one line.
        allowed: largest difference, as `Meter` has it; more where a mixer computes in float32,
            unless it is 0.
        leaks: whether a larger leak that a mixer declares is allowed.
        excluded: why it does not apply to a subject.
    """

    def make(pairs: Callable[..., Comparisons]) -> Check:
        @wraps(pairs)
        def run(subject: CheckSubject) -> Finding:
            most = max(allowed, subject.facts.leak) if leaks else allowed
            meter = Meter(subject.at_least(most), "" if allowed or not leaks else _ROUNDS)
            try:
                note = meter.compare_all(pairs(subject))
            except (Exception, TooSlow):
                meter.finding()  # what was found before counts
                raise
            return meter.finding(note)

        return shows(property, excluded=excluded)(run)

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
        looked: lengths, formats, modes and roles in which the mixer was called.
        traceback: of an exception that no check expects; "" elsewhere.
        again: what repeats a check that failed or is not proven; "" elsewhere, and where something
            else is to be mended first.
    """

    subject: str
    check: str
    status: Status
    detail: str = ""
    seconds: float = 0.0
    figures: dict[str, Any] = field(default_factory=dict)
    looked: dict[str, list[Any]] = field(default_factory=dict)
    traceback: str = ""
    again: str = ""


@dataclass(frozen=True)
class CheckCase:
    """One check of one way of building a mixer. Call it to run it in a test.

    Attributes:
        check: the property.
        subject: the mixer with its parameters.
        exclude: reasons by check name.
        seconds: of CPU time that it may take.
    """

    check: Check
    subject: CheckSubject
    exclude: Mapping[str, str] = field(default_factory=dict, repr=False)
    seconds: float = SECONDS

    def __str__(self) -> str:
        built = str(self.subject).replace(", ", "+")
        return f"{self.subject.resolved.found.name}/{built}/{self.check.name}"

    def __call__(self) -> Finding:
        """Run the check; an excluded one is skipped with its reason.

        Raises:
            CheckFailed: the mixer lacks the property; the message says what was seen and what is
                allowed.
            NotProven: neither shown nor refuted.
        """
        try:
            with looking():
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
        status: Status = "passed"
        trace = ""
        repeats = False
        with looking() as calls:
            try:
                finding = self._finding()
            except (NotApplicable, NotProven, CheckFailed) as verdict:
                status = _VERDICTS[type(verdict)]
                finding = Finding(str(verdict))
                repeats = type(verdict) in (NotProven, CheckFailed)
            except (Exception, SystemExit) as error:
                status = "failed"
                finding = Finding(f"{named_cause(error)}{calls.words}")
                trace = traceback.format_exc()
                repeats = True
        return CheckOutcome(
            subject=str(self.subject),
            check=self.check.name,
            status=status,
            detail=escaped(" ".join(finding.words.split()), 1000),
            seconds=time.perf_counter() - start,
            figures=finding.figures,
            looked={name: sorted(values) for name, values in calls.observed.items()},
            traceback=trace,
            again=self.again if repeats else "",
        )

    def _finding(self) -> Finding:
        """What the check saw.

        Raises:
            NotTested: it takes too long, or fails where the first call does, which another check
                tells.
        """
        with _quiet():
            try:
                with _limited(self.seconds):
                    by_hand = self.exclude.get(self.check.name)
                    reason = (
                        f"by the user: {by_hand}" if by_hand else self.check.excluded(self.subject)
                    )
                    if reason:
                        raise NotApplicable(reason)
                    return self.check.run(self.subject)
            except TooSlow:
                raise NotTested(
                    f"not tested: too slow: more than {self.seconds:g} s of CPU time"
                    f"{looked().words}"
                ) from None
            except (NotApplicable, NotProven):
                raise
            except (Exception, SystemExit) as error:
                obstacle = self.check.name != FIRST and self.subject.obstacle(error)
                if obstacle:
                    raise NotTested(f"not tested, because {obstacle}") from error
                raise


class TooSlow(BaseException):
    """A check takes longer than it may; a mixer's `except Exception` does not catch it."""


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Ends what takes more CPU time; a busy machine ends nothing. Only a main thread gets signals.

    Raises:
        TooSlow: what is inside, wherever it is then.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(signum: int, frame: Any) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No warnings, one thread, gradients on; torch's random state and switches are put back
    afterwards. What is compiled inside keeps its graph, of which several gradients are taken.

    Tensors are small, so that more threads cost more than they save, and one thread adds in one
    order.
    """
    torch_log = logging.getLogger("torch")
    level = torch_log.level
    with (
        switches_kept(),
        single_precision(),
        warnings.catch_warnings(),
        torch.random.fork_rng(devices=[]),
        torch.enable_grad(),
        compiler_config.patch(donated_buffer=False),
    ):
        warnings.simplefilter("ignore")
        torch_log.setLevel(logging.CRITICAL)
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch_log.setLevel(level)
