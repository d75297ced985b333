"""Which mixers differ, on the same data set under the same protocol, and by how much.

Method: docs/reference/report.md.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

from subquad.report import settings, stats
from subquad.report.predictions import Correctness, correctness
from subquad.report.rows import Row

Verdict = Literal["distinguishable", "not distinguishable", "not enough seeds"]
Basis = Literal["test samples and seeds", "test samples", "seeds", "none"]

ALPHA = 0.05
MIN_WELCH_SEEDS = 3


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two rows, first minus second.

    Attributes:
        estimate: None where nothing can be said.
        adjusted: the p-value after Holm's correction over the pairs of one data set and protocol.
        seeds: seeds behind the estimate.
        basis: what was resampled.
        verdict: "distinguishable" only if the interval excludes 0 and the adjusted p-value is below 0.05.
        notes: what limits the comparison.
    """

    first: Row
    second: Row
    estimate: stats.Estimate | None
    seeds: int
    basis: Basis
    adjusted: float | None = None
    verdict: Verdict = "not enough seeds"
    notes: tuple[str, ...] = ()

    @property
    def family(self) -> tuple[str, str]:
        return self.first.dataset, self.first.protocol


def compare_rows(rows: Sequence[Row], baseline: str, apart: Sequence[Sequence[Row]] = ()) -> list[Comparison]:
    """All pairs that may be compared, the control mixer second in its pairs.

    Args:
        rows: of the table.
        baseline: the control mixer.
        apart: groups of rows whose pairs stand elsewhere.
    """
    elsewhere = {frozenset(map(id, pair)) for group in apart for pair in combinations(group, 2)}
    pairs = [pair for pair in combinations(rows, 2) if frozenset(map(id, pair)) not in elsewhere]
    found = [_compare(*_ordered(pair, baseline)) for pair in pairs if _comparable(*pair)]
    families = dict.fromkeys(one.family for one in found)
    return [one for family in families for one in _corrected([one for one in found if one.family == family])]


def compare_values(rows: Sequence[Row], key: str) -> list[Comparison]:
    """All pairs of rows that differ in one setting; Holm's correction is over these pairs alone."""
    scored = [row for row in rows if row.counted]
    known = settings.with_alternatives([key])
    return _corrected([_compare(first, second, known) for first, second in combinations(scored, 2)])


def is_baseline(row: Row, baseline: str) -> bool:
    return baseline in (row.label, row.mixer)


def _ordered(pair: tuple[Row, Row], baseline: str) -> tuple[Row, Row]:
    first, second = pair
    return (second, first) if is_baseline(first, baseline) and not is_baseline(second, baseline) else (first, second)


def _comparable(first: Row, second: Row) -> bool:
    """Same data set, protocol and metric, both with a score; where both rows sweep a setting, the same value of it."""
    if (first.dataset, first.protocol, first.metric) != (second.dataset, second.protocol, second.metric):
        return False
    mine, other = dict(first.setting), dict(second.setting)
    shared = [key for key in mine if key in other and not key.startswith("mixer.")]
    return bool(first.counted and second.counted) and all(mine[key] == other[key] for key in shared)


def _compare(first: Row, second: Row, known: Container[str] = ()) -> Comparison:
    others = settings.differing(first.counted[0].settings, second.counted[0].settings, known)
    notes = tuple(f"settings differ too: {one}" for one in others)
    seeds = tuple(sorted(set(first.seeds) & set(second.seeds)))
    one, other = correctness(first, seeds), correctness(second, seeds)
    if isinstance(one, Correctness) and isinstance(other, Correctness) and one.same_samples(other):
        return _from_samples(first, second, one, other, notes)
    reason = next((each for each in (one, other) if isinstance(each, str)), "the test samples differ between the runs")
    return _from_seeds(first, second, (*notes, reason))


def _from_samples(first: Row, second: Row, one: Correctness, other: Correctness, notes: tuple[str, ...]) -> Comparison:
    seeds = len(one.seeds)
    dropped = (set(first.seeds) | set(second.seeds)) - set(one.seeds)
    if dropped:
        notes = (*notes, f"seeds of one side only are left out: {', '.join(map(str, sorted(dropped)))}")
    if first.protocol == "paper":
        notes = (*notes, "both scores were chosen on the test split, which the interval does not account for")
    return Comparison(
        first=first,
        second=second,
        estimate=stats.paired_bootstrap(one.correct, other.correct),
        seeds=seeds,
        basis="test samples and seeds" if seeds > 1 else "test samples",
        notes=notes,
    )


def _from_seeds(first: Row, second: Row, notes: tuple[str, ...]) -> Comparison:
    seeds = min(len(first.counted), len(second.counted))
    if seeds < MIN_WELCH_SEEDS:
        return Comparison(first=first, second=second, estimate=None, seeds=seeds, basis="none", notes=notes)
    estimate = stats.welch(
        _scores(first), _scores(second), floor=_resolution(first) if first.metric == "accuracy" else 0.0
    )
    return Comparison(first=first, second=second, estimate=estimate, seeds=seeds, basis="seeds", notes=notes)


def _scores(row: Row) -> list[float]:
    return [score for cell in row.counted if (score := cell.score(row.metric)) is not None]


def _resolution(row: Row) -> float:
    """(1/N)^2: the square of what one test sample changes."""
    result = row.counted[0].result
    samples = result.test.samples if result and result.test else None
    return 1.0 / samples**2 if samples else 0.0


def _corrected(family: list[Comparison]) -> list[Comparison]:
    """Holm's correction over the pairs of one data set and protocol, then the verdicts."""
    adjusted = iter(stats.holm([one.estimate.p_value for one in family if one.estimate and _tested(one)]))
    return [_judged(one, one.estimate, next(adjusted)) if one.estimate and _tested(one) else one for one in family]


def _tested(one: Comparison) -> bool:
    """One seed says nothing of how much training itself varies: an interval, but no test."""
    return one.estimate is not None and one.seeds > 1


def _judged(one: Comparison, estimate: stats.Estimate, adjusted: float) -> Comparison:
    clear = (estimate.low > 0 or estimate.high < 0) and adjusted < ALPHA
    return replace(one, adjusted=adjusted, verdict="distinguishable" if clear else "not distinguishable")
