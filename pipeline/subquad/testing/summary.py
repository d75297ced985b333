"""A certificate in few words: what the terminal and Markdown have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from subquad.testing.certificate import Certificate
from subquad.testing.check import Outcome, Status


@dataclass(frozen=True)
class Note:
    """Outcomes that say the same.

    Attributes:
        checks: of these checks.
        subjects: of these subjects; empty where it is all of them.
        detail: what they say.
    """

    checks: tuple[str, ...]
    subjects: tuple[str, ...]
    detail: str

    def __str__(self) -> str:
        where = f" ({'; '.join(self.subjects)})" if self.subjects else ""
        return f"{', '.join(self.checks)}{where}: {self.detail}"


def notes(certificate: Certificate, status: Status) -> list[Note]:
    """Outcomes with a status, those that say the same of the same subjects together."""
    ways: dict[tuple[str, str], list[str]] = {}
    for outcome in certificate.outcomes:
        if outcome.status == status:
            ways.setdefault((outcome.check, outcome.detail), []).append(outcome.subject)
    names: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for (check, detail), subjects in ways.items():
        names.setdefault((tuple(subjects), detail), []).append(check)
    everywhere = len(certificate.subjects)
    return [
        Note(tuple(checks), () if len(subjects) == everywhere else subjects, detail)
        for (subjects, detail), checks in names.items()
    ]


def nearest_to_limit(outcomes: Sequence[Outcome]) -> str:
    """What the one of several passed outcomes saw that came nearest to its limit; "" where none passed."""
    passed = [outcome for outcome in outcomes if outcome.status == "passed"]
    return max(passed, key=lambda outcome: outcome.figures.get("worst") or 0.0).detail if passed else ""
