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
from subquad.effect import as_written
from subquad.errors import ConfigError
from subquad.experiment.key_names import Known, suggest_key
from subquad.experiment.settings import (
    NO_MARKS,
    KeyPath,
    Marks,
    Origin,
    Tree,
    children,
    flat_key,
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
    node = _schema_at(model, path)
    if node is None:
        return ""
    return _words(node, _json_schema(model))


def _schema_at(model: type[BaseModel], path: KeyPath) -> Schema | None:
    """The JSON schema of one setting; None where there is no such setting."""
    root = _json_schema(model)
    node: Schema | None = root
    for key in path:
        if node is None:
            return None
        node = _step(node, key, root)
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
        if isinstance(key, str):
            found = option.get("properties", {}).get(key)
        else:
            found = dict(enumerate(option.get("prefixItems", []))).get(key, option.get("items"))
        if isinstance(found, dict):
            return found
    return None


def _options(node: Schema, root: Schema) -> list[Schema]:
    """The alternatives a schema allows, references followed."""
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        return _options(root["$defs"][name], root)
    options: list[Schema] = []
    for option in node.get("anyOf", []):
        options += _options(option, root)
    return options or [node]


def _choices(option: Schema) -> list[Any]:
    """The values that a schema lists."""
    if "const" in option:
        return [option["const"]]
    return option.get("enum", [])


def _words(node: Schema, root: Schema) -> str:
    words: dict[str, None] = {}
    for option in _options(node, root):
        words[_option_words(option, root)] = None
    return " or ".join(filter(None, words))


def _option_words(node: Schema, root: Schema) -> str:
    choices = ", ".join(map(as_written, _choices(node)))
    if "enum" in node:
        return f"one of {choices}"
    if "const" in node:
        return choices
    if node.get("title") == "Component":
        return "a plugin's name, or a mapping of name and params"
    if node.get("type") == "array":
        return _list_words(node, root)
    kind = _WORDS.get(node.get("type", ""), "")
    return f"{kind} {_limit_words(node)}".strip()


def _limit_words(node: Schema) -> str:
    limits: list[str] = []
    for key, sign in _LIMITS.items():
        if key in node:
            bound = node[key]
            if abs(bound) < 1e6:
                limits.append(f"{sign} {bound:g}")
            else:
                limits.append(f"{sign} {bound}")
    if node.get("minLength") == 1:
        limits.append("that is not empty")
    pattern = node.get("pattern")
    if pattern in _PATTERNS:
        limits.append(f"of {_PATTERNS[pattern]}")
    elif pattern:
        limits.append(f"matching {pattern}")
    return " and ".join(limits)


def _list_words(node: Schema, root: Schema) -> str:
    inside = [_words(item, root) for item in node.get("prefixItems", [])]
    if inside:
        return f"a list of {len(inside)}: {', '.join(inside)}"
    text = "a list of values"
    least = node.get("minItems")
    if least:
        at_least = "" if least == node.get("maxItems") else "at least "
        text = f"a list of {at_least}{least} values"
    each = _words(node.get("items") or {}, root)
    if each:
        text += f", each {each}"
    return text


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
        value = get(self.value, (key,))
        return Given(value, (*self.path, key), self.marks)

    def items(self) -> list[tuple[Any, Given]]:
        """The entries of a mapping or list, by their keys or numbers."""
        return [(key, self.at(key)) for key, _ in children(self.value)]

    def entries(self) -> list[Given]:
        """The entries of a list."""
        return [entry for _, entry in self.items()]

    def wrong(self, message: str) -> ConfigError:
        """The refusal of this value: `file:line: key.path: message`."""
        return problem(self.path, message, self.origin)

    def expect(self, fits: bool, words: str) -> None:
        """Refuse the value unless it fits; `words` say what it must be."""
        if not fits:
            raise self.wrong(f"got {shown(self.value)}, must be {words}")

    def expect_mapping(self, words: str) -> None:
        """Refuse the value unless it is a mapping that holds something."""
        is_mapping = isinstance(self.value, dict)
        self.expect(is_mapping and self.value != {}, words)

    def refuse_unknown(self, *known: str) -> None:
        """Refuse other keys in a mapping."""
        if not isinstance(self.value, dict):
            return
        for key, entry in self.items():
            if key not in known:
                hint = suggest_key(entry.path, {self.path: known})
                raise entry.wrong(f"unknown key{hint}")


def top_of(tree: Tree) -> Given:
    """All that a file says."""
    return Given(tree.data, (), tree.marks)


Model = TypeVar("Model", bound=BaseModel)


UNKNOWN, MISSING, MISTYPED, RULE = range(4)
"""Ranks of faults."""


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with a setting.

    Attributes:
        path: the setting.
        message: what is wrong with it.
        about: other settings that a rule names, dotted.
        rank: smaller ones are told first: an unknown key is often why another one is missing.
    """

    path: KeyPath
    message: str
    about: tuple[str, ...] = ()
    rank: int = RULE

    def origin(self, marks: Marks) -> Origin:
        """What to name: a setting that an override gave, else the one at `path`, else the first
        one that is given. A rule that names none may be about any below `path`.
        """
        if self.rank < RULE:
            return origin_of(self.path, marks)
        depth = len(self.path)
        inside = [key for key in marks if key[:depth] == self.path != key]
        named = [key for key in map(key_path, self.about) if key in marks]
        if self.path in marks and not inside:
            named.insert(0, self.path)
        for key in named or inside:
            origin = marks[key]
            if origin.source.startswith("override "):
                return origin
        if named:
            return marks[named[0]]
        return origin_of(self.path, marks)


def refusal(faults: list[Fault], marks: Marks = NO_MARKS) -> ConfigError:
    """The error for the first of some faults; it says how many more there are."""

    def precedence(fault: Fault) -> tuple[int, int]:
        return fault.rank, fault.origin(marks).line

    first = min(faults, key=precedence)
    message = first.message
    others = len(faults) - 1
    if others:
        message += f" (and {others} more)"
    return problem(first.path, message, first.origin(marks))


def validated(
    model: type[Model], data: Mapping[str, Any], path: KeyPath, known: Callable[[], Known]
) -> tuple[Model | None, list[Fault]]:
    """`data`, which stand at `path` of an experiment, as a `model`, or what is wrong with them.

    Validation reads JSON, so that a list may fill a tuple while everything else stays strict.
    `known` is called for suggestions, only when a key is unknown.
    """
    try:
        text = json.dumps(data, allow_nan=False)
        return model.model_validate_json(text), []
    except ValidationError as error:
        faults: dict[tuple[KeyPath, int], Fault] = {}
        for detail in error.errors(include_url=False):
            fault = _fault(model, data, path, detail, known)
            faults.setdefault((fault.path, fault.rank), fault)
        return None, list(faults.values())
    except (TypeError, ValueError) as error:
        message = f"must hold finite numbers, text, lists and mappings only: {error}"
        return None, [Fault(path, message, rank=MISTYPED)]


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
        hint = suggest_key(key, known())
        return Fault(key, f"unknown key{hint}", rank=UNKNOWN)
    local = _inside(model, detail["loc"], data)
    key = (*path, *local)
    if kind == "missing":
        message = "missing"
        if words := allowed(model, local):
            message = f"missing, must be {words}"
        return Fault(key, message, rank=MISSING)
    if kind in ("value_error", "assertion_error"):
        error = detail.get("ctx", {}).get("error", detail["msg"])
        message = str(error).strip() or "not valid"
        return Fault(key, message, fields_of(error, key))
    message = _type_message(model, local, data)
    return Fault(key, message, rank=MISTYPED)


def fields_of(error: Any, path: KeyPath) -> tuple[str, ...]:
    """The fields that a rule of a plugin is about, dotted; none where it does not say."""
    names = getattr(error, "names", ())
    return tuple(flat_key((*path, name)) for name in names)


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
    *_, name = path or ("",)
    value = without_secrets(get(data, path), str(name))
    words = allowed(model, path) or "another kind of value"
    message = f"got {shown(value)}, must be {words}"
    if isinstance(value, str):
        takes_words = words.startswith(("text", "one of"))
        if _BARE.fullmatch(value) and not takes_words:
            return f"{message}; leave out the quotes"
        return message + _nearest_choice(model, path, value)
    if isinstance(value, (bool, int, float)) and words.startswith("text"):
        return f'{message}; write "{shown(value)}"'
    return message


_BARE = re.compile(r"[-+]?[0-9.]+(e[-+]?[0-9]+)?|true|false|null", re.IGNORECASE)
"""Text that without quotes is no text."""


def _nearest_choice(model: type[BaseModel], path: KeyPath, value: str) -> str:
    """Which of the words that a setting may be is meant."""
    words: list[str] = []
    node = _schema_at(model, path) or {}
    for option in _options(node, _json_schema(model)):
        for choice in _choices(option):
            if isinstance(choice, str):
                words.append(choice)
    return did_you_mean(value, words)
