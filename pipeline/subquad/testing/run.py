"""One check of one subject, whatever the mixer does: raise, warn, print, seed generators or change defaults."""

from __future__ import annotations

import contextlib
import logging
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping

import torch

from subquad.errors import SubquadError
from subquad.registry.foreign import cause, plain, state_kept
from subquad.testing.check import Check, CheckFailed, Finding, NotApplicable, NotProven, Outcome, Status
from subquad.testing.subject import Subject


def run_check(check: Check, subject: Subject, exclude: Mapping[str, str] | None = None) -> Outcome:
    """What comes of a check; nothing a mixer raises gets through but Ctrl-C.

    Args:
        exclude: reasons by check name.
    """
    start = time.perf_counter()
    status, detail, figures, trace = _run(check, subject, exclude or {})
    seconds = time.perf_counter() - start
    return Outcome(
        subject=str(subject),
        check=check.name,
        status=status,
        detail=plain(" ".join(detail.split()), 1000),
        seconds=seconds,
        figures=figures,
        traceback=trace,
    )


def _run(check: Check, subject: Subject, exclude: Mapping[str, str]) -> tuple[Status, str, dict, str]:
    try:
        finding = perform(check, subject, exclude)
    except NotApplicable as reason:
        return "excluded", str(reason), {}, ""
    except NotProven as error:
        return "not proven", str(error), {}, ""
    except CheckFailed as error:
        return "failed", str(error), {}, ""
    except (Exception, SystemExit) as error:
        text = f"{type(error).__name__}: {error}" if isinstance(error, SubquadError) else cause(error)
        return "failed", text, {}, traceback.format_exc()
    return "passed", finding.seen, finding.figures, ""


def perform(check: Check, subject: Subject, exclude: Mapping[str, str] | None = None) -> Finding:
    """What a check saw.

    Raises:
        NotApplicable: the check is excluded, with the reason.
        CheckFailed: the mixer lacks the property.
        NotProven: neither shown nor refuted.
    """
    with quiet():
        if by_hand := (exclude or {}).get(check.name):
            raise NotApplicable(f"by the user: {by_hand}")
        if reason := check.excluded(subject):
            raise NotApplicable(reason)
        return check.run(subject)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
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
