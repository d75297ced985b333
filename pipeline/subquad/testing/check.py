"""One check of the certificate, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from subquad.errors import SubquadError
from subquad.testing.subject import Subject

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


def always(subject: Subject) -> str:
    """For checks that every mixer must pass."""
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
    run: Callable[[Subject], Finding]
    excluded: Callable[[Subject], str] = always


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of one check of one subject.

    Attributes:
        subject: the subject's name.
        check: the check's name.
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
