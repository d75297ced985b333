"""Numbers and names as a reader sees them. Percent metrics are shown in percent, everything else as it is."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

PERCENT_METRICS = frozenset({"accuracy", "macro_f1", "balanced_accuracy", "top5_accuracy"})
"""Metrics that are fractions in a run's files and percent in a report."""

DASH = "–"


@dataclass(frozen=True)
class Spread:
    """Mean over seeds.

    Attributes:
        mean: of the values.
        std: sample standard deviation, None with a single value.
        count: values.
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
        mean = math.fsum(known) / len(known)
        if len(known) == 1:
            return Spread(mean, None, 1)
        return Spread(mean, math.sqrt(math.fsum((one - mean) ** 2 for one in known) / (len(known) - 1)), len(known))


def printable(text: str) -> str:
    """`text` on one line: control, format and surrogate characters (ANSI escapes, newlines, bidi marks) as \\x1b."""
    return "".join(
        one if unicodedata.category(one)[0] != "C" else one.encode("unicode_escape").decode() for one in text
    )


def with_unit(metric: str) -> str:
    """`accuracy (%)`, `perplexity`."""
    return f"{metric} (%)" if metric in PERCENT_METRICS else metric


def scaled(value: float, metric: str) -> float:
    """A metric's value in the unit of the report."""
    return 100.0 * value if metric in PERCENT_METRICS else value


def score_text(value: Spread | float | None, metric: str) -> str:
    """`98.56 ± 0.16`, without the unit; without ± for one value."""
    if value is None:
        return DASH
    if isinstance(value, Spread):
        mean = score_text(value.mean, metric)
        return mean if value.std is None else f"{mean} ± {score_text(value.std, metric)}"
    if not math.isfinite(value):
        return str(value)
    return f"{100.0 * value:.2f}" if metric in PERCENT_METRICS else f"{value:.4g}"


def in_points(difference: float, metric: str) -> str:
    """A difference in percentage points, or in the metric's own unit."""
    return f"{100.0 * difference:.1f}" if metric in PERCENT_METRICS else f"{difference:.3g}"


def interval(low: float, high: float, metric: str) -> str:
    """`[34.3, 38.5]`."""
    return f"[{in_points(low, metric)}, {in_points(high, metric)}]"


def points_word(metric: str) -> str:
    """What `in_points` counts."""
    return "points" if metric in PERCENT_METRICS else metric


def duration(seconds: float | None) -> str:
    """Seconds as a person says them."""
    if seconds is None or not math.isfinite(seconds):
        return DASH
    for size, name in ((3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds:.1f} s"
