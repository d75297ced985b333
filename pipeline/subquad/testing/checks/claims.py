"""Claims that would make other checks toothless."""

from __future__ import annotations

from subquad.testing.check import Check, CheckFailed, Finding
from subquad.testing.measure import ROUNDING
from subquad.testing.subject import Subject


def leak(subject: Subject) -> Finding:
    """The declared leak is rounding: anything more is an influence."""
    if not 0 <= subject.facts.leak <= ROUNDING:
        raise CheckFailed(
            f"leak {subject.facts.leak:g} is declared, allowed 0 to {ROUNDING:g}: no rounding is as large"
        )
    return Finding(f"leak {subject.facts.leak:g}", {"declared": subject.facts.leak, "allowed": ROUNDING})


CHECKS = (Check(name="leak", shows="what is declared as leak is no more than rounding", run=leak),)
