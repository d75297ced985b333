"""Curves: what changing one setting, with all others the same, does to the score. Method:
docs/reference/report.md.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.special import ndtr

from subquad.output.terminal import quantity
from subquad.reports.model import Curve, TableRow
from subquad.reports.reported_run import varying, with_alternative
from subquad.reports.text import Setting, Spread, in_order

CURVE_NOTE = (
    "The best value of a curve is chosen by its test scores, which makes it look "
    "better than it is: to choose one, "
    "take the validation means beside them, or search (subquad tune). Values are "
    "compared pair by pair as mixers are, "
    "with Holm's correction over the pairs of one curve."
)
_MIXER_FILE = "mixer.source"
"""Another text of a mixer's file is another mixer, not another value of a setting."""

_Scored = Sequence[tuple[Spread, TableRow]]


def varied_rows(rows: Sequence[TableRow]) -> Iterator[tuple[str, Setting, tuple[TableRow, ...]]]:
    """Every setting and every group of two rows and more that differ in it alone, in the table's
    order, with what tells the group from others.
    """
    groups = defaultdict[tuple[str, ...], list[TableRow]](list)
    for row in rows:
        groups[*row.family, row.label, row.metric].append(row)
    for group in groups.values():
        keys = varying(row.settings for row in group)
        # where all curves meet in one base, it need not be told
        has_base = any(row.is_base for row in group)
        drawn = set[frozenset[TableRow]]()
        for key in keys:
            if key == _MIXER_FILE:
                continue
            others = [name for name in keys if name not in with_alternative(key)]
            along = defaultdict[Setting, list[TableRow]](list)
            for row in group:
                at = [(name, row.settings.get(name, "none")) for name in others]
                along[tuple(at)].append(row)
            for at, members in along.items():
                # of two settings that switch each other off the first stands for both
                if len(members) > 1 and frozenset(members) not in drawn:
                    drawn.add(frozenset(members))
                    members.sort(key=lambda row: in_order(row.settings.get(key, "none")))
                    yield key, () if has_base else at, tuple(members)


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
    return "; ".join([*parts, *_chosen(curve)])


def _spread(curve: Curve, scored: _Scored) -> str:
    metric = curve.rows[0].compared
    means = [(score.mean, curve.value(row)) for score, row in scored]
    lowest, at_lowest = min(means, key=lambda mean: mean[0])
    highest, at_highest = max(means, key=lambda mean: mean[0])
    low = metric.number(lowest)
    if lowest == highest:
        return f"all {len(means)} means are {low}"
    apart = f"{metric.points(highest - lowest)} {metric.points_word} apart"
    span = f"means from {low} ({at_lowest}) to {metric.number(highest)} ({at_highest}), {apart}"
    alone = _range_by_seeds([score for score, _ in scored])
    if alone is None:
        return span
    return f"{span}; seeds alone would put {len(means)} such means {metric.points(alone)} apart"


def _verdict(curve: Curve) -> str:
    tested = [pair for pair in curve.comparisons if pair.adjusted is not None]
    if not tested:
        return "not enough seeds to tell values apart"
    pairs = quantity(len(tested), "pair")
    clear = [
        (abs(pair.estimate.difference), pair)
        for pair in tested
        if pair.estimate and pair.verdict == "distinguishable"
    ]
    if not clear:
        least = min(pair.adjusted or 0.0 for pair in tested)
        tests = f"smallest p of {pairs} after Holm's correction: {least:.2f}"
        return f"no two values are distinguishable ({tests})"
    _, largest = max(clear, key=lambda found: found[0])
    gap = f"{curve.value(largest.first)} − {curve.value(largest.second)}"
    estimate = " ".join(largest.estimate_texts)
    return f"distinguishable: {len(clear)} of {pairs}, the largest {gap}: {estimate}"


def _chosen(curve: Curve) -> Iterator[str]:
    """What the validation means would choose, and what that scores."""
    values = defaultdict[float, list[TableRow]](list)
    for row in curve.rows:
        if row.score:
            values[row.validation.mean if row.validation else math.nan].append(row)
    if any(map(math.isnan, values)):
        return
    best = values[max(values) if curve.selection.mode == "max" else min(values)]
    chosen = ", ".join(map(curve.value, best))
    if len(best) > 1:
        yield f"validation does not choose between {chosen}"
    elif score := best[0].score:
        metric = curve.rows[0].compared
        yield f"validation would choose {chosen}, test {metric.number(score.mean)}"


def _range_by_seeds(scores: Sequence[Spread]) -> float | None:
    """Expected largest minus smallest mean if the setting did nothing: seeds' variances, pooled;
    None with one seed.
    """
    variances = [score.std**2 / score.count for score in scores if score.std is not None]
    count = len(scores)
    if len(variances) < count:
        return None
    return _expected_range(count) * math.sqrt(math.fsum(variances) / count)


def _expected_range(count: int) -> float:
    """Mean of largest minus smallest of `count` standard normal values. Reference: Tippett,
    1925.
    """
    grid = np.linspace(-8.0, 8.0, 1601)
    below = ndtr(grid)
    return float(np.trapezoid(1 - below**count - (1 - below) ** count, grid))
