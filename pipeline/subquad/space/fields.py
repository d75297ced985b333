"""What an experiment says about settings that a space names: wrong ones, their defaults, and those never searched."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from subquad.effect import ALWAYS, Condition, Effect, default_of, effect_of
from subquad.experiment.refusals import Fault, Known, allowed, known_keys, validated
from subquad.experiment.run import Run
from subquad.experiment.schema import Experiment, decides_numbers
from subquad.experiment.settings import COMPONENTS, SECTIONS, KeyPath, dotted, get, path_fields
from subquad.registry.foreign import blamed

_MISSING = object()
_RULE = 3
"""Rank of a fault that is about several settings; below are unknown, missing and mistyped ones."""

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

        return tuple(tuple(map(dotted, conditions)) for conditions in effect_of(holder, str(path[-1])))

    def fault(self, path: KeyPath, value: Any = _MISSING) -> Fault | None:
        """What is wrong with a setting by itself, whatever the others are; None where nothing is.

        Args:
            path: the setting.
            value: the experiment's own where left out, so that only an unknown setting is a fault.
        """
        model, at, data = self._schema(path)
        changed = copy.deepcopy(dict(data))
        _put(changed, path[len(at) :], self.value(path) if value is _MISSING else value)
        with blamed(f"{'.'.join(map(str, at)) or 'the experiment'}: cannot be checked"):
            _, faults = validated(model, changed, at, None, lambda: self._known)
        return next((one for one in faults if _is_about(one, path, at)), None)

    def words(self, path: KeyPath) -> str:
        """What a setting may be."""
        model, at, _ = self._schema(path)
        return allowed(model, path[len(at) :])

    def never_searched(self, path: KeyPath) -> str | None:
        """Why a setting may not be searched; None where it may, or where there is no such setting."""
        kind, last = str(path[0]), str(path[-1])
        if kind in _NOT_LEARNT:
            return _NOT_LEARNT[kind]
        if not decides_numbers(dotted(path)):
            return "it decides no numbers"
        if last == "seed":
            return "seeds are repeated, not chosen; list them in the study's matrix"
        if (kind in SECTIONS and not path[1:]) or (kind in COMPONENTS and path[1:] == ("params",)):
            return "it holds several settings; name one of them"
        if kind in COMPONENTS and path[1:] in ((), ("name",)):
            return "plugins are compared, not searched; list them in the study's matrix"
        if kind in COMPONENTS and path[1] == "params" and self._is_place(kind, last):
            return "it says where files are"
        return None

    def _is_place(self, kind: str, name: str) -> bool:
        config = getattr(self.experiment, f"{kind}_config")
        return (kind, name) == ("dataset", "path") or name in path_fields(type(config))

    def _schema(self, path: KeyPath) -> tuple[type[BaseModel], KeyPath, Mapping[str, Any]]:
        """The schema that a setting belongs to, where that stands in the experiment, and its data."""
        kind = str(path[0])
        if kind in COMPONENTS and path[1:2] == ("params",) and len(path) > 2:
            return type(getattr(self.experiment, f"{kind}_config")), (kind, "params"), self.data[kind]["params"]
        return Experiment, (), self.data

    def _holder(self, path: KeyPath) -> type[BaseModel] | None:
        """The schema that a setting is a field of; None where it is no field."""
        model, at, _ = self._schema(path)
        for key in path[len(at) : -1]:
            inner = model.model_fields[str(key)].annotation if str(key) in model.model_fields else None
            if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
                return None
            model = inner
        return model if str(path[-1]) in model.model_fields else None

    @cached_property
    def _known(self) -> Known:
        known = known_keys(Experiment)
        for kind in COMPONENTS:
            known |= known_keys(type(getattr(self.experiment, f"{kind}_config")), (kind, "params"))
        return known


def _is_about(fault: Fault, path: KeyPath, at: KeyPath) -> bool:
    """Whether a fault is one of this setting, and not of how it fits the others, which another point may mend."""
    inside = fault.path[: len(path)] == path
    around = len(fault.path) > len(at) and path[: len(fault.path)] == fault.path
    return inside or (around and fault.rank < _RULE)


def _put(data: dict[str, Any], path: KeyPath, value: Any) -> None:
    for key in path[:-1]:
        if not isinstance(data.get(str(key)), dict):
            data[str(key)] = {}
        data = data[str(key)]
    data[str(path[-1])] = value
