"""Curves: what changing one setting, with all others the same, does to the score. Method: docs/reference/report.md."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from subquad.metric import Metric
from subquad.report.compare import Comparison, compare_values
from subquad.report.rows import Setting, TableRow, in_order, short_setting, varying, with_alternative
from subquad.report.text import Spread

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
    def metric(self) -> Metric:
        return self.rows[0].compared

    @property
    def selection(self) -> Metric:
        """What selects checkpoints, and is known of the validation split."""
        return self.rows[0].shown(self.rows[0].first.metric)

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
        scored = [(row.score, row) for row in self.rows if row.score]
        if len(scored) < 2:
            return "fewer than two values have a score"
        spent = "its values were tuned unequally" if any(one.unequal for one in self.comparisons) else ""
        told = (self._spread(scored), self._verdict(), spent, self._chosen(scored))
        return "; ".join(part for part in told if part)

    def _spread(self, scored: Sequence[tuple[Spread, TableRow]]) -> str:
        means = [(score.mean, self.value(row)) for score, row in scored]
        (low, lowest), (high, highest) = (find(means, key=lambda one: one[0]) for find in (min, max))
        if low == high:
            return f"all {len(means)} means are {self.metric.number(low)}"
        said = f"means from {self.metric.number(low)} ({lowest}) to {self.metric.number(high)} ({highest})"
        alone = _range_by_seeds([score for score, _ in scored])
        seeds = (
            ""
            if alone is None
            else f"; seeds alone would put {len(means)} such means {self.metric.points(alone)} apart"
        )
        return f"{said}, {self.metric.points(high - low)} {self.metric.points_word} apart{seeds}"

    def _verdict(self) -> str:
        tested = [(one.adjusted, one) for one in self.comparisons if one.adjusted is not None]
        if not tested:
            return "not enough seeds to tell values apart"
        clear = [
            (abs(one.estimate.difference), one)
            for _, one in tested
            if one.verdict == "distinguishable" and one.estimate
        ]
        pairs = f"{len(tested)} pair{'' if len(tested) == 1 else 's'}"
        if not clear:
            least = min(adjusted for adjusted, _ in tested)
            return f"no two values are distinguishable (smallest p of {pairs} after Holm's correction: {least:.2f})"
        _, largest = max(clear, key=lambda one: one[0])
        said = f"{self.value(largest.first)} − {self.value(largest.second)}: {' '.join(largest.estimate_texts)}"
        return f"distinguishable: {len(clear)} of {pairs}, the largest {said}"

    def _chosen(self, scored: Sequence[tuple[Spread, TableRow]]) -> str:
        """What the validation means would choose, and what that scores."""
        means = [row.validation.mean for _, row in scored if row.validation]
        if len(means) < len(scored):
            return ""
        top = max(means) if self.selection.mode == "max" else min(means)
        ties = [one for mean, one in zip(means, scored, strict=True) if mean == top]
        if len(ties) > 1:
            return f"validation does not choose between {', '.join(self.value(row) for _, row in ties)}"
        return f"validation would choose {self.value(ties[0][1])}, test {self.metric.number(ties[0][0].mean)}"


def make_curves(rows: Sequence[TableRow]) -> list[Curve]:
    """A curve for every setting and every group of two rows and more that differ in it alone, in the table's order."""
    groups: dict[tuple[str, ...], list[TableRow]] = {}
    for row in rows:
        groups.setdefault((*row.family, row.label, row.metric), []).append(row)
    return [curve for group in groups.values() for curve in _curves_of(group)]


def _curves_of(group: Sequence[TableRow]) -> Iterator[Curve]:
    keys = varying(row.settings for row in group)
    seen = set[tuple[int, ...]]()
    for key in keys:
        others = [name for name in keys if name not in with_alternative(key)]
        along: dict[Setting, list[TableRow]] = {}
        for row in group:
            along.setdefault(tuple((name, row.settings.get(name, "none")) for name in others), []).append(row)
        for at, values in along.items():
            members = tuple(map(id, values))
            if len(values) > 1 and key != _MIXER_FILE and members not in seen:
                seen.add(members)  # of two settings that switch each other off the first stands for both
                values = sorted(values, key=lambda row: in_order(row.settings.get(key, "none")))
                # where all curves meet in one base, it need not be told
                at = () if any(row.is_base for row in group) else at
                yield Curve(key=key, rows=tuple(values), at=at, comparisons=tuple(compare_values(values, key)))


def _range_by_seeds(scores: Sequence[Spread]) -> float | None:
    """Expected largest minus smallest mean if the setting did nothing: seeds' variances, pooled; None with one seed."""
    variances = [score.std**2 / score.count for score in scores if score.std is not None]
    if len(variances) < len(scores):
        return None
    return _expected_range(len(scores)) * math.sqrt(math.fsum(variances) / len(variances))


def _expected_range(count: int) -> float:
    """Mean of largest minus smallest of `count` standard normal values. Reference: Tippett, 1925."""
    grid = np.linspace(-8.0, 8.0, 1601)
    below = ndtr(grid)
    return float(np.trapezoid(1 - below**count - (1 - below) ** count, grid))
