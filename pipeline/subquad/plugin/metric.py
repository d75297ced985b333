"""How a metric is called, judged and printed: a task declares it, and all that prints a metric
derives from that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

Mode = Literal["max", "min"]

_FRACTIONS = ("%", "points")
_MOST_DIGITS = 15


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric of a task.

    Attributes:
        label: what tables and charts call it; "" for its name.
        mode: whether its "max" or its "min" is best.
        unit: "%" or "points": a fraction from 0 to 1, which is printed times 100, with or without a
            percent sign; any other text stands behind the label, and values are printed as they
            are.
        digits: printed after the decimal point; None: 2 of a fraction, else 4 digits in all.
        answers: it is the share of samples with a right answer. So its interval over samples is
            Wilson's, and a plain number among a data set's reference scores is one of it. Right is
            where the kept arrays `predicted` and `label` are equal, unless one is kept by its name.
        in_tables: whether tables show it; the first that they show is compared.

    Raises:
        ValueError: a value that none of these can have.
    """

    label: str = ""
    mode: Mode = "max"
    unit: str = ""
    digits: int | None = None
    answers: bool = False
    in_tables: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.label, str) or not isinstance(self.unit, str):
            raise ValueError(f"label and unit: got {self.label!r} and {self.unit!r}, must be texts")
        if self.mode not in ("max", "min"):
            raise ValueError(f"mode: got {self.mode!r}, must be 'max' or 'min'")
        if self.digits is not None and self.digits not in range(_MOST_DIGITS + 1):
            raise ValueError(f"digits: got {self.digits!r}, must be from 0 to {_MOST_DIGITS}")
        if self.answers and not self.is_fraction:
            raise ValueError(
                f"unit: got {self.unit!r}, a share of answers must be in '%' or 'points'"
            )

    @property
    def is_fraction(self) -> bool:
        """Whether it lies between 0 and 1 in a run's files, and is 100 times that in print."""
        return self.unit in _FRACTIONS

    @property
    def with_unit(self) -> str:
        """`accuracy (%)`, `perplexity`."""
        unit = self._printed_unit
        return f"{self.label} ({unit})" if unit else self.label

    @property
    def _printed_unit(self) -> str:
        return "" if self.unit == "points" else self.unit

    @property
    def points_word(self) -> str:
        """What `points` counts."""
        return "points" if self.is_fraction else self.label

    def scaled(self, value: float) -> float:
        """A value in the unit of print."""
        return 100.0 * value if self.is_fraction else value

    def number(self, value: float) -> str:
        """`98.56`, without the unit."""
        if not math.isfinite(value):
            return str(value)
        digits = 2 if self.digits is None and self.is_fraction else self.digits
        if digits is None:
            return f"{self.scaled(value):z.4g}"
        return f"{self.scaled(value):z.{digits}f}"

    def text(self, value: float) -> str:
        """`accuracy 98.56 %`, `ROUGE-L 22.31`, `perplexity 12.35`."""
        return self._with_label(self.number(value))

    def exactly(self, value: float) -> str:
        """The same with 6 digits, to compare two values."""
        return self._with_label(f"{self.scaled(value):.6g}")

    def _with_label(self, number: str) -> str:
        words = [self.label, number]
        if self._printed_unit:
            words.append(self._printed_unit)
        return " ".join(words)

    def points(self, difference: float) -> str:
        """A difference in points, or in the metric's own unit."""
        scaled = self.scaled(difference)
        return f"{scaled:z.1f}" if self.is_fraction else f"{scaled:z.3g}"

    def interval(self, low: float, high: float) -> str:
        """`[34.3, 38.5]`."""
        return f"[{self.points(low)}, {self.points(high)}]"


def metric_of(metrics: Mapping[str, Metric], name: str) -> Metric:
    """A metric by its name, which is its label where it has no other; also one that nobody has
    declared.
    """
    metric = metrics.get(name, Metric())
    return replace(metric, label=metric.label or name)


def read_metrics(declared: Any) -> dict[str, Metric]:
    """The declarations in a file of a run; empty where they are no such thing."""
    try:
        return {name: Metric(**values) for name, values in declared.items()}
    except (AttributeError, TypeError, ValueError):
        return {}
