"""What was spent on the settings of a run: the budget of the search whose final study it is of, by
the search's files.

A score is compared with others of an equal budget, or the comparison says that the budgets differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from subquad.reports.text import Values
from subquad.runs import FINAL, SEARCH, SUMMARY, read_json

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
        trials = f"{self.trials} trial{'' if self.trials == 1 else 's'}"
        dimensions = f"{self.dimensions} dim{'' if self.dimensions == 1 else 's'}"
        return f"{trials}, {dimensions}, {_flops(self)}"


def tuning_of(run: Path, summary: Values | None = None) -> Tuning | None:
    """The tuning of a run of a search's final study; None of other runs, of which nobody knows.

    Args:
        summary: the search's, where it was made anew; else it is read from search.json.
    """
    cell = run.resolve()
    study = cell.parent.parent
    if study.name.partition("-")[0] != FINAL or not (study.parent / SEARCH).exists():
        return None
    if study.name != FINAL:  # set aside, when the search had not spent what it has now
        return Tuning()
    if summary is None:
        summary = read_json(study.parent / SUMMARY) or {}
    for candidate in summary.get("candidates", ()):
        if cell.name in candidate.get("final", ()):
            return Tuning(
                candidate["trials"]["finished"], candidate["dimensions"], candidate["flops"]
            )
    return Tuning()


def common(tunings: Iterable[Tuning | None]) -> Tuning | None:
    """The tuning of several runs; of different ones it is not known."""
    found = list(dict.fromkeys(tunings))
    return found[0] if len(found) == 1 else Tuning()


def unequal(first: Tuning | None, second: Tuning | None) -> str:
    """How the budgets of two scores differ, in words; "" where they do not, or neither is of a
    search.
    """
    if first is None and second is None:
        return ""
    if first is None or second is None:
        budgets = ["no search" if tuning is None else tuning.words for tuning in (first, second)]
        return f"unequal tuning: {' / '.join(budgets)}"
    parts = []
    if first.trials is None or first.trials != second.trials:
        parts.append(f"{_count(first)} / {_count(second)} trials")
    if not _alike(first.flops, second.flops):
        parts.append(f"{_flops(first)} / {_flops(second)}")
    return f"unequal tuning: {', '.join(parts)}" if parts else ""


def _alike(first: float | None, second: float | None) -> bool:
    if first is None or second is None:
        return False
    return abs(first - second) <= _ALIKE * max(first, second)


def _count(tuning: Tuning) -> str:
    return "unknown" if tuning.trials is None else str(tuning.trials)


def _flops(tuning: Tuning) -> str:
    return "FLOPs unknown" if tuning.flops is None else f"{tuning.flops:.3g} FLOPs"
