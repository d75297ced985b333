"""Curves: what changing one setting, with all others the same, does to the score. Method:
docs/reference/report.md.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from subquad.metric import Metric
from subquad.reports.compare import Comparison, compare_values
from subquad.reports.rows import (
    Setting,
    TableRow,
    in_order,
    short_setting,
    varying,
    with_alternative,
)
from subquad.reports.text import Spread
from subquad.terminal import quantity

CURVE_NOTE = (
    "The best value of a curve is chosen by its test scores, which makes it look "
    "better than it is: to choose one, "
    "take the validation means beside them, or search (subquad tune). Values are "
    "compared pair by pair as mixers are, "
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
        first = self.rows[0]
        title = f"{first.dataset}, {first.label} ({first.protocol}): {self.name}"
        if self.at:
            title += f" at {short_setting(self.at)}"
        return title

    def value(self, row: TableRow) -> str:
        """A row's value of the setting."""
        return row.settings.get(self.key, "none")

    @property
    def sentence(self) -> str:
        """The spread of the means, that of seeds, whether any two values differ, and what
        validation would choose.
        """
        scored = [(row.score, row) for row in self.rows if row.score]
        if len(scored) < 2:
            return "fewer than two values have a score"
        parts = [self._spread(scored), self._verdict()]
        if any(pair.unequal for pair in self.comparisons):
            parts.append("its values were tuned unequally")
        if chosen := self._chosen(scored):
            parts.append(chosen)
        return "; ".join(parts)

    def _spread(self, scored: Sequence[tuple[Spread, TableRow]]) -> str:
        means = [(score.mean, self.value(row)) for score, row in scored]
        low, lowest = min(means, key=lambda mean: mean[0])
        high, highest = max(means, key=lambda mean: mean[0])
        metric = self.metric
        lower = metric.number(low)
        if low == high:
            return f"all {len(scored)} means are {lower}"
        upper = metric.number(high)
        gap = f"{metric.points(high - low)} {metric.points_word}"
        sentence = f"means from {lower} ({lowest}) to {upper} ({highest}), {gap} apart"
        alone = _range_by_seeds([score for score, _ in scored])
        if alone is None:
            return sentence
        by_seeds = f"{len(scored)} such means {metric.points(alone)} apart"
        return f"{sentence}; seeds alone would put {by_seeds}"

    def _verdict(self) -> str:
        p_values = []
        clear = []
        for pair in self.comparisons:
            if pair.adjusted is None or pair.estimate is None:
                continue
            p_values.append(pair.adjusted)
            if pair.verdict == "distinguishable":
                clear.append((abs(pair.estimate.difference), pair))
        if not p_values:
            return "not enough seeds to tell values apart"
        pairs = quantity(len(p_values), "pair")
        if not clear:
            tests = f"smallest p of {pairs} after Holm's correction: {min(p_values):.2f}"
            return f"no two values are distinguishable ({tests})"
        _, largest = max(clear, key=lambda found: found[0])
        gap = f"{self.value(largest.first)} − {self.value(largest.second)}"
        estimate = " ".join(largest.estimate_texts)
        return f"distinguishable: {len(clear)} of {pairs}, the largest {gap}: {estimate}"

    def _chosen(self, scored: Sequence[tuple[Spread, TableRow]]) -> str:
        """What the validation means would choose, and what that scores."""
        by_mean = defaultdict[float, list[tuple[Spread, TableRow]]](list)
        for score, row in scored:
            if row.validation is None:
                return ""
            by_mean[row.validation.mean].append((score, row))
        best = max(by_mean) if self.selection.mode == "max" else min(by_mean)
        chosen = by_mean[best]
        values = ", ".join(self.value(row) for _, row in chosen)
        if len(chosen) > 1:
            return f"validation does not choose between {values}"
        score, _ = chosen[0]
        return f"validation would choose {values}, test {self.metric.number(score.mean)}"


def make_curves(rows: Sequence[TableRow]) -> list[Curve]:
    """A curve for every setting and every group of two rows and more that differ in it alone, in
    the table's order.
    """
    groups = defaultdict[tuple[str, ...], list[TableRow]](list)
    for row in rows:
        groups[*row.family, row.label, row.metric].append(row)
    curves: list[Curve] = []
    for group in groups.values():
        curves += _curves_of(group)
    return curves


def _curves_of(group: Sequence[TableRow]) -> Iterator[Curve]:
    keys = varying(row.settings for row in group)
    drawn = set[tuple[int, ...]]()
    has_base = any(row.is_base for row in group)
    for key in keys:
        if key == _MIXER_FILE:
            continue
        varied = with_alternative(key)
        others = [name for name in keys if name not in varied]
        along = defaultdict[Setting, list[TableRow]](list)
        for row in group:
            at = tuple((name, row.settings.get(name, "none")) for name in others)
            along[at].append(row)
        for at, values in along.items():
            members = tuple(map(id, values))
            if len(values) < 2 or members in drawn:
                continue
            # of two settings that switch each other off the first stands for both
            drawn.add(members)
            values.sort(key=lambda row: in_order(row.settings.get(key, "none")))
            yield Curve(
                key=key,
                rows=tuple(values),
                # where all curves meet in one base, it need not be told
                at=() if has_base else at,
                comparisons=tuple(compare_values(values, key)),
            )


def _range_by_seeds(scores: Sequence[Spread]) -> float | None:
    """Expected largest minus smallest mean if the setting did nothing: seeds' variances, pooled;
    None with one seed.
    """
    variances = []
    for score in scores:
        if score.std is None:
            return None
        variances.append(score.std**2 / score.count)
    count = len(scores)
    variance = math.fsum(variances) / count
    return _expected_range(count) * math.sqrt(variance)


def _expected_range(count: int) -> float:
    """Mean of largest minus smallest of `count` standard normal values. Reference: Tippett,
    1925.
    """
    grid = np.linspace(-8.0, 8.0, 1601)
    below = ndtr(grid)
    above = 1 - below
    inside = 1 - below**count - above**count
    return float(np.trapezoid(inside, grid))
