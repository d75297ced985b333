"""Curves: what changing one setting, with all others the same, does to the score. Method: docs/reference/report.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from subquad.report.compare import Comparison, compare_values
from subquad.report.rows import Setting, TableRow, in_order, short_setting, varying, with_alternatives
from subquad.report.text import Metric

CURVE_NOTE = (
    "The best value of a curve is chosen by its test scores, which makes it look better than it is: to choose one, "
    "take the validation means beside them, or search (subquad tune). Values are compared pair by pair as mixers are, "
    "with Holm's correction over the pairs of one curve."
)
_MIXER_FILE = "mixer.source"
"""Another text of a mixer's file is another mixer, not another value of a setting."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One setting's values with everything else the same.

    Attributes:
        key: the setting.
        rows: in the order of its values.
        at: what tells the rows from those of other curves over the same setting.
        comparisons: pairs of the rows; corrected over these.
    """

    key: str
    rows: tuple[TableRow, ...]
    at: Setting
    comparisons: tuple[Comparison, ...]

    @property
    def name(self) -> str:
        """The last word of the setting."""
        return self.key.rpartition(".")[2]

    @property
    def metric(self) -> str:
        return self.rows[0].metric

    @property
    def title(self) -> str:
        """`recall, mine (honest): order`, with what else tells it from others."""
        first, where = self.rows[0], f" at {short_setting(self.at)}" if self.at else ""
        return f"{first.dataset}, {first.label} ({first.protocol}): {self.name}{where}"

    def value(self, row: TableRow) -> str:
        """A row's value of the setting."""
        return row.settings.get(self.key, "none")

    @property
    def sentence(self) -> str:
        """The spread of the means, that of seeds, whether any two values differ, and what validation would choose."""
        scored = [row for row in self.rows if row.score]
        if len(scored) < 2:
            return "fewer than two values have a score"
        return "; ".join(part for part in (self._spread(scored), self._verdict(), self._chosen(scored)) if part)

    def _spread(self, rows: Sequence[TableRow]) -> str:
        metric, low, high = Metric(self.metric), min(rows, key=_mean), max(rows, key=_mean)
        if _mean(low) == _mean(high):
            return f"all {len(rows)} means are {metric.score(_mean(low))}"
        said = " to ".join(f"{metric.score(_mean(row))} ({self.value(row)})" for row in (low, high))
        alone = _by_seeds(rows)
        apart = "" if alone is None else f"; seeds alone would put {len(rows)} such means {metric.points(alone)} apart"
        return f"means from {said}, {metric.points(_mean(high) - _mean(low))} {metric.points_word} apart{apart}"

    def _verdict(self) -> str:
        tested = [pair for pair in self.comparisons if pair.adjusted is not None]
        if not tested:
            return "not enough seeds to tell values apart"
        clear = [pair for pair in tested if pair.verdict == "distinguishable"]
        pairs = f"{len(tested)} pair{'' if len(tested) == 1 else 's'}"
        if not clear:
            least = min(pair.adjusted for pair in tested if pair.adjusted is not None)
            return f"no two values are distinguishable (smallest p of {pairs} after Holm's correction: {least:.2f})"
        largest = max(clear, key=lambda pair: abs(pair.estimate.difference) if pair.estimate else 0.0)
        gap, ends = largest.estimate_texts
        said = f"{self.value(largest.first)} − {self.value(largest.second)}: {gap} {ends}"
        return f"distinguishable: {len(clear)} of {pairs}, the largest {said}"

    def _chosen(self, rows: Sequence[TableRow]) -> str:
        """What the validation means would choose, and what that scores."""
        means = [(row.validation.mean, row) for row in rows if row.validation]
        if len(means) < len(rows):
            return ""
        top = (max if rows[0].mode == "max" else min)(mean for mean, _ in means)
        ties = [row for mean, row in means if mean == top]
        if len(ties) > 1:
            return f"validation does not choose between {', '.join(map(self.value, ties))}"
        return f"validation would choose {self.value(ties[0])}, test {Metric(self.metric).score(_mean(ties[0]))}"


def make_curves(rows: Sequence[TableRow]) -> list[Curve]:
    """A curve for every setting and every group of two rows and more that differ in it alone, in the table's order."""
    groups: dict[tuple[str, ...], list[TableRow]] = {}
    for row in rows:
        groups.setdefault((*row.family, row.label, row.metric), []).append(row)
    return [curve for group in groups.values() if len(group) > 1 for curve in _curves_of(group)]


def _curves_of(group: Sequence[TableRow]) -> list[Curve]:
    keys = [key for key in varying(row.settings for row in group) if key != _MIXER_FILE]
    found: dict[tuple[int, ...], Curve] = {}
    for key in keys:
        apart = with_alternatives([key])
        others = [name for name in varying(row.settings for row in group) if name not in apart]
        along: dict[tuple[str, ...], list[TableRow]] = {}
        for row in group:
            along.setdefault(tuple(row.settings.get(name, "none") for name in others), []).append(row)
        for values in along.values():
            if len(values) > 1:  # of two settings that switch each other off the first stands for both
                found.setdefault(tuple(map(id, values)), _curve(key, values, others, star=_is_star(group)))
    return list(found.values())


def _is_star(group: Sequence[TableRow]) -> bool:
    """Whether all curves meet in one base, which then need not be told."""
    return any(row.is_base for row in group)


def _curve(key: str, rows: Sequence[TableRow], others: Sequence[str], *, star: bool) -> Curve:
    rows = sorted(rows, key=lambda row: in_order(row.settings.get(key, "none")))
    at = () if star else tuple((name, rows[0].settings.get(name, "none")) for name in others)
    return Curve(key=key, rows=tuple(rows), at=at, comparisons=tuple(compare_values(rows, key)))


def _mean(row: TableRow) -> float:
    return row.score.mean if row.score else 0.0


def _by_seeds(rows: Sequence[TableRow]) -> float | None:
    """Expected largest minus smallest mean if the setting did nothing: seeds' variances, pooled; None with one seed."""
    scores = [row.score for row in rows if row.score]
    variances = [score.std**2 / score.count for score in scores if score.std is not None]
    if len(variances) < len(scores):
        return None
    return _expected_range(len(scores)) * math.sqrt(math.fsum(variances) / len(variances))


def _expected_range(count: int) -> float:
    """Mean of largest minus smallest of `count` standard normal values. Reference: Tippett, 1925."""
    grid = np.linspace(-8.0, 8.0, 1601)
    below = ndtr(grid)
    return float(np.trapezoid(1 - below**count - (1 - below) ** count, grid))
