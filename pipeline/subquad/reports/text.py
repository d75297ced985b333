"""Numbers and names as a reader sees them. Fractions are shown in percent or points, everything
else as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, TypeVar

from subquad.output.terminal import DASH, quantity
from subquad.plugin.metric import Metric, metric_of

Values = dict[str, Any]
"""Plain values by name, as JSON has them."""

Setting = tuple[tuple[str, str], ...]
"""What tells rows apart: dotted keys with their values as text."""

_Thing = TypeVar("_Thing")
_Key = TypeVar("_Key", bound=Hashable)

Ends = tuple[float, float]
"""The lower and the upper end of an interval."""

SPREAD_NOTE = "±: standard deviation over the seeds (of a sample, n − 1)"


@dataclass(frozen=True)
class Spread:
    """Mean of `count` values, one a seed, and their sample standard deviation, None with a
    single value.
    """

    mean: float
    std: float | None
    count: int

    @staticmethod
    def of(values: Iterable[float | None]) -> Spread | None:
        """Of the values that are finite numbers; None where there is none."""
        known = [value for value in values if value is not None and math.isfinite(value)]
        if not known:
            return None
        return Spread(fmean(known), stdev(known) if len(known) > 1 else None, len(known))


def grouped(things: Iterable[_Thing], key: Callable[[_Thing], _Key]) -> dict[_Key, list[_Thing]]:
    """Things by their key, both in the order in which they come up."""
    groups: dict[_Key, list[_Thing]] = {}
    for thing in things:
        groups.setdefault(key(thing), []).append(thing)
    return groups


def score_text(metric: Metric, value: Spread | None) -> str:
    """`98.56 ± 0.16`, without the unit; without ± for one value."""
    if value is None:
        return DASH
    mean = metric.number(value.mean)
    return mean if value.std is None else f"{mean} ± {metric.number(value.std)}"


def p_text(p_value: float) -> str:
    """`0.031`, `< 0.001`."""
    return "< 0.001" if p_value < 0.0005 else f"{p_value:.3f}"


def near_published(gaps: Collection[float], tolerance: float) -> str:
    """How many of ours less a comparable published number are near 0, below and above."""
    rounded = [round(gap, 9) for gap in gaps]
    below = sum(gap < -tolerance for gap in rounded)
    above = sum(gap > tolerance for gap in rounded)
    near = f"{len(gaps) - below - above} within {tolerance:.1f} points"
    return f"{quantity(len(gaps), 'comparable cell')}: {near}, {below} below, {above} above"


def metric_lines(scores: Mapping[str, float], metrics: Mapping[str, Metric]) -> list[str]:
    """`accuracy (%) 91.23`, `ROUGE-L 22.31 [21.0, 23.5]` where the ends of its interval are
    among the scores.
    """
    lines: list[str] = []
    for name, value in scores.items():
        stem = name.removesuffix("_low").removesuffix("_high")
        if stem != name and scores.keys() >= {stem, f"{stem}_low", f"{stem}_high"}:
            continue
        metric = metric_of(metrics, name)
        line = f"{metric.with_unit} {metric.number(value)}"
        if scores.keys() >= {f"{name}_low", f"{name}_high"}:
            line += f" {metric.interval(scores[f'{name}_low'], scores[f'{name}_high'])}"
        lines.append(line)
    return lines


def short_setting(setting: Setting) -> str:
    """`order=4, lr=0.001`: the last word of each key."""
    return ", ".join(f"{key.rpartition('.')[2]}={value}" for key, value in setting)


def in_order(text: str) -> tuple[float, str]:
    """Sort key of values: numbers in their order, words after them."""
    try:
        return float(text), text
    except ValueError:
        return math.inf, text
