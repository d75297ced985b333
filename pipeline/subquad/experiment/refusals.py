"""Refusals in one line: what a setting may be, the nearest known key, and pydantic's findings in
our own words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import ErrorDetails

from subquad.addresses import without_secrets
from subquad.errors import ConfigError
from subquad.experiment.key_names import Known, suggest_key
from subquad.experiment.settings import (
    KeyPath,
    Marks,
    Origin,
    children,
    get,
    key_path,
    origin_of,
    problem,
    shorten,
)
from subquad.suggest import did_you_mean

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"

Schema = dict[str, Any]

_WORDS = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
    "null": "null",
    "object": "a mapping",
}
_LIMITS = {"exclusiveMinimum": ">", "minimum": ">=", "exclusiveMaximum": "<", "maximum": "<="}
LAYERS_PATTERN = r"^-?[0-9]{1,4}\.\.-?[0-9]{1,4}$"
RANGE_PATTERN = r"^[1-9][0-9]{0,5}\.\.[1-9][0-9]{0,5}$"
_PATTERNS = {
    RANGE_PATTERN: "two numbers, as in 1..4",
    LAYERS_PATTERN: "two layers, as in -3..-1",
    NAME_PATTERN: "at most 100 letters, digits, '.', '_' and '-', beginning with a letter or digit",
}


def allowed(model: type[BaseModel], path: KeyPath) -> str:
    """What the setting at `path` below `model` may be; "" where the schema says nothing about
    it.
    """
    return _words(_schema_at(model, path) or {}, _json_schema(model))


def _schema_at(model: type[BaseModel], path: KeyPath) -> Schema | None:
    """The JSON schema of one setting; None where there is no such setting."""
    root = _json_schema(model)
    node: Schema | None = root
    for key in path:
        node = _step(node, key, root) if node is not None else None
    return node


@lru_cache(maxsize=256)
def _json_schema(model: type[BaseModel]) -> Schema:
    """A model's JSON schema, made once; empty where a plugin uses a type that has none."""
    try:
        return model.model_json_schema()
    except PydanticUserError:
        return {}


def _step(node: Schema, key: str | int, root: Schema) -> Schema | None:
    """The schema below `node` under `key`."""
    for option in _options(node, root):
        if isinstance(key, int):
            prefix = option.get("prefixItems", [])
            found = prefix[key] if key < len(prefix) else option.get("items")
        else:
            found = option.get("properties", {}).get(key)
        if isinstance(found, dict):
            return found
    return None


def _options(node: Schema, root: Schema) -> list[Schema]:
    """The alternatives a schema allows, references followed."""
    if "$ref" in node:
        return _options(root["$defs"][node["$ref"].rpartition("/")[2]], root)
    return [leaf for option in node.get("anyOf", []) for leaf in _options(option, root)] or [node]


def _words(node: Schema, root: Schema) -> str:
    options = (_option_words(option, root) for option in _options(node, root))
    return " or ".join(dict.fromkeys(words for words in options if words))


def _option_words(node: Schema, root: Schema) -> str:
    if "const" in node or "enum" in node:
        values = [
            value if isinstance(value, str) else json.dumps(value)
            for value in node.get("enum", [node.get("const")])
        ]
        return "one of " * ("enum" in node) + ", ".join(values)
    if node.get("title") == "Component":
        return "a plugin's name, or a mapping of name and params"
    if node.get("type") == "array":
        return _list_words(node, root)
    words = _WORDS.get(node.get("type", ""), "")
    return " ".join(part for part in (words, _limit_words(node)) if part)


def _limit_words(node: Schema) -> str:
    bounds = [(sign, node[key]) for key, sign in _LIMITS.items() if key in node]
    limits = [
        f"{sign} {bound:g}" if abs(bound) < 1e6 else f"{sign} {bound}" for sign, bound in bounds
    ]
    if node.get("minLength") == 1:
        limits.append("that is not empty")
    if pattern := node.get("pattern"):
        limits.append("of " + _PATTERNS[pattern] if pattern in _PATTERNS else f"matching {pattern}")
    return " and ".join(limits)


def _list_words(node: Schema, root: Schema) -> str:
    inside = [_words(item, root) for item in node.get("prefixItems", [])]
    if inside:
        return f"a list of {len(inside)}: " + ", ".join(inside)
    of = _words(node.get("items") or {}, root)
    least = node.get("minItems")
    most = node.get("maxItems")
    size = f" {least}" if least == most and least else f" at least {least}" if least else ""
    return f"a list of{size} values" + (f", each {of}" if of else "")


def shown(value: Any) -> str:
    """A value as a message shows it: text quoted, the rest as in YAML, cut where it is long."""
    if isinstance(value, str):
        return repr(shorten(value, 60))
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    return shorten(json.dumps(value, default=str), 60)


@dataclass(frozen=True)
class Given:
    """A value of a file or of the command line, and where it stands: for messages about it.

    Attributes:
        value: plain data.
        path: its keys.
        marks: the origins of the file's keys.
    """

    value: Any
    path: KeyPath
    marks: Marks = field(compare=False)

    @property
    def origin(self) -> Origin:
        return origin_of(self.path, self.marks)

    def at(self, key: str | int) -> Given:
        """What stands below it; None where there is nothing."""
        return Given(dict(children(self.value)).get(key), (*self.path, key), self.marks)

    def entries(self) -> list[Given]:
        """The entries of a list."""
        return [self.at(number) for number in range(len(self.value))]

    def wrong(self, message: str) -> ConfigError:
        """The refusal of this value: `file:line: key.path: message`."""
        return problem(self.path, message, self.marks)

    def expect(self, fits: bool, words: str) -> None:
        """Refuse the value unless it fits; `words` say what it must be."""
        if not fits:
            raise self.wrong(f"got {shown(self.value)}, must be {words}")

    def refuse_unknown(self, *known: str) -> None:
        """Refuse other keys in a mapping."""
        for key in self.value if isinstance(self.value, dict) else ():
            if key not in known:
                path = (*self.path, key)
                raise self.at(key).wrong(f"unknown key{suggest_key(path, {self.path: known})}")


Model = TypeVar("Model", bound=BaseModel)


UNKNOWN, MISSING, MISTYPED, RULE = range(4)
"""Ranks of faults."""


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with a setting.

    Attributes:
        rank: smaller ones are told first: an unknown key is often why another one is missing.
        path: the setting.
        message: what is wrong with it.
        about: other settings that a rule names, dotted.
    """

    rank: int
    path: KeyPath
    message: str
    about: tuple[str, ...] = ()

    def line(self, marks: Marks) -> Origin:
        """What to name: a setting that an override gave, else the one at `path`, else the first
        one that is given. A rule that names none may be about any below `path`.
        """
        if self.rank < RULE:
            return origin_of(self.path, marks)
        inside = [key for key in marks if key[: len(self.path)] == self.path != key]
        named = [key for key in map(key_path, self.about) if key in marks]
        if self.path in marks and not inside:
            named.insert(0, self.path)
        overriding = [key for key in named or inside if marks[key].source.startswith("override ")]
        return origin_of((*overriding, *named, self.path)[0], marks)


def refusal(faults: list[Fault], marks: Marks | None) -> ConfigError:
    """The error for the first of some faults; it says how many more there are."""
    marks = marks or {}
    first = min(faults, key=lambda fault: (fault.rank, fault.line(marks).line))
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return problem(first.path, first.message + more, {(): first.line(marks)})


def validated(
    model: type[Model], data: Mapping[str, Any], path: KeyPath, known: Callable[[], Known]
) -> tuple[Model | None, list[Fault]]:
    """`data`, which stand at `path` of an experiment, as a `model`, or what is wrong with them.

    Validation reads JSON, so that a list may fill a tuple while everything else stays strict.
    `known` is called for suggestions, only when a key is unknown.
    """
    try:
        return model.model_validate_json(json.dumps(data, allow_nan=False)), []
    except ValidationError as error:
        faults: dict[tuple[KeyPath, int], Fault] = {}
        for detail in error.errors(include_url=False):
            fault = _fault(model, data, path, detail, known)
            faults.setdefault((fault.path, fault.rank), fault)
        return None, list(faults.values())
    except (TypeError, ValueError) as error:
        message = f"must hold finite numbers, text, lists and mappings only: {error}"
        return None, [Fault(MISTYPED, path, message)]


def _fault(
    model: type[BaseModel],
    data: Mapping[str, Any],
    path: KeyPath,
    detail: ErrorDetails,
    known: Callable[[], Known],
) -> Fault:
    kind = detail["type"]
    if kind == "extra_forbidden":
        key = (*path, *detail["loc"])
        return Fault(UNKNOWN, key, f"unknown key{suggest_key(key, known())}")
    local = _inside(model, detail["loc"], data)
    key = (*path, *local)
    if kind == "missing":
        words = allowed(model, local)
        return Fault(MISSING, key, f"missing{f', must be {words}' if words else ''}")
    if kind in ("value_error", "assertion_error"):
        error = detail.get("ctx", {}).get("error", detail["msg"])
        return Fault(RULE, key, str(error).strip() or "not valid", fields_of(error, key))
    return Fault(MISTYPED, key, _type_message(model, local, data))


def fields_of(error: Any, path: KeyPath) -> tuple[str, ...]:
    """The fields that a rule of a plugin is about, dotted; none where it does not say."""
    names = getattr(error, "names", ())
    return tuple(".".join(map(str, (*path, name))) for name in names)


def _inside(model: type[BaseModel], loc: KeyPath, data: Any) -> KeyPath:
    """The part of an error's location that is a setting, without the names of union members."""
    kept: KeyPath = ()
    for key in loc:
        if _schema_at(model, (*kept, key)) is None:
            break
        if isinstance(key, int) and not isinstance(get(data, kept), (list, tuple)):
            break  # one value for a list of one
        kept = (*kept, key)
    return kept


def _type_message(model: type[BaseModel], path: KeyPath, data: Any) -> str:
    value = without_secrets(get(data, path), str(path[-1]) if path else "")
    words = allowed(model, path) or "another kind of value"
    hint = _hint(value, words) or _nearest_choice(model, path, value)
    return f"got {shown(value)}, must be {words}{hint}"


def _nearest_choice(model: type[BaseModel], path: KeyPath, value: Any) -> str:
    """Which of the words that a setting may be is meant."""
    node = _schema_at(model, path)
    if not isinstance(value, str) or node is None:
        return ""
    choices = [
        choice
        for option in _options(node, _json_schema(model))
        for choice in option.get("enum", [option.get("const")])
        if isinstance(choice, str)
    ]
    return did_you_mean(value, choices)


def _hint(value: Any, words: str) -> str:
    """What to write, where quotes are all that is wrong."""
    if isinstance(value, str) and re.fullmatch(
        r"[-+]?[0-9.]+(e[-+]?[0-9]+)?|true|false|null", value, re.IGNORECASE
    ):
        return "; leave out the quotes" if not words.startswith(("text", "one of")) else ""
    if isinstance(value, (bool, int, float)) and words.startswith("text"):
        return f'; write "{shown(value)}"'
    return ""
