"""Curves: what changing one setting, with all others the same, does to the score. Method:
docs/reference/report.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from subquad.output.terminal import quantity
from subquad.plugin.metric import Metric
from subquad.reports.beside import printed_values, published_beside
from subquad.reports.compare import Comparison, compare_values
from subquad.reports.published import Beside, PublishedRow
from subquad.reports.reported_run import varying, with_alternative
from subquad.reports.rows import TableRow
from subquad.reports.text import Setting, Spread, grouped, in_order, short_setting

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
        beside: for each row the published rows of its value.
        printed: every published value of the setting, with its row.
    """

    key: str
    rows: tuple[TableRow, ...]
    at: Setting
    comparisons: tuple[Comparison, ...]
    beside: Mapping[TableRow, Sequence[Beside]]
    printed: Sequence[tuple[float, PublishedRow]]

    @property
    def name(self) -> str:
        """The last word of the setting."""
        return self.key.rpartition(".")[2]

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
        return f"{title} at {short_setting(self.at)}" if self.at else title

    def value(self, row: TableRow) -> str:
        """A row's value of the setting."""
        return row.first.settings.get(self.key, "none")

    @property
    def sentence(self) -> str:
        """The spread of the means, that of seeds, whether any two values differ, and what
        validation would choose.
        """
        scored = [(row.score, row) for row in self.rows if row.score]
        if len(scored) < 2:
            return "fewer than two values have a score"
        parts = [self._spread(scored), self._verdict]
        if any(pair.unequal for pair in self.comparisons):
            parts.append("its values were tuned unequally")
        known = [(row.validation.mean, score, row) for score, row in scored if row.validation]
        if len(known) == len(scored):
            means = [mean for mean, *_ in known]
            best = max(means) if self.selection.mode == "max" else min(means)
            chosen = [
                f"{self.value(row)}, test {row.compared.number(score.mean)}"
                for mean, score, row in known
                if mean == best
            ]
            parts.append(f"validation would choose {' or '.join(chosen)}")
        return "; ".join(parts)

    def _spread(self, scored: Sequence[tuple[Spread, TableRow]]) -> str:
        metric = self.rows[0].compared
        low, at_low = min(scored, key=lambda mean: mean[0].mean)
        high, at_high = max(scored, key=lambda mean: mean[0].mean)
        span = (
            f"means from {metric.number(low.mean)} ({self.value(at_low)}) to "
            f"{metric.number(high.mean)} ({self.value(at_high)}), "
            f"{metric.points(high.mean - low.mean)} {metric.points_word} apart"
        )
        # seeds' variances, pooled
        variances = [score.std**2 / score.count for score, _ in scored if score.std is not None]
        count = len(scored)
        if len(variances) < count:
            return span
        alone = metric.points(_expected_range(count) * math.sqrt(math.fsum(variances) / count))
        return f"{span}; seeds alone would put {count} such means {alone} apart"

    @property
    def _verdict(self) -> str:
        tested = [pair for pair in self.comparisons if pair.adjusted is not None]
        if not tested:
            return "not enough seeds to tell values apart"
        clear = [pair for pair in tested if pair.verdict == "distinguishable"]
        if not clear:
            least = min(pair.adjusted or 0.0 for pair in tested)
            correction = f"least p after Holm's correction: {least:.2f}"
            return f"no two values are distinguishable ({correction})"
        largest = max(clear, key=lambda pair: abs(pair.estimate.difference if pair.estimate else 0))
        count = f"{len(clear)} of {quantity(len(tested), 'pair')}"
        gap = f"{self.value(largest.first)} − {self.value(largest.second)}"
        return f"distinguishable: {count}, the largest {gap}: {' '.join(largest.estimate_texts)}"


def _expected_range(count: int) -> float:
    """Mean of largest minus smallest of `count` standard normal values. Reference: Tippett,
    1925.
    """
    grid = np.linspace(-8.0, 8.0, 1601)
    below = ndtr(grid)
    return float(np.trapezoid(1 - below**count - (1 - below) ** count, grid))


def make_curves(rows: Sequence[TableRow]) -> Iterator[Curve]:
    """Every setting and every group of two rows and more that differ in it alone, in the table's
    order.
    """
    for group in grouped(rows, lambda row: (*row.family, row.label, row.metric)).values():
        keys = varying(row.first.settings for row in group)
        # where all curves meet in one base, it need not be told
        has_base = any(row.is_base for row in group)
        drawn = set[frozenset[TableRow]]()
        for key in keys:
            if key == _MIXER_FILE:
                continue
            others = [name for name in keys if name not in with_alternative(key)]
            for at, members in grouped(group, lambda row, keys=others: row.first.at(keys)).items():
                # of two settings that switch each other off the first stands for both
                if len(members) > 1 and frozenset(members) not in drawn:
                    drawn.add(frozenset(members))
                    members.sort(key=lambda row: in_order(row.first.settings.get(key, "none")))
                    yield Curve(
                        key=key,
                        rows=tuple(members),
                        at=() if has_base else at,
                        comparisons=tuple(compare_values(members, key)),
                        beside={row: published_beside(row, key) for row in members},
                        printed=[
                            (value, row) for value, row, *_ in printed_values(members[0], key)
                        ],
                    )
