"""Curves: what changing one setting, with all others the same, does to the score. Method:
docs/reference/report.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from scipy.special import ndtr

from subquad.output.terminal import quantity
from subquad.reports.model import Curve, TableRow
from subquad.reports.reported_run import varying, with_alternative
from subquad.reports.text import Setting, Spread, grouped, in_order

CURVE_NOTE = (
    "The best value of a curve is chosen by its test scores, which makes it look "
    "better than it is: to choose one, "
    "take the validation means beside them, or search (subquad tune). Values are "
    "compared pair by pair as mixers are, "
    "with Holm's correction over the pairs of one curve."
)
_MIXER_FILE = "mixer.source"
"""Another text of a mixer's file is another mixer, not another value of a setting."""


def varied_rows(rows: Sequence[TableRow]) -> Iterator[tuple[str, Setting, tuple[TableRow, ...]]]:
    """Every setting and every group of two rows and more that differ in it alone, in the table's
    order, with what tells the group from others.
    """
    for group in grouped(rows, lambda row: (*row.family, row.label, row.metric)).values():
        keys = varying(row.settings for row in group)
        # where all curves meet in one base, it need not be told
        has_base = any(row.is_base for row in group)
        drawn = set[frozenset[TableRow]]()
        for key in keys:
            if key == _MIXER_FILE:
                continue
            others = [name for name in keys if name not in with_alternative(key)]
            for at, members in grouped(group, partial(_setting, others)).items():
                # of two settings that switch each other off the first stands for both
                if len(members) > 1 and frozenset(members) not in drawn:
                    drawn.add(frozenset(members))
                    members.sort(key=lambda row: in_order(row.settings.get(key, "none")))
                    yield key, () if has_base else at, tuple(members)


def _setting(keys: Sequence[str], row: TableRow) -> Setting:
    return tuple((key, row.settings.get(key, "none")) for key in keys)


def curve_sentence(curve: Curve) -> str:
    """The spread of the means, that of seeds, whether any two values differ, and what validation
    would choose.
    """
    scored = [(row.score, row) for row in curve.rows if row.score]
    if len(scored) < 2:
        return "fewer than two values have a score"
    parts = [_spread(curve, scored), _verdict(curve)]
    if any(pair.unequal for pair in curve.comparisons):
        parts.append("its values were tuned unequally")
    known = [(row.validation.mean, score, row) for score, row in scored if row.validation]
    if len(known) == len(scored):
        means = [mean for mean, *_ in known]
        best = max(means) if curve.selection.mode == "max" else min(means)
        chosen = [
            f"{curve.value(row)}, test {row.compared.number(score.mean)}"
            for mean, score, row in known
            if mean == best
        ]
        parts.append(f"validation would choose {' or '.join(chosen)}")
    return "; ".join(parts)


def _spread(curve: Curve, scored: Sequence[tuple[Spread, TableRow]]) -> str:
    metric = curve.rows[0].compared
    low, at_low = min(scored, key=lambda mean: mean[0].mean)
    high, at_high = max(scored, key=lambda mean: mean[0].mean)
    ends = f"{metric.number(low.mean)} ({curve.value(at_low)})"
    ends += f" to {metric.number(high.mean)} ({curve.value(at_high)})"
    span = f"means from {ends}, {metric.points(high.mean - low.mean)} {metric.points_word} apart"
    # seeds' variances, pooled
    variances = [score.std**2 / score.count for score, _ in scored if score.std is not None]
    count = len(scored)
    if len(variances) < count:
        return span
    alone = _expected_range(count) * math.sqrt(math.fsum(variances) / count)
    return f"{span}; seeds alone would put {count} such means {metric.points(alone)} apart"


def _verdict(curve: Curve) -> str:
    tested = [pair for pair in curve.comparisons if pair.adjusted is not None]
    if not tested:
        return "not enough seeds to tell values apart"
    clear = [pair for pair in tested if pair.verdict == "distinguishable"]
    if not clear:
        least = min(pair.adjusted or 0.0 for pair in tested)
        return f"no two values are distinguishable (least p after Holm's correction: {least:.2f})"
    largest = max(clear, key=lambda pair: abs(pair.estimate.difference if pair.estimate else 0.0))
    gap = f"{curve.value(largest.first)} − {curve.value(largest.second)}"
    count = f"{len(clear)} of {quantity(len(tested), 'pair')}"
    return f"distinguishable: {count}, the largest {gap}: {' '.join(largest.estimate_texts)}"


def _expected_range(count: int) -> float:
    """Mean of largest minus smallest of `count` standard normal values. Reference: Tippett,
    1925.
    """
    grid = np.linspace(-8.0, 8.0, 1601)
    below = ndtr(grid)
    return float(np.trapezoid(1 - below**count - (1 - below) ** count, grid))
