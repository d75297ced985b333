"""What an experiment says about settings that a space names: wrong ones, their defaults, and
those never searched.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from subquad.effect import ALWAYS, Condition, Effect, default_of, effect_of
from subquad.experiment.key_names import Known, known_keys
from subquad.experiment.refusals import MISSING, RULE, Fault, allowed, validated
from subquad.experiment.run import Run
from subquad.experiment.schema import Experiment, decides_numbers
from subquad.experiment.settings import (
    COMPONENTS,
    SECTIONS,
    KeyPath,
    dotted,
    get,
    is_given,
    key_path,
    path_fields,
)
from subquad.plugin import Config
from subquad.registry.faults import blamed
from subquad.space.dimension import Constraint, Dimension
from subquad.space.space import ever_active

_MISSING = object()

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
        if holder is None or holder.model_fields[str(path[-1])].is_required():
            return self.value(path)
        return to_jsonable_python(default_of(holder.model_fields[str(path[-1])]))

    def effect(self, path: KeyPath) -> Effect:
        """When a setting has an effect, with dotted keys."""
        holder = self._holder(path)
        if holder is None:
            return ALWAYS
        beside = "".join(f"{key}." for key in path[:-1])

        def dotted(condition: Condition) -> Condition:
            values = tuple(to_jsonable_python(condition.values))
            return replace(condition, key=beside + condition.key, values=values)

        return tuple(
            tuple(map(dotted, conditions)) for conditions in effect_of(holder, str(path[-1]))
        )

    def fault(self, path: KeyPath, value: Any = _MISSING) -> Fault | None:
        """What is wrong with a setting by itself, whatever the others are; None where nothing is.

        Args:
            path: the setting.
            value: the experiment's own where left out, so that only an unknown setting is a fault.
        """
        if path[0] == "mixers" and len(path) > 1 and not is_given(self.data, path[:2]):
            count = len(self.data["mixers"])
            return Fault(MISSING, path[:2], f"there is no such entry, the list has {count}")
        model, at, data = self._schema(path)
        changed = copy.deepcopy(dict(data))
        _put(changed, path[len(at) :], self.value(path) if value is _MISSING else value)
        with blamed(f"{'.'.join(map(str, at)) or 'the experiment'}: cannot be checked"):
            _, faults = validated(model, changed, at, lambda: self._known)
        return next((fault for fault in faults if _is_about(fault, path, at)), None)

    def words(self, path: KeyPath) -> str:
        """What a setting may be."""
        model, at, _ = self._schema(path)
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
        if not decides_numbers(dotted(path)):
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
        component = self._component(path)
        if component and below[:1] == ("params",) and _is_place(kind, last, component[1]):
            return "it says where files are"
        return None

    def _component(self, path: KeyPath) -> tuple[KeyPath, Config] | None:
        """The component that a setting is of: where it stands, and its parameters."""
        if path[0] in COMPONENTS:
            return path[:1], getattr(self.experiment, f"{path[0]}_config")
        if path[0] == "mixers" and len(path) > 1 and is_given(self.data, path[:2]):
            return path[:2], self.experiment.mixers[int(path[1])][1]
        return None

    def _schema(self, path: KeyPath) -> tuple[type[BaseModel], KeyPath, Mapping[str, Any]]:
        """The schema that a setting belongs to, where that stands in the experiment, and its
        data.
        """
        if component := self._component(path):
            place, config = component
            params = (*place, "params")
            if path[: len(params)] == params != path:
                return type(config), params, get(self.data, params)
        return Experiment, (), self.data

    def _holder(self, path: KeyPath) -> type[BaseModel] | None:
        """The schema that a setting is a field of; None where it is no field."""
        model, at, _ = self._schema(path)
        for key in path[len(at) : -1]:
            inner = (
                model.model_fields[str(key)].annotation if str(key) in model.model_fields else None
            )
            if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
                return None
            model = inner
        return model if str(path[-1]) in model.model_fields else None

    @cached_property
    def _known(self) -> Known:
        known = known_keys(Experiment)
        places = [(kind,) for kind in COMPONENTS]
        places += [("mixers", number) for number in range(len(self.experiment.mixers))]
        for place, config in filter(None, map(self._component, places)):
            known |= known_keys(type(config), (*place, "params"))
        return known


def without_idle(
    dims: Sequence[Dimension],
    constraints: Sequence[Constraint],
    fields: Fields,
    idle: Callable[[Dimension, Sequence[Dimension]], None] = lambda _dim, _others: None,
) -> tuple[tuple[Dimension, ...], dict[str, Any]]:
    """The dimensions that are searched at some point, and what settings have where a point does
    not say.

    One that is left out may make another one impossible. `idle` is called with each, and those
    beside it.
    """
    named = [condition.key for dim in dims for condition in dim.conditions]
    named += [key for constraint in constraints for key in constraint.keys]
    rest = {key: fields.value(key_path(key)) for key in named}
    rest |= {dim.path: fields.default(dim.key_path) for dim in dims if dim.conditions}
    kept = tuple(dims)
    while never := next((dim for dim in kept if not ever_active(dim, kept, rest)), None):
        idle(never, kept)
        kept = tuple(dim for dim in kept if dim is not never)
        rest[never.path] = fields.value(never.key_path)
    return kept, rest


def _is_about(fault: Fault, path: KeyPath, at: KeyPath) -> bool:
    """Whether a fault is one of this setting, and not of how it fits the others, which another
    point may mend.
    """
    inside = fault.path[: len(path)] == path
    around = len(fault.path) > len(at) and path[: len(fault.path)] == fault.path
    return inside or (around and fault.rank < RULE)


def _is_place(kind: str, name: str, config: Config) -> bool:
    return (kind, name) == ("dataset", "path") or name in path_fields(type(config))


def _put(data: Any, path: KeyPath, value: Any) -> None:
    """Lay a value below mappings, and entries of lists that there are."""
    for key in path[:-1]:
        if isinstance(data, dict) and not isinstance(data.get(key), (dict, list)):
            data[key] = {}
        data = data[key]
    data[path[-1]] = value
