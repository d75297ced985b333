"""Relations between the numbers of a point: a closed list, so that a space stays data and no code of a file ever runs.

What a plugin itself refuses needs no constraint: `subquad.space.feasible` asks it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from subquad.experiment.settings import Origin

Relation = Literal["less", "less_equal", "divides", "sum_not_in"]
RELATIONS: tuple[Relation, ...] = get_args(Relation)

Numbers = Sequence[float]


@dataclass(frozen=True)
class Constraint:
    """A relation that every point keeps.

    Attributes:
        relation: `less` and `less_equal` order two numbers, `divides` says that the first divides the second,
            `sum_not_in` that the sum of all is none of `values`.
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
        keys = ", ".join(self.keys)
        said = f"{{keys: [{keys}], values: [{', '.join(map(str, self.values))}]}}" if self.values else f"[{keys}]"
        return f"{self.relation}: {said}" + (f" at {self.origin}" if self.origin.line else "")

    def holds(self, numbers: Numbers) -> bool:
        """Whether numbers, one for each key, keep it."""
        return _HOLDS[self.relation](numbers, self.values)


def _divides(numbers: Numbers, values: Numbers) -> bool:
    return numbers[0] != 0 and math.fmod(numbers[1], numbers[0]) == 0


def _sum_not_in(numbers: Numbers, values: Numbers) -> bool:
    return not any(math.isclose(sum(numbers), value, abs_tol=1e-9) for value in values)


_HOLDS: dict[Relation, Callable[[Numbers, Numbers], bool]] = {
    "less": lambda numbers, values: numbers[0] < numbers[1],
    "less_equal": lambda numbers, values: numbers[0] <= numbers[1],
    "divides": _divides,
    "sum_not_in": _sum_not_in,
}
