"""Turn what pydantic found into one line in our own words."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from subquad.errors import ConfigError
from subquad.experiment.allowed import allowed, schema_at, shown
from subquad.experiment.keys import Known, suggest_key
from subquad.experiment.origins import KeyPath, Marks, origin_of, problem

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with a setting.

    Attributes:
        rank: smaller ones are told first: an unknown key is often why another one is missing.
        path: the setting.
        message: what is wrong with it.
        marked: the setting whose line is named.
    """

    rank: int
    path: KeyPath
    message: str
    marked: KeyPath


def refusal(faults: list[Fault], marks: Marks | None) -> ConfigError:
    """The error for the first of some faults; it says how many more there are."""
    origins = {id(fault): origin_of(fault.marked, marks) for fault in faults}
    first = min(faults, key=lambda fault: (fault.rank, getattr(origins[id(fault)], "line", 0)))
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    origin = origins[id(first)]
    return problem(first.path, first.message + more, {(): origin} if origin else None)


def validated(
    model: type[Model], data: Mapping[str, Any], path: KeyPath, marks: Marks | None, known: Callable[[], Known]
) -> tuple[Model | None, list[Fault]]:
    """`data` as a `model`, or what is wrong with it.

    Validation reads JSON, so that a list may fill a tuple while everything else stays strict.

    Args:
        model: the schema.
        data: what the user gave for it.
        path: where it stands in the experiment.
        marks: origins, to choose among several keys that an error is about.
        known: all keys of the experiment, for suggestions; called only when a key is unknown.
    """
    try:
        return model.model_validate_json(json.dumps(data, allow_nan=False)), []
    except (TypeError, ValueError) as error:
        if not isinstance(error, ValidationError):
            return None, [Fault(2, path, f"must hold finite numbers, text, lists and mappings only: {error}", path)]
        found = [_fault(model, data, path, detail, marks, known) for detail in error.errors(include_url=False)]
        return None, list({(fault.path, fault.rank): fault for fault in reversed(found)}.values())[::-1]


def _fault(
    model: type[BaseModel],
    data: Mapping[str, Any],
    path: KeyPath,
    detail: ErrorDetails,
    marks: Marks | None,
    known: Callable[[], Known],
) -> Fault:
    kind = detail["type"]
    if kind == "extra_forbidden":
        key = (*path, *detail["loc"])
        return Fault(0, key, f"unknown key{suggest_key(key, known())}", key)
    local = _inside(model, detail["loc"], data)
    key = (*path, *local)
    if kind == "missing":
        words = allowed(model, local)
        return Fault(1, key, f"missing{f', must be {words}' if words else ''}", key)
    if kind in ("value_error", "assertion_error"):
        said = str(detail.get("ctx", {}).get("error", detail["msg"])).strip() or "not valid"
        return Fault(3, key, said, blamed_key(said, key, marks))
    return Fault(2, key, _type_message(model, local, data), key)


def _inside(model: type[BaseModel], loc: KeyPath, data: Any) -> KeyPath:
    """The part of an error's location that is a setting, without the names of union members."""
    kept: KeyPath = ()
    for key in loc:
        if schema_at(model, (*kept, key)) is None:
            break
        kept = (*kept, key)
    return kept


def _type_message(model: type[BaseModel], path: KeyPath, data: Any) -> str:
    value = data
    for key in path:
        value = value[key]
    words = allowed(model, path) or "another kind of value"
    return f"got {shown(value)}, must be {words}{_hint(value, words)}"


def _hint(value: Any, words: str) -> str:
    """What to write, where quotes are all that is wrong."""
    if isinstance(value, str) and re.fullmatch(r"[-+]?[0-9.]+(e[-+]?[0-9]+)?|true|false|null", value, re.IGNORECASE):
        return "; leave out the quotes" if not words.startswith(("text", "one of")) else ""
    if isinstance(value, (bool, int, float)) and words.startswith("text"):
        return f'; write "{shown(value)}"'
    return ""


def blamed_key(message: str, path: KeyPath, marks: Marks | None) -> KeyPath:
    """The setting whose line to name: one that an override gave, else the one at `path`, else the first one named.

    Args:
        message: a rule's message; it writes keys in full or relative to `path`.
        path: the setting or mapping the rule is about.
        marks: origins of what was given.
    """
    marks = marks or {}
    words = re.findall(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", message)
    named: list[KeyPath] = [
        key
        for word in words
        for key in ((*path, *word.split(".")), tuple(word.split(".")))
        if len(key) > 1 and key in marks
    ]
    if path in marks and not any(key[: len(path)] == path and key != path for key in marks):
        named.insert(0, path)
    return next((key for key in named if marks[key].is_override), next(iter(named), path))
