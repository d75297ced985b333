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

from subquad.output.terminal import quantity
from subquad.plugin.metric import Metric
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
        first = self.rows[0].first
        return first.shown(first.metric)

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
        count = len(scored)
        metric = self.metric
        scores = []
        means = []
        for score, row in scored:
            scores.append(score)
            means.append((score.mean, self.value(row)))
        lowest, at_lowest = min(means, key=lambda mean: mean[0])
        highest, at_highest = max(means, key=lambda mean: mean[0])
        low = metric.number(lowest)
        if lowest == highest:
            return f"all {count} means are {low}"
        high = metric.number(highest)
        points = metric.points(highest - lowest)
        span = f"means from {low} ({at_lowest}) to {high} ({at_highest})"
        sentence = f"{span}, {points} {metric.points_word} apart"
        alone = _range_by_seeds(scores)
        if alone is None:
            return sentence
        return f"{sentence}; seeds alone would put {count} such means {metric.points(alone)} apart"

    def _verdict(self) -> str:
        p_values = []
        clear = []
        for pair in self.comparisons:
            if pair.adjusted is None or pair.estimate is None:
                continue
            p_values.append(pair.adjusted)
            if pair.verdict == "distinguishable":
                clear.append((abs(pair.estimate.difference), pair))
        tested = len(p_values)
        if not tested:
            return "not enough seeds to tell values apart"
        pairs = quantity(tested, "pair")
        if not clear:
            tests = f"smallest p of {pairs} after Holm's correction: {min(p_values):.2f}"
            return f"no two values are distinguishable ({tests})"
        count = len(clear)
        _, largest = max(clear, key=lambda found: found[0])
        first = self.value(largest.first)
        second = self.value(largest.second)
        estimate = " ".join(largest.estimate_texts)
        gap = f"{first} − {second}: {estimate}"
        return f"distinguishable: {count} of {pairs}, the largest {gap}"

    def _chosen(self, scored: Sequence[tuple[Spread, TableRow]]) -> str:
        """What the validation means would choose, and what that scores."""
        values = defaultdict[float, list[str]](list)
        scores = {}
        for score, row in scored:
            if row.validation is None:
                return ""
            mean = row.validation.mean
            values[mean].append(self.value(row))
            scores[mean] = score.mean
        best = min(values)
        if self.selection.mode == "max":
            best = max(values)
        equal = values[best]
        chosen = ", ".join(equal)
        if len(equal) > 1:
            return f"validation does not choose between {chosen}"
        return f"validation would choose {chosen}, test {self.metric.number(scores[best])}"


def make_curves(rows: Sequence[TableRow]) -> list[Curve]:
    """A curve for every setting and every group of two rows and more that differ in it alone, in
    the table's order.
    """
    groups = defaultdict[tuple[str, ...], list[TableRow]](list)
    for row in rows:
        alike = (*row.family, row.label, row.metric)
        groups[alike].append(row)
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
            along[tuple([(name, row.settings.get(name, "none")) for name in others])].append(row)
        for at, rows in along.items():
            members = tuple(map(id, rows))
            if len(rows) < 2 or members in drawn:
                continue
            # of two settings that switch each other off the first stands for both
            drawn.add(members)
            rows.sort(key=lambda row: in_order(row.settings.get(key, "none")))
            yield Curve(
                key=key,
                rows=tuple(rows),
                # where all curves meet in one base, it need not be told
                at=() if has_base else at,
                comparisons=tuple(compare_values(rows, key)),
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
    return float(np.trapezoid(1 - below**count - (1 - below) ** count, grid))
