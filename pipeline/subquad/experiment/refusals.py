"""Refusals in one line: the nearest known key, and pydantic's findings in our own words."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from subquad.addresses import without_secrets
from subquad.errors import ConfigError
from subquad.experiment.key_names import Known, known_keys, suggest_key
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
from subquad.registry.allowed import allowed, keys_at, nearest_choice, schema_at


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
        return Given(get(self.value, (key,)), (*self.path, key), self.marks)

    def items(self) -> list[tuple[Any, Given]]:
        """The entries of a mapping or list, by their keys or numbers."""
        return [
            (key, Given(value, (*self.path, key), self.marks))
            for key, value in children(self.value)
        ]

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

    def expect_type(self, kind: type, words: str) -> None:
        """Refuse the value unless it is of a type."""
        self.expect(isinstance(self.value, kind), words)

    def expect_filled(self, kind: type, words: str) -> None:
        """Refuse the value unless it is of a type and not empty."""
        self.expect_type(kind, words)
        self.expect(len(self.value) > 0, words)

    def refuse_unknown(self, *known: str) -> None:
        """Refuse other keys in a mapping."""
        if not isinstance(self.value, dict):
            return
        for key, entry in self.items():
            if key not in known:
                raise entry.wrong(f"unknown key{suggest_key(entry.path, {self.path: known})}")


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
        about: other settings that a plugin's rule names, dotted; our own name them in the message.
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
        named: list[KeyPath] = []
        if self.path in marks and not inside:
            named.append(self.path)
        about = [key_path(name) for name in self.about]
        said = set(re.findall(r"[\w.-]*\w", self.message))
        about += [key for key in marks if len(key) > 1 and flat_key(key) in said]
        named += [key for key in about if key in marks]
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
    model: type[Model],
    data: Mapping[str, Any],
    path: KeyPath = (),
    known: Callable[[], Known] | None = None,
) -> tuple[Model | None, list[Fault]]:
    """`data`, which stand at `path` of an experiment, as a `model`, or what is wrong with them.

    Validation reads JSON, so that a list may fill a tuple while everything else stays strict.
    `known` says which keys there are where these are not the model's alone; it is called only when
    a key is unknown.
    """
    try:
        return model.model_validate_json(json.dumps(data, allow_nan=False)), []
    except ValidationError as error:
        faults: dict[tuple[KeyPath, int], Fault] = {}
        for detail in error.errors(include_url=False):
            fault = _fault(model, data, path, detail, known or (lambda: known_keys(model, path)))
            # each member of a union says what it finds wrong with one value
            faults.setdefault((fault.path, fault.rank), fault)
        return None, list(faults.values())
    except (TypeError, ValueError) as error:
        return None, [
            Fault(
                path,
                f"must hold finite numbers, text, lists and mappings only: {error}",
                rank=MISTYPED,
            )
        ]


def _fault(
    model: type[BaseModel],
    data: Mapping[str, Any],
    path: KeyPath,
    detail: ErrorDetails,
    known: Callable[[], Known],
) -> Fault:
    kind = detail["type"]
    place = detail["loc"]
    if kind == "extra_forbidden":
        key = (*path, *place)
        keys = {key[:-1]: keys_at(model, place[:-1]), **known()}
        return Fault(key, f"unknown key{suggest_key(key, keys)}", rank=UNKNOWN)
    local = _inside(model, place, data)
    key = (*path, *local)
    if kind == "missing":
        message = "missing"
        if words := allowed(model, local):
            message = f"missing, must be {words}"
        return Fault(key, message, rank=MISSING)
    if kind in ("value_error", "assertion_error"):
        error = detail.get("ctx", {}).get("error", detail["msg"])
        return Fault(key, str(error).strip() or "not valid", fields_of(error, key))
    return Fault(key, _type_message(model, local, data), rank=MISTYPED)


def fields_of(error: Any, path: KeyPath) -> tuple[str, ...]:
    """The fields that a rule of a plugin is about, dotted; none where it does not say."""
    return tuple(flat_key((*path, name)) for name in getattr(error, "names", ()))


def _inside(model: type[BaseModel], loc: KeyPath, data: Any) -> KeyPath:
    """The part of an error's location that is a setting, without the names of union members."""
    kept: KeyPath = ()
    for key in loc:
        if schema_at(model, (*kept, key)) is None:
            break
        if isinstance(key, int) and not isinstance(get(data, kept), (list, tuple)):
            break  # one value for a list of one
        kept = (*kept, key)
    return kept


def _type_message(model: type[BaseModel], path: KeyPath, data: Any) -> str:
    value = without_secrets(get(data, path), str(path[-1]) if path else "")
    words = allowed(model, path) or "another kind of value"
    message = f"got {shown(value)}, must be {words}"
    if isinstance(value, str):
        if _BARE.fullmatch(value) and not words.startswith(("text", "one of")):
            return f"{message}; leave out the quotes"
        return f"{message}{nearest_choice(model, path, value)}"
    if isinstance(value, (bool, int, float)) and words.startswith("text"):
        return f'{message}; write "{shown(value)}"'
    return message


_BARE = re.compile(r"[-+]?[0-9.]+(e[-+]?[0-9]+)?|true|false|null", re.IGNORECASE)
"""Text that without quotes is no text."""
