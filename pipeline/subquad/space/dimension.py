"""One dimension of a search space: a setting, the values it may take, and when it is searched at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from subquad.experiment.settings import KeyPath, Origin

Kind = Literal["choice", "grid", "uniform", "loguniform", "int"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class Condition:
    """A dimension is searched only where another setting has one of these values.

    Attributes:
        key: the other setting, dotted.
        values: plain values.
    """

    key: str
    values: tuple[Any, ...]

    def holds(self, value: Any) -> bool:
        return any(same(value, one) for one in self.values)


@dataclass(frozen=True)
class Dimension:
    """A setting that is searched.

    `choice` and `grid` are categorical, `uniform` and `loguniform` floats, `int` whole numbers with a step or on a log
    scale: one to one what samplers such as Optuna's know.

    Attributes:
        path: the setting, dotted.
        kind: how its values are given. A `grid` is a list meant for a grid search, elsewhere a choice.
        values: of choice and grid.
        low: smallest value of a range, included.
        high: largest value of a range, included.
        step: between the values of an int.
        log: whether equal ratios are equally likely.
        when: conditions that must all hold.
        mixer: the plugin it is for; None where it is for any.
        origin: where it was given.
    """

    path: str
    kind: Kind
    values: tuple[Any, ...] = ()
    low: float = 0
    high: float = 0
    step: int = 1
    log: bool = False
    when: tuple[Condition, ...] = ()
    mixer: str | None = None
    origin: Origin = field(default=Origin("space"), compare=False)

    @property
    def key_path(self) -> KeyPath:
        return tuple(self.path.split("."))

    @property
    def is_listed(self) -> bool:
        """Whether its values are a list."""
        return self.kind in ("choice", "grid")

    @property
    def count(self) -> int | None:
        """How many values it has; None where it is continuous."""
        if self.is_listed:
            return len(self.values)
        return int(self.high - self.low) // self.step + 1 if self.kind == "int" else None

    @property
    def options(self) -> Sequence[Any]:
        """The values of one that is not continuous, in order."""
        assert self.count is not None
        return self.values if self.is_listed else range(int(self.low), int(self.high) + 1, self.step)

    def can_be(self, value: Any) -> bool:
        """Whether a search may give it this value."""
        if self.is_listed:
            return any(same(value, one) for one in self.values)
        if not is_number(value) or not self.low <= value <= self.high:
            return False
        return self.kind != "int" or (value - self.low) % self.step == 0


def same(a: Any, b: Any) -> bool:
    """Whether two plain values mean the same setting: 1 and 1.0 do, 1 and true do not."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    return a == b


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
