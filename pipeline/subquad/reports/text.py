"""Numbers and names as a reader sees them. Fractions are shown in percent or points, everything
else as it is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from subquad.errors import escaped
from subquad.output.terminal import DASH
from subquad.plugin.metric import Metric, metric_of

Values = dict[str, Any]
"""Plain values by name, as JSON has them."""

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
        count = len(known)
        mean = math.fsum(known) / count
        if count == 1:
            return Spread(mean, None, count)
        squares = math.fsum((value - mean) ** 2 for value in known)
        return Spread(mean, math.sqrt(squares / (count - 1)), count)


_LONGEST = 10_000
"""Characters of a name or line of somebody else's."""


def printable(text: str) -> str:
    """`text` on one line, control, format and surrogate characters (ANSI, bidi marks) as \\x1b.

    It is cut where no table or chart could show it.
    """
    return escaped(text, limit=_LONGEST)


def score_text(metric: Metric, value: Spread | float | None) -> str:
    """`98.56 ± 0.16`, without the unit; without ± for one value."""
    if value is None:
        return DASH
    if not isinstance(value, Spread):
        return metric.number(value)
    mean = metric.number(value.mean)
    if value.std is None:
        return mean
    return f"{mean} ± {metric.number(value.std)}"


def metric_lines(scores: Mapping[str, float], metrics: Mapping[str, Metric]) -> list[str]:
    """`accuracy (%) 91.23`, `ROUGE-L 22.31 [21.0, 23.5]` where the ends of its interval are
    among the scores.
    """
    intervals: dict[str, Ends] = {}
    ends = set[str]()
    for name in scores:
        low = f"{name}_low"
        high = f"{name}_high"
        if low in scores and high in scores:
            intervals[name] = scores[low], scores[high]
            ends |= {low, high}
    lines: list[str] = []
    for name, value in scores.items():
        if name in ends:
            continue
        metric = metric_of(metrics, name)
        line = f"{metric.with_unit} {metric.number(value)}"
        if name in intervals:
            interval = metric.interval(*intervals[name])
            line += f" {interval}"
        lines.append(line)
    return lines


def setting_text(value: Any) -> str:
    """A setting as text; mixers of some layers or roles in words."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(map(_is_mixer, value)):
        return "; ".join(map(_mixer_text, value))
    return json.dumps(value, sort_keys=True, default=str)


def _is_mixer(entry: Any) -> bool:
    return isinstance(entry, Mapping) and "name" in entry


def _mixer_text(entry: Values) -> str:
    text = entry["name"]
    if layers := entry.get("layers"):
        numbers = ", ".join(map(str, layers))
        text += f" in layers {numbers}"
    if role := entry.get("role"):
        text += f" for {role}"
    if params := entry.get("params"):
        listed = ", ".join([f"{key} {setting_text(value)}" for key, value in params.items()])
        text += f" ({listed})"
    return text
