"""One check of the certificate, and what comes of it, whatever a mixer does: raise, print, change defaults."""

from __future__ import annotations

import contextlib
import logging
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from subquad.errors import SubquadError
from subquad.registry.foreign import cause, plain, state_kept
from subquad.testing.subject import CheckSubject

Status = Literal["passed", "failed", "excluded", "not proven"]


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
    """

    subject: str
    check: str
    status: Status
    detail: str = ""
    seconds: float = 0.0
    figures: dict[str, Any] = field(default_factory=dict)
    traceback: str = ""


def run_check(check: Check, subject: CheckSubject, exclude: Mapping[str, str] | None = None) -> CheckOutcome:
    """What comes of a check; nothing a mixer raises gets through but Ctrl-C.

    Args:
        exclude: reasons by check name.
    """
    start = time.perf_counter()
    figures: dict[str, Any] = {}
    trace = ""
    status: Status
    try:
        finding = perform(check, subject, exclude)
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
        subject=str(subject),
        check=check.name,
        status=status,
        detail=plain(" ".join(detail.split()), 1000),
        seconds=time.perf_counter() - start,
        figures=figures,
        traceback=trace,
    )


def perform(check: Check, subject: CheckSubject, exclude: Mapping[str, str] | None = None) -> Finding:
    """What a check saw.

    Raises:
        NotApplicable: the check is excluded, with the reason.
        CheckFailed: the mixer lacks the property.
        NotProven: neither shown nor refuted.
    """
    with _quiet():
        if by_hand := (exclude or {}).get(check.name):
            raise NotApplicable(f"by the user: {by_hand}")
        if reason := check.excluded(subject):
            raise NotApplicable(reason)
        return check.run(subject)


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
