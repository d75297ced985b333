"""When a setting has an effect: what `param(when=...)` says, and what follows from it.

A refusal, a search space, `subquad show` and a swap all read it here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo


@dataclass(frozen=True, init=False)
class Not:
    """In a `when`: any value but these. `Not(None)` means that there is a value, `Not(0)` that
    it is not off.
    """

    values: tuple[Any, ...]

    def __init__(self, *values: Any):
        object.__setattr__(self, "values", values)


@dataclass(frozen=True)
class Condition:
    """What another setting must be.

    Attributes:
        key: the other setting.
        values: plain values.
        but: it must have none of them, rather than one.
    """

    key: str
    values: tuple[Any, ...]
    but: bool = False

    def holds(self, value: Any) -> bool:
        """Whether the other setting's value fits."""
        return any(same(value, known) for known in self.values) != self.but

    def __str__(self) -> str:
        """In words: `basis jacobi or legendre`, `order other than 0`."""
        other = "other than " if self.but else ""
        values = " or ".join(map(as_written, self.values))
        return f"{self.key} {other}{values}"


Effect = tuple[tuple[Condition, ...], ...]
"""When a setting has an effect: alternatives, of which one must hold, each of conditions that
must all hold.
"""

ALWAYS: Effect = ((),)

When = Mapping[str, Sequence[Any] | Not]
"""Other fields, each with values of which it must have one, or with `Not` those that it must not
have.
"""


def same(a: Any, b: Any) -> bool:
    """Whether two plain values mean the same setting: 1 and 1.0 do, 1 and true do not."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    return a == b


def as_written(value: Any) -> str:
    """A value as an experiment file has it, but text without quotes."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def default_of(spec: FieldInfo) -> Any:
    """What a field has when no value is given; it must not be a required one."""
    return spec.get_default(call_default_factory=True, validated_data={})


def conditions_of(when: When | Sequence[When] | None) -> Effect:
    """A field's own `when`; empty where it has none."""
    alternatives = when or ()
    if isinstance(alternatives, Mapping):
        alternatives = [alternatives]
    return tuple(_conditions(alternative) for alternative in alternatives)


def _conditions(alternative: When) -> tuple[Condition, ...]:
    return tuple(
        Condition(key, values.values, but=True)
        if isinstance(values, Not)
        else Condition(key, tuple(values))
        for key, values in alternative.items()
    )


def extra_of(spec: FieldInfo) -> dict[str, Any]:
    """What `param` says of a field beside what pydantic knows."""
    return spec.json_schema_extra if isinstance(spec.json_schema_extra, dict) else {}


def own_effect(spec: FieldInfo) -> Effect:
    """What a field's own `when` says."""
    return extra_of(spec).get("when") or ALWAYS


@cache
def effect_of(config: type[BaseModel], name: str) -> Effect:
    """When a field has an effect: its own `when`, and those of the fields that it names.

    Raises:
        TypeError: a `when` names what is no field of the schema, or stands at a required field, or
            goes in a circle.
    """
    return tuple(dict.fromkeys(_expanded(config, name, ())))


def _expanded(
    config: type[BaseModel], name: str, above: tuple[str, ...]
) -> Iterator[tuple[Condition, ...]]:
    place = f"{config.__module__}.{config.__name__}"
    known = config.model_fields
    above = (*above, name)
    spec = known[name]
    own = own_effect(spec)
    if own != ALWAYS and spec.is_required():
        raise TypeError(f"{place}: {name} has a `when`, and no default to leave it at")
    for alternative in own:
        expanded: list[tuple[Condition, ...]] = [()]
        for condition in alternative:
            key = condition.key
            if key not in known:
                raise TypeError(f"{place}: the `when` of {name} names {key!r}, which is no field")
            if key in above:
                circle = " -> ".join((*above, key))
                raise TypeError(f"{place}: `when` goes in a circle ({circle})")
            pairs = product(expanded, _expanded(config, key, above))
            expanded = [(*before, *more, condition) for before, more in pairs]
        for conditions in expanded:
            yield tuple(dict.fromkeys(conditions))


def unmet_conditions(
    config: type[BaseModel], name: str, values: Mapping[str, Any]
) -> tuple[Condition, ...]:
    """What takes a field's effect away: the first unmet condition of each alternative; empty where
    it has an effect.

    Args:
        config: the schema.
        name: one of its fields.
        values: of all its fields.
    """
    first_unmet: list[Condition] = []
    for alternative in effect_of(config, name):
        unmet = [
            condition for condition in alternative if not condition.holds(values[condition.key])
        ]
        if not unmet:
            return ()
        first_unmet.append(unmet[0])
    return tuple(dict.fromkeys(first_unmet))
