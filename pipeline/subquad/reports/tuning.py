"""What was spent on the settings of a run: the budget of the search whose final study it is of, by
the search's files.

A score is compared with others of an equal budget, or the comparison says that the budgets differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import isclose
from pathlib import Path

from subquad.output.terminal import quantity
from subquad.record.files import find_file
from subquad.record.models import SearchSummary
from subquad.record.names import FINAL, SEARCH
from subquad.reports.text import Values

_ALIKE = 0.1
"""Largest relative difference in FLOPs of equal budgets: trials that `trial.match=flops` made alike
differ by less.
"""


@dataclass(frozen=True)
class Tuning:
    """The tuning of one candidate; None is what is not known.

    Attributes:
        trials: finished ones.
        dimensions: how many settings were searched.
        flops: counted, of all its trials.
    """

    trials: int | None = None
    dimensions: int | None = None
    flops: float | None = None

    @property
    def words(self) -> str:
        """`12 trials, 5 dims, 1.2e+09 FLOPs`."""
        if self.trials is None or self.dimensions is None:
            return "unknown"
        trials = quantity(self.trials, "trial")
        dimensions = quantity(self.dimensions, "dim")
        return f"{trials}, {dimensions}, {self.flops_text}"

    @property
    def trials_text(self) -> str:
        """`12`, or that nobody knows."""
        if self.trials is None:
            return "unknown"
        return str(self.trials)

    @property
    def flops_text(self) -> str:
        """`1.2e+09 FLOPs`."""
        if self.flops is None:
            return "FLOPs unknown"
        return f"{self.flops:.3g} FLOPs"


def tuning_of(run: Path, summary: Values | None = None) -> Tuning | None:
    """The tuning of a run of a search's final study; None of other runs, of which nobody knows.

    Args:
        summary: the search's, where it was made anew; else it is read from search.json.
    """
    cell = run.resolve()
    study = cell.parent.parent
    search = study.parent
    name, _, _ = study.name.partition("-")
    if name != FINAL or not (search / SEARCH).exists():
        return None
    if study.name != FINAL:  # set aside, when the search had not spent what it has now
        return Tuning()
    found = SearchSummary.read(summary) if summary else find_file(SearchSummary, search)
    for candidate in found.candidates if found else ():
        if cell.name in candidate.final:
            return Tuning(
                trials=candidate.trials["finished"],
                dimensions=candidate.dimensions,
                flops=candidate.flops,
            )
    return Tuning()


def common(tunings: Iterable[Tuning | None]) -> Tuning | None:
    """The tuning of several runs; of different ones it is not known."""
    different = set(tunings)
    if len(different) == 1:
        return different.pop()
    return Tuning()


def unequal(first: Tuning | None, second: Tuning | None) -> str:
    """How the budgets of two scores differ, in words; "" where they do not, or neither is of a
    search.
    """
    if first is None and second is None:
        return ""
    if first is None or second is None:
        mine = first.words if first else "no search"
        others = second.words if second else "no search"
        return f"unequal tuning: {mine} / {others}"
    parts = []
    if first.trials is None or first.trials != second.trials:
        parts.append(f"{first.trials_text} / {second.trials_text} trials")
    if not _alike(first.flops, second.flops):
        parts.append(f"{first.flops_text} / {second.flops_text}")
    if not parts:
        return ""
    differences = ", ".join(parts)
    return f"unequal tuning: {differences}"


def _alike(first: float | None, second: float | None) -> bool:
    if first is None or second is None:
        return False
    return isclose(first, second, rel_tol=_ALIKE)
