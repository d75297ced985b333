"""Numbers and names as a reader sees them. Fractions are shown in percent or points, everything else as it is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from subquad.registry.foreign import plain

_PERCENT = frozenset(
    {"accuracy", "macro_f1", "micro_f1", "balanced_accuracy", "top5_accuracy", "mean_average_precision", "exact_match"}
)
_POINTS = frozenset({"rouge1", "rouge2", "rougeL", "rougeLsum"})
"""Fractions that papers print times 100, without a unit."""
_WORDS = {"macro_f1": "macro-F1", "micro_f1": "micro-F1", "mean_average_precision": "mAP", "exact_match": "exact match"}
_WORDS |= {"top5_accuracy": "top-5 accuracy"}
_WORDS |= {"distinct1": "distinct-1", "distinct2": "distinct-2", "length_ratio": "length ratio"}
_WORDS |= {"bits_per_byte": "bits per byte", "mae": "MAE", "rmse": "RMSE", "r2": "R²"}
_WORDS |= {name: f"ROUGE-{name.removeprefix('rouge')}" for name in _POINTS}
_SHARES = ("distinct1", "distinct2", "repetition", "length_ratio")
_FORMS = (
    {"perplexity": ".2f", "bits_per_byte": ".3f"}
    | dict.fromkeys(_SHARES, ".3f")
    | dict.fromkeys(_PERCENT | _POINTS, ".2f")
)

DASH = "–"
SPREAD_NOTE = "±: standard deviation over the seeds (of a sample, n − 1)"


@dataclass(frozen=True)
class Spread:
    """Mean of `count` values, one a seed, and their sample standard deviation, None with a single value."""

    mean: float
    std: float | None
    count: int

    @staticmethod
    def of(values: Iterable[float | None]) -> Spread | None:
        """Of the values that are finite numbers; None where there is none."""
        known = [value for value in values if value is not None and math.isfinite(value)]
        if not known:
            return None
        count, mean = len(known), math.fsum(known) / len(known)
        std = math.sqrt(math.fsum((one - mean) ** 2 for one in known) / (count - 1)) if count > 1 else None
        return Spread(mean, std, count)


def printable(text: str) -> str:
    """`text` on one line: control, format and surrogate characters (ANSI escapes, newlines, bidi marks) as \\x1b."""
    return plain(text, limit=len(text) * 10)


@dataclass(frozen=True)
class Metric:
    """A metric as a report shows it: fractions times 100 and their differences in points, else its own unit."""

    name: str

    @property
    def is_percent(self) -> bool:
        """Whether a report shows it in percent."""
        return self.name in _PERCENT

    @property
    def is_fraction(self) -> bool:
        """Whether it lies between 0 and 1 in a run's files, and is 100 times that in a report."""
        return self.name in _PERCENT | _POINTS

    @property
    def word(self) -> str:
        """`accuracy`, `ROUGE-L`."""
        return _WORDS.get(self.name, self.name)

    @property
    def with_unit(self) -> str:
        """`accuracy (%)`, `perplexity`."""
        return f"{self.word} (%)" if self.is_percent else self.word

    @property
    def points_word(self) -> str:
        """What `points` counts."""
        return "points" if self.is_fraction else self.word

    def scaled(self, value: float) -> float:
        """A value in the unit of the report."""
        return 100.0 * value if self.is_fraction else value

    def score(self, value: Spread | float | None) -> str:
        """`98.56 ± 0.16`, without the unit; without ± for one value."""
        if value is None:
            return DASH
        if isinstance(value, Spread):
            mean = self.score(value.mean)
            return mean if value.std is None else f"{mean} ± {self.score(value.std)}"
        if not math.isfinite(value):
            return str(value)
        return format(self.scaled(value), _FORMS.get(self.name, ".4g"))

    def points(self, difference: float) -> str:
        """A difference in points, or in the metric's own unit."""
        return f"{100.0 * difference:.1f}" if self.is_fraction else f"{difference:.3g}"

    def interval(self, low: float, high: float) -> str:
        """`[34.3, 38.5]`."""
        return f"[{self.points(low)}, {self.points(high)}]"


def duration(seconds: float | None) -> str:
    """Seconds as a person says them."""
    if seconds is None or not math.isfinite(seconds):
        return DASH
    for size, name in ((3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds:.1f} s"


def metric_lines(scores: Mapping[str, float]) -> list[str]:
    """`accuracy (%) 91.23`, `ROUGE-L 22.31 [21.0, 23.5]` where the ends of its interval are among the scores."""
    ends = {name: (f"{name}_low", f"{name}_high") for name in scores}
    known = {name: (scores[low], scores[high]) for name, (low, high) in ends.items() if {low, high} <= scores.keys()}
    told = [name for name in scores if not any(name in ends[one] for one in known)]
    return [
        f"{Metric(name).with_unit} {Metric(name).score(scores[name])}"
        + (f" {Metric(name).interval(*known[name])}" if name in known else "")
        for name in told
    ]
