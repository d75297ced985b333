"""What a setting may be, in words: read from the JSON schema of its model."""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from typing import Any

from pydantic import BaseModel
from pydantic.errors import PydanticUserError

from subquad.plugin.effect import as_written
from subquad.suggest import did_you_mean

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"

_Schema = dict[str, Any]
_Path = tuple[str | int, ...]

_WORDS = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
    "null": "null",
    "object": "a mapping",
}
_LIMITS = {
    "exclusiveMinimum": ">",
    "minimum": ">=",
    "exclusiveMaximum": "<",
    "maximum": "<=",
    "multipleOf": "divisible by",
    "maxLength": "of length <=",
}
LAYERS_PATTERN = r"^-?[0-9]{1,4}\.\.-?[0-9]{1,4}$"
RANGE_PATTERN = r"^[1-9][0-9]{0,5}\.\.[1-9][0-9]{0,5}$"
_PATTERNS = {
    RANGE_PATTERN: "two numbers, as in 1..4",
    LAYERS_PATTERN: "two layers, as in -3..-1",
    NAME_PATTERN: "at most 100 letters, digits, '.', '_' and '-', beginning with a letter or digit",
}


def allowed(model: type[BaseModel], path: _Path) -> str:
    """What the setting at `path` below `model` may be; "" where the schema says nothing about
    it.
    """
    return _words(schema_at(model, path) or {}, _json_schema(model))


def schema_at(model: type[BaseModel], path: _Path) -> _Schema | None:
    """The JSON schema of one setting; None where there is no such setting."""
    root = _json_schema(model)
    node: _Schema | None = root
    for key in path:
        node = node and _step(node, key, root)
    return node


def keys_at(model: type[BaseModel], path: _Path) -> tuple[str, ...]:
    """The keys of the model at `path` below `model`, also one in a mapping of any keys."""
    options = _options(schema_at(model, path) or {}, _json_schema(model))
    return tuple(key for option in options for key in option.get("properties", ()))


@lru_cache(maxsize=256)
def _json_schema(model: type[BaseModel]) -> _Schema:
    """A model's JSON schema, made once; empty where a plugin uses a type that has none."""
    try:
        return model.model_json_schema()
    except PydanticUserError:
        return {}


def _step(node: _Schema, key: str | int, root: _Schema) -> _Schema | None:
    """The schema below `node` under `key`."""
    for option in _options(node, root):
        if isinstance(key, str):
            found = option.get("properties", {}).get(key, option.get("additionalProperties"))
        else:
            found = dict(enumerate(option.get("prefixItems", []))).get(key, option.get("items"))
        if isinstance(found, dict):
            return found
    return None


def _options(node: _Schema, root: _Schema) -> list[_Schema]:
    """The alternatives a schema allows, references followed."""
    if "$ref" in node:
        return _options(root["$defs"][node["$ref"].rpartition("/")[2]], root)
    options: list[_Schema] = []
    for option in node.get("anyOf", []):
        options += _options(option, root)
    return options or [node]


def _choices(option: _Schema) -> list[Any]:
    """The values that a schema lists."""
    return [option["const"]] if "const" in option else option.get("enum", [])


def _words(node: _Schema, root: _Schema) -> str:
    return " or ".join(
        filter(None, {_option_words(option, root): None for option in _options(node, root)})
    )


def _option_words(node: _Schema, root: _Schema) -> str:
    if choices := _choices(node):
        return ("one of " if "enum" in node else "") + ", ".join(map(as_written, choices))
    if node.get("title") == "Component":
        return "a plugin's name, or a mapping of name and params"
    if node.get("type") == "array":
        return _list_words(node, root)
    kind = _WORDS.get(node.get("type", ""), "")
    return f"{kind} {_limit_words(node)}".strip()


def _limit_words(node: _Schema) -> str:
    limits: list[str] = []
    for key, sign in _LIMITS.items():
        if key in node:
            limits.append(f"{sign} {node[key]:.12g}")
    if node.get("minLength") == 1:
        limits.append("that is not empty")
    pattern = node.get("pattern")
    if pattern in _PATTERNS:
        limits.append(f"of {_PATTERNS[pattern]}")
    elif pattern:
        limits.append(f"matching {pattern}")
    return " and ".join(limits)


def _list_words(node: _Schema, root: _Schema) -> str:
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


def nearest_choice(model: type[BaseModel], path: _Path, value: str) -> str:
    """Which of the words that a setting may be is meant."""
    options = _options(schema_at(model, path) or {}, _json_schema(model))
    choices = chain.from_iterable(map(_choices, options))
    return did_you_mean(value, (choice for choice in choices if isinstance(choice, str)))
