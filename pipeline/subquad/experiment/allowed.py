"""What a setting may be, in words: read from the JSON schema of its model."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from pydantic import BaseModel
from pydantic.errors import PydanticUserError

from subquad.experiment.settings import KeyPath
from subquad.plugin.effect import as_written
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
    node = schema_at(model, path)
    if node is None:
        return ""
    return _words(node, _json_schema(model))


def schema_at(model: type[BaseModel], path: KeyPath) -> Schema | None:
    """The JSON schema of one setting; None where there is no such setting."""
    root = _json_schema(model)
    node: Schema | None = root
    for key in path:
        if node is None:
            return None
        node = _step(node, key, root)
    return node


def keys_at(model: type[BaseModel], path: KeyPath) -> tuple[str, ...]:
    """The keys of the model at `path` below `model`, also one in a mapping of any keys."""
    node = schema_at(model, path)
    options = _options(node, _json_schema(model)) if node else ()
    return tuple(key for option in options for key in option.get("properties", ()))


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
            found = option.get("properties", {}).get(key, option.get("additionalProperties"))
        else:
            found = dict(enumerate(option.get("prefixItems", []))).get(key, option.get("items"))
        if isinstance(found, dict):
            return found
    return None


def _options(node: Schema, root: Schema) -> list[Schema]:
    """The alternatives a schema allows, references followed."""
    if "$ref" in node:
        return _options(root["$defs"][node["$ref"].rpartition("/")[2]], root)
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
    return " or ".join(
        filter(None, {_option_words(option, root): None for option in _options(node, root)})
    )


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


def nearest_choice(model: type[BaseModel], path: KeyPath, value: str) -> str:
    """Which of the words that a setting may be is meant."""
    words: list[str] = []
    for option in _options(schema_at(model, path) or {}, _json_schema(model)):
        for choice in _choices(option):
            if isinstance(choice, str):
                words.append(choice)
    return did_you_mean(value, words)
