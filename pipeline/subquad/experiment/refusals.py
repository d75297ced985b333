"""Refusals in one line: what a setting may be, the nearest known key, and pydantic's findings in our own words."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from subquad.errors import ConfigError
from subquad.experiment.settings import KeyPath, Marks, dotted, get, origin_of, problem, shorten
from subquad.suggest import nearest

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
    """What the setting at `path` below `model` may be; "" where the schema says nothing about it."""
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
        values = [one if isinstance(one, str) else json.dumps(one) for one in node.get("enum", [node.get("const")])]
        return "one of " * ("enum" in node) + ", ".join(values)
    if node.get("title") == "Component":
        return "a plugin's name, or a mapping of name and params"
    if node.get("type") == "array":
        return _list_words(node, root)
    words = _WORDS.get(node.get("type", ""), "")
    return " ".join(part for part in (words, _limit_words(node)) if part)


def _limit_words(node: Schema) -> str:
    bounds = [(sign, node[key]) for key, sign in _LIMITS.items() if key in node]
    limits = [f"{sign} {bound:g}" if abs(bound) < 1e6 else f"{sign} {bound}" for sign, bound in bounds]
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


def shown(value: Any) -> str:
    """A value as a message shows it: text quoted, the rest as in YAML, cut where it is long."""
    if isinstance(value, str):
        return repr(shorten(value, 60))
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    return shorten(json.dumps(value, default=str), 60)


Known = Mapping[KeyPath, tuple[str, ...]]
"""The keys of each mapping of an experiment, by the mapping's path."""

_ELSEWHERE_CALLED = {
    "lr": "learning_rate",
    "weight_decay": "wd l2",
    "batch_size": "bs batch global_batch_size",
    "micro_batch": "per_device_batch_size",
    "epochs": "num_epochs n_epochs max_epochs",
    "steps": "num_steps max_steps iterations",
    "optimizer": "optim",
    "beta1": "momentum",
    "schedule": "scheduler lr_scheduler",
    "warmup_steps": "warmup",
    "clip_norm": "grad_clip gradient_clip max_grad_norm",
    "precision": "amp dtype",
    "seed": "random_seed",
    "patience": "early_stopping",
    "loader_workers": "num_workers",
    "workers": "world_size",
    "gpus_per_worker": "gpus num_gpus",
    "num_heads": "heads n_heads",
    "dim": "hidden_size d_model",
    "num_layers": "depth n_layers layers",
    "backbone": "model",
    "mixer": "attention",
    "dataset": "data",
    "tracking": "mlflow",
}
_OTHER_NAMES = {other: name for name, others in _ELSEWHERE_CALLED.items() for other in others.split()}
"""What other tools call our keys."""


def known_keys(model: type[BaseModel], path: KeyPath = ()) -> dict[KeyPath, tuple[str, ...]]:
    """The keys of `model` and of the models below it."""
    found: dict[KeyPath, tuple[str, ...]] = {path: tuple(model.model_fields)}
    for name, field in model.model_fields.items():
        for inner in models_below(field):
            found |= known_keys(inner, (*path, name))
    return found


def models_below(field: FieldInfo) -> list[type[BaseModel]]:
    """The schemas of a field that holds settings of its own, also where it may be null."""
    is_union = get_origin(field.annotation) is UnionType
    options = get_args(field.annotation) if is_union else (field.annotation,)
    return [option for option in options if isinstance(option, type) and issubclass(option, BaseModel)]


def suggest_key(path: KeyPath, known: Known) -> str:
    """What to write instead of a key: `; did you mean 'train'?`, `; it belongs at train.lr`, or what there is."""
    parent, key = path[:-1], str(path[-1])
    siblings = known.get(parent, ())
    if places := _places(key, parent, known):
        return f"; it belongs at {places}"
    if found := nearest(key, siblings):
        return f"; did you mean {found[0]!r}?"
    if found := _other_name(key, parent, known) or _elsewhere(key, known):
        return f"; did you mean {found}?"
    return f"; there is {', '.join(siblings)}" if siblings else "; it takes none"


def _places(key: str, parent: KeyPath, known: Known) -> str:
    """Where exactly this key stands, below its parent if it does there; at most three places."""
    where = [path for path, keys in known.items() if key in keys]
    below = [path for path in where if path[: len(parent)] == parent]
    return " or ".join(dotted((*path, key)) for path in (below or where)[:3])


def _other_name(key: str, parent: KeyPath, known: Known) -> str:
    """What other tools call by this name, or nearly so, is called here."""
    spelled = key.lower().replace("-", "_")
    alike = nearest(spelled, _OTHER_NAMES) if len(spelled) > 5 else []
    name = _OTHER_NAMES.get(spelled) or next((_OTHER_NAMES[other] for other in alike), None)
    if name is None:
        return ""
    return repr(name) if name in known.get(parent, ()) else _places(name, parent, known)


def _elsewhere(key: str, known: Known) -> str:
    """The nearest key anywhere, with its path."""
    found = nearest(key, {name for keys in known.values() for name in keys})
    return _places(found[0], (), known) if found else ""


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
    first = min(faults, key=lambda fault: (fault.rank, origin_of(fault.marked, marks).line))
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return problem(first.path, first.message + more, {(): origin_of(first.marked, marks)})


def validated(
    model: type[Model], data: Mapping[str, Any], path: KeyPath, marks: Marks | None, known: Callable[[], Known]
) -> tuple[Model | None, list[Fault]]:
    """`data`, which stand at `path` of an experiment, as a `model`, or what is wrong with them.

    Validation reads JSON, so that a list may fill a tuple while everything else stays strict. `known` is called for
    suggestions, only when a key is unknown.
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
        if _schema_at(model, (*kept, key)) is None:
            break
        kept = (*kept, key)
    return kept


def _type_message(model: type[BaseModel], path: KeyPath, data: Any) -> str:
    value = get(data, path)
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

    A rule's message writes keys in full or relative to `path`, the setting or mapping that the rule is about.
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
    overriding = [key for key in named if marks[key].source.startswith("override ")]
    return next(iter((*overriding, *named, path)))
