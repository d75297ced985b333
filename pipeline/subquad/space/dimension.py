"""One dimension of a search space, and relations between dimensions.

The values of a dimension are an Optuna distribution, so that Optuna's samplers take it as it is.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal, get_args

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from subquad.errors import ConfigError
from subquad.experiment.settings import KeyPath, Origin, key_path, problem
from subquad.plugin.effect import ALWAYS, Condition, Effect, same

Distribution = CategoricalDistribution | FloatDistribution | IntDistribution


@dataclass(frozen=True)
class Dimension:
    """A setting that is searched.

    Attributes:
        path: the setting, dotted.
        distribution: its values.
        when: conditions of the space that must all hold.
        mixer: the plugin it is for; None where it is for any.
        origin: where it was given.
        effect: when its setting has an effect, as the setting's own field says; keys are dotted.
    """

    path: str
    distribution: Distribution
    when: tuple[Condition, ...] = ()
    mixer: str | None = None
    origin: Origin = field(default=Origin("space"), compare=False)
    effect: Effect = field(default=ALWAYS, compare=False)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """All that decide whether it is searched."""
        return tuple(chain(self.when, *self.effect))

    def is_searched(self, value: Callable[[str], Any]) -> bool:
        """Whether it is searched, given what other settings have."""

        def holds(condition: Condition) -> bool:
            return condition.holds(value(condition.key))

        return all(map(holds, self.when)) and any(all(map(holds, each)) for each in self.effect)

    @property
    def key_path(self) -> KeyPath:
        return key_path(self.path)

    @property
    def kind(self) -> str:
        """What a space file calls it: choice, int, uniform or loguniform."""
        if isinstance(self.distribution, CategoricalDistribution):
            return "choice"
        if isinstance(self.distribution, IntDistribution):
            return "int"
        return "loguniform" if self.distribution.log else "uniform"

    @property
    def options(self) -> Sequence[Any] | None:
        """Its values in order; None where it is continuous."""
        values = self.distribution
        if isinstance(values, CategoricalDistribution):
            return values.choices
        if isinstance(values, IntDistribution):
            return range(values.low, values.high + 1, values.step)
        return None

    def can_be(self, value: Any) -> bool:
        """Whether a search may give it this value."""
        values = self.distribution
        if isinstance(values, CategoricalDistribution):
            return any(same(value, option) for option in values.choices)
        is_inside = is_number(value) and values.low <= value <= values.high
        if not is_inside or isinstance(values, FloatDistribution):
            return is_inside
        return (value - values.low) % values.step == 0

    def wrong(self, message: str, path: KeyPath | None = None) -> ConfigError:
        """The refusal of this dimension, or of what stands at another path below it."""
        return problem(path or self.key_path, message, self.origin)

    def as_data(self) -> dict[str, Any]:
        """As a space file has it."""
        values = self.distribution
        data: dict[str, Any] = {}
        if isinstance(values, CategoricalDistribution):
            data["choice"] = list(values.choices)
        else:
            data[self.kind] = [values.low, values.high]
        if isinstance(values, IntDistribution):
            if values.step != 1:
                data["step"] = values.step
            if values.log:
                data["log"] = True
        if self.when:
            data["when"] = {condition.key: list(condition.values) for condition in self.when}
        return data


def choice_of(values: Sequence[Any]) -> CategoricalDistribution:
    """A choice of plain values and lists of them."""
    # Optuna warns of lists, which its storages outside memory cannot keep
    with warnings.catch_warnings(action="ignore"):
        return CategoricalDistribution(values)


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


Relation = Literal["less", "less_equal", "divides", "sum_not_in"]
RELATIONS: tuple[Relation, ...] = get_args(Relation)
"""A closed list, so that a space stays data and no code of a file ever runs."""


@dataclass(frozen=True)
class Constraint:
    """A relation between numbers that every point keeps. What a plugin itself refuses needs none.

    Attributes:
        relation: `less` and `less_equal` order two numbers, `divides` says that the first divides
            the second, `sum_not_in` that the sum of all is none of `values`.
        keys: settings, dotted.
        values: of `sum_not_in`.
        mixer: the plugin it is for; None where it is for any.
        origin: where it was given.
    """

    relation: Relation
    keys: tuple[str, ...]
    values: tuple[float, ...] = ()
    mixer: str | None = None
    origin: Origin = field(default=Origin("space"), compare=False)

    def __str__(self) -> str:
        """As it would stand in a file, and where it does."""
        text = f"[{', '.join(self.keys)}]"
        if self.values:
            values = ", ".join(map(str, self.values))
            text = f"{{keys: {text}, values: [{values}]}}"
        if self.origin.line:
            text += f" at {self.origin}"
        return f"{self.relation}: {text}"

    def as_data(self) -> dict[str, Any]:
        """As a space file has it."""
        keys = list(self.keys)
        if self.relation == "sum_not_in":
            return {self.relation: {"keys": keys, "values": list(self.values)}}
        return {self.relation: keys}

    def holds(self, numbers: Sequence[float]) -> bool:
        """Whether numbers, one for each key, keep it."""
        first, second = numbers
        if self.relation == "divides":
            return first != 0 and math.fmod(second, first) == 0
        if self.relation == "sum_not_in":
            total = first + second
            return not any(math.isclose(total, value, abs_tol=1e-9) for value in self.values)
        return first < second or (self.relation == "less_equal" and first == second)
