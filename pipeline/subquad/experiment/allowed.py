"""Say in words what a setting may be, from its JSON schema: `a number > 0 or null`, `one of adamw, adam`."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from pydantic import BaseModel
from pydantic.errors import PydanticUserError

from subquad.experiment.origins import KeyPath, shorten

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
_PATTERNS = {NAME_PATTERN: "at most 100 letters, digits, '.', '_' and '-', beginning with a letter or digit"}


def allowed(model: type[BaseModel], path: KeyPath) -> str:
    """What the setting at `path` below `model` may be; "" where the schema says nothing about it."""
    return _words(schema_at(model, path) or {}, json_schema(model))


def schema_at(model: type[BaseModel], path: KeyPath) -> Schema | None:
    """The JSON schema of one setting; None where there is no such setting."""
    root = json_schema(model)
    node: Schema | None = root
    for key in path:
        node = _step(node, key, root) if node is not None else None
    return node


@lru_cache(maxsize=256)
def json_schema(model: type[BaseModel]) -> Schema:
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
    if "const" in node:
        return _value(node["const"])
    if "enum" in node:
        return "one of " + ", ".join(_value(value) for value in node["enum"])
    if node.get("title") == "Component":
        return "a plugin's name, or a mapping of name and params"
    if node.get("type") == "array":
        return _list_words(node, root)
    words = _WORDS.get(node.get("type", ""), "")
    return " ".join(part for part in (words, _limit_words(node)) if part)


def _limit_words(node: Schema) -> str:
    limits = [f"{sign} {node[key]:g}" for key, sign in _LIMITS.items() if key in node and abs(node[key]) < 1e6]
    limits += [f"{sign} {node[key]}" for key, sign in _LIMITS.items() if key in node and abs(node[key]) >= 1e6]
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
    least, most = node.get("minItems"), node.get("maxItems")
    size = f" {least}" if least == most and least else f" at least {least}" if least else ""
    return f"a list of{size} values" + (f", each {of}" if of else "")


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def shown(value: Any) -> str:
    """A value as a message shows it: text quoted, the rest as in YAML, cut where it is long."""
    if isinstance(value, str):
        return repr(shorten(value, 60))
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    return shorten(json.dumps(value, default=str), 60)
