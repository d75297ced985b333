"""What an experiment says about settings that a space names: wrong ones, their defaults, and
those never searched.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from subquad.experiment.key_names import Known, known_keys
from subquad.experiment.refusals import MISSING, RULE, Fault, validated
from subquad.experiment.run import Run
from subquad.experiment.schema import Experiment, decides_numbers
from subquad.experiment.settings import (
    COMPONENTS,
    SECTIONS,
    KeyPath,
    dotted,
    flat_key,
    get,
    is_given,
    key_path,
    path_fields,
)
from subquad.plugin.effect import ALWAYS, Condition, Effect, default_of, effect_of
from subquad.registry.allowed import allowed
from subquad.registry.faults import blamed
from subquad.space.dimension import Constraint, Dimension
from subquad.space.space import ever_active

_NOT_LEARNT = {
    "format": "it says how the file is read",
    "protocol": "it says how a run is measured",
}


@dataclass(frozen=True)
class Fields:
    """The settings of one experiment, each with its schema and its value."""

    experiment: Run

    @cached_property
    def data(self) -> dict[str, Any]:
        """The experiment as plain data, defaults filled in."""
        return self.experiment.experiment.model_dump(mode="json")

    def value(self, path: KeyPath) -> Any:
        """What the experiment says; None where there is no such setting."""
        return get(self.data, path)

    def default(self, path: KeyPath) -> Any:
        """A setting's default as a plain value; the experiment's value where one must be given."""
        holder = self._holder(path)
        if holder is None:
            return self.value(path)
        field = holder.model_fields[str(path[-1])]
        if field.is_required():
            return self.value(path)
        return to_jsonable_python(default_of(field))

    def effect(self, path: KeyPath) -> Effect:
        """When a setting has an effect, with dotted keys."""
        holder = self._holder(path)
        if holder is None:
            return ALWAYS

        def dotted_key(condition: Condition) -> Condition:
            key = flat_key((*path[:-1], condition.key))
            return Condition(key, tuple(to_jsonable_python(condition.values)), condition.but)

        return tuple(
            tuple(map(dotted_key, conditions)) for conditions in effect_of(holder, str(path[-1]))
        )

    def unknown(self, path: KeyPath) -> Fault | None:
        """What is wrong where there is no such setting; None where there is one."""
        return self.fault(path, self.value(path))

    def fault(self, path: KeyPath, value: Any) -> Fault | None:
        """What is wrong with a setting that has a value, whatever the others are; None where
        nothing is.
        """
        entry = path[:2]
        if path[0] == "mixers" and not is_given(self.data, entry):
            count = len(self.data["mixers"])
            return Fault(entry, f"there is no such entry, the list has {count}", rank=MISSING)
        model, at = self._schema(path)
        changed = copy.deepcopy(self.value(at))
        _put(changed, path[len(at) :], value)
        with blamed(f"{flat_key(at) or 'the experiment'}: cannot be checked"):
            _, faults = validated(model, changed, at, lambda: self._known)
        return next((fault for fault in faults if _is_about(fault, path, at)), None)

    def words(self, path: KeyPath) -> str:
        """What a setting may be."""
        model, at = self._schema(path)
        return allowed(model, path[len(at) :])

    def never_searched(self, path: KeyPath) -> str | None:
        """Why a setting may not be searched; None where it may, or where there is no such
        setting.
        """
        kind = str(path[0])
        last = str(path[-1])
        below = path[2:] if kind == "mixers" else path[1:]
        if kind in _NOT_LEARNT:
            return _NOT_LEARNT[kind]
        if not decides_numbers(dotted(path), self.experiment.coupled):
            return "it decides no numbers"
        if last == "seed":
            return "seeds are repeated, not chosen; list them in the study's matrix"
        if kind in (*SECTIONS, "mixers") and not below:
            return "it holds several settings; name one of them"
        if kind in (*COMPONENTS, "mixers") and below == ("params",):
            return "it holds several settings; name one of them"
        if kind in (*COMPONENTS, "mixers") and below in ((), ("name",)):
            return "plugins are compared, not searched; list them in the study's matrix"
        if below == ("role",):
            return "it says which sites there are"
        if below[:1] == ("params",) and self._is_place(path):
            return "it says where files are"
        return None

    def _is_place(self, path: KeyPath) -> bool:
        """Whether a plugin's parameter says where files are."""
        name = path[-1]
        if path[0] == "dataset" and name == "path":
            return True
        for place, (_, config) in self.experiment.parts.items():
            if path[: len(place)] == place:
                return name in path_fields(type(config))
        return False

    def _schema(self, path: KeyPath) -> tuple[type[BaseModel], KeyPath]:
        """The schema that a setting belongs to, and where that stands in the experiment."""
        for place, (_, config) in self.experiment.parts.items():
            params = (*place, "params")
            if path[: len(params)] == params != path:
                return type(config), params
        return Experiment, ()

    def _holder(self, path: KeyPath) -> type[BaseModel] | None:
        """The schema that a setting is a field of; None where it is no field."""
        model, at = self._schema(path)
        for key in path[len(at) : -1]:
            field = model.model_fields.get(str(key))
            inner = None if field is None else field.annotation
            if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
                return None
            model = inner
        if str(path[-1]) in model.model_fields:
            return model
        return None

    @cached_property
    def _known(self) -> Known:
        known = known_keys(Experiment)
        for place, (_, config) in self.experiment.parts.items():
            known |= known_keys(type(config), (*place, "params"))
        return known


def without_idle(
    dims: Sequence[Dimension], constraints: Sequence[Constraint], fields: Fields
) -> tuple[tuple[Dimension, ...], dict[str, Any], list[Dimension]]:
    """The dimensions that are searched at some point, what settings have where a point does not
    say, and the dimensions that are left out: one may make another one impossible.
    """
    conditions = chain.from_iterable(dim.conditions for dim in dims)
    named = [condition.key for condition in conditions]
    named += chain.from_iterable(constraint.keys for constraint in constraints)
    rest = {key: fields.value(key_path(key)) for key in named}
    for dim in dims:
        if dim.conditions:
            rest[dim.path] = fields.default(dim.key_path)
    kept = list(dims)
    idle: list[Dimension] = []
    while never := next((dim for dim in kept if not ever_active(dim, kept, rest)), None):
        idle.append(never)
        kept.remove(never)
        rest[never.path] = fields.value(never.key_path)
    return tuple(kept), rest, idle


def _is_about(fault: Fault, path: KeyPath, at: KeyPath) -> bool:
    """Whether a fault is one of this setting, and not of how it fits the others, which another
    point may mend.
    """
    depth = len(fault.path)
    is_above = fault.rank != RULE and depth > len(at) and path[:depth] == fault.path
    return is_above or fault.path[: len(path)] == path


def _put(data: Any, path: KeyPath, value: Any) -> None:
    """Lay a value below mappings, and entries of lists that there are."""
    *above, last = path
    for key in above:
        if isinstance(data, dict) and not isinstance(get(data, (key,)), (dict, list)):
            data[key] = {}
        data = data[key]
    data[last] = value
