"""The plain tree of an experiment before validation: where each setting was given, how later ones
are laid over it.

Settings come in layers: the file, a study's axes, each of its cases, the command line. In every
layer one of a pair of alternatives (epochs or steps) that is given without the other switches the
other off.
"""

from __future__ import annotations

import copy
import os.path
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from subquad.errors import ConfigError

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Origin:
    """Where a value was given.

    Attributes:
        source: a file as the user typed it, `recipe NAME` or `override 'KEY=VALUE'`; "" where it is
            not known.
        line: counted from 1; 0 where there are no lines.
        folder: what a relative path in the value is relative to.
    """

    source: str
    line: int = 0
    folder: Path | None = None

    def __str__(self) -> str:
        if self.line:
            return f"{self.source}:{self.line}"
        return self.source


_UNKNOWN = Origin("")
Marks = Mapping[KeyPath, Origin]
"""The origin of each key; a key that is not there came with its nearest ancestor, or is a
default.
"""


def origin_of(path: KeyPath, marks: Marks | None) -> Origin:
    """The origin of a key, or of the mapping it would stand in; one without a source when
    nothing is known.
    """
    for length in range(len(path), -1, -1):
        if marks and path[:length] in marks:
            return marks[path[:length]]
    return _UNKNOWN


def dotted(path: KeyPath) -> str:
    """`mixer.params.order`; an index in a list is written `[2]`, counted from 0."""
    parts = (f"[{key}]" if isinstance(key, int) else f".{shown_key(key)}" for key in path)
    return "".join(parts).removeprefix(".")


def shown_key(key: str) -> str:
    """A key as it is, or quoted where it is long or holds anything but letters, digits, '.', '-'
    and '_'.
    """
    if re.fullmatch(r"[\w.-]{1,60}", key):
        return key
    return repr(shorten(key, 60))


def shorten(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return f"{text[: limit - 3]}..."


def shown_target(target: str) -> str:
    """A file's name as messages show it: of a very long one the end."""
    if len(target) <= 200:
        return target
    return f"...{target[-197:]}"


def problem(path: KeyPath, message: str, marks: Marks | None = None) -> ConfigError:
    """The error for one setting: `file:line: key.path: message`."""
    parts = [str(origin_of(path, marks)), dotted(path), message]
    return ConfigError(": ".join(part for part in parts if part))


def mark_all(value: Any, path: KeyPath, origin: Origin) -> dict[KeyPath, Origin]:
    """The same origin for a value and everything in it."""
    marks = {path: origin}
    for key, child in children(value):
        marks |= mark_all(child, (*path, key), origin)
    return marks


def children(value: Any) -> list[tuple[str | int, Any]]:
    """Keys (or indices) and values of a mapping or list; nothing for a scalar."""
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, list):
        return list(enumerate(value))
    return []


COMPONENTS = ("dataset", "task", "backbone", "mixer")
STUDY_KEYS = ("extends", "matrix", "cases", "baseline", "match")
SECTIONS = ("train", "resources", "tracking")
_SECTION_PATHS = [(section,) for section in SECTIONS]
ALTERNATIVES = (
    (("train", "epochs"), ("train", "steps")),
    (("train", "eval_every_epochs"), ("train", "eval_every_steps")),
)


@dataclass(frozen=True)
class Tree:
    """An experiment, or whatever a YAML text says, as plain data.

    Attributes:
        data: mappings, lists and scalars.
        marks: where each of them was given.
    """

    data: Any
    marks: Marks


@dataclass(frozen=True)
class Setting:
    """One value to lay over a tree.

    Attributes:
        path: a key; a component's key alone (`mixer`) also takes a plugin's name.
        value: a plain value.
        origin: where it was given.
    """

    path: KeyPath
    value: Any
    origin: Origin


def overlay(tree: Tree, layer: Sequence[Setting]) -> Tree:
    """The tree with one layer of settings over it; whole components first, then single keys in the
    order given.

    Raises:
        ConfigError: a setting lies below something that is not a mapping.
    """
    data = copy.deepcopy(tree.data)
    marks = dict(tree.marks)
    for setting in sorted(single(layer), key=lambda setting: len(setting.path) > 1):
        marks |= _put(data, setting)
    _settle(data, [path for setting in layer for path in _given(setting.value, setting.path)])
    return Tree(data, {path: origin for path, origin in marks.items() if is_given(data, path)})


def key_path(key: str) -> KeyPath:
    """The path of a dotted key; `mixers.0.params.order` counts the entries of the list from 0."""
    head, *rest = key.split(".")
    return (head, *(int(part) if head == "mixers" and part.isdecimal() else part for part in rest))


def single(layer: Sequence[Setting]) -> list[Setting]:
    """The layer with sections (`train: {lr: 1}`) as settings of their keys, so that they add to
    what is there.
    """
    settings: list[Setting] = []
    for setting in layer:
        if setting.path in _SECTION_PATHS and isinstance(setting.value, dict):
            for key, value in setting.value.items():
                settings.append(Setting((*setting.path, key), value, setting.origin))
        else:
            settings.append(setting)
    return settings


def _put(data: dict[str, Any], setting: Setting) -> dict[KeyPath, Origin]:
    """Write a setting into `data`; the marks it brings."""
    if len(setting.path) == 1 and setting.path[0] in COMPONENTS:
        return _put_component(data, setting)
    marks = mark_all(setting.value, setting.path, setting.origin)
    place: Any = data
    for depth, key in enumerate(setting.path):
        name = "list" if isinstance(key, int) else "mapping"
        if type(place) is not {"list": list, "mapping": dict}[name]:
            message = f"cannot be set, as {dotted(setting.path[:depth])} is not a {name}"
            raise problem(setting.path, message, {(): setting.origin})
        if isinstance(key, int) and key >= len(place):
            message = f"there is no such entry, the list has {len(place)}"
            raise problem(setting.path[: depth + 1], message, {(): setting.origin})
        if depth + 1 == len(setting.path):
            place[key] = copy.deepcopy(setting.value)
        elif isinstance(place, dict) and key not in place:
            marks[setting.path[: depth + 1]] = setting.origin
            place[key] = {}
        place = place[key]
    return marks


def _put_component(data: dict[str, Any], setting: Setting) -> dict[KeyPath, Origin]:
    """Choose a plugin. Parameters stay only while the plugin does; those that are given are laid
    over them.
    """
    key = str(setting.path[0])
    value = setting.value
    given = {"name": value} if isinstance(value, str) else value
    marks = mark_all(given, (key,), setting.origin)
    before, data[key] = data.get(key), copy.deepcopy(given)
    if (
        isinstance(given, dict)
        and isinstance(before, dict)
        and given.get("name", before.get("name")) == before.get("name")
    ):
        params = before.get("params", {})
        added = data[key].get("params", {})
        if isinstance(params, dict) and isinstance(added, dict):
            data[key] = {**before, **given, "params": {**params, **added}}
    return marks


def _given(value: Any, path: KeyPath) -> list[KeyPath]:
    """The alternatives that a value written at `path` switches on."""
    members = [member for pair in ALTERNATIVES for member in pair if member[: len(path)] == path]
    return [member for member in members if get(value, member[len(path) :]) is not None]


def _settle(data: dict[str, Any], given: Sequence[KeyPath]) -> None:
    """Switch off the other of each pair of which exactly one was given."""
    for first, second in ALTERNATIVES:
        section = data.get(str(first[0]))
        if (first in given) != (second in given) and isinstance(section, dict):
            section[str((second if first in given else first)[-1])] = None


def get(value: Any, path: KeyPath) -> Any:
    """The value below `value` at `path`; None where there is none."""
    for key in path:
        value = dict(children(value)).get(key)
    return value


def is_given(data: Any, path: KeyPath) -> bool:
    """Whether there is a value at `path`, be it null."""
    return not path or path[-1] in dict(children(get(data, path[:-1])))


def absolute(value: str, folder: Path) -> str:
    """An absolute path; `~` is the home folder. An address (`s3://...`, `timm:...`) and empty
    text stay as they are.
    """
    if not value or "://" in value or value.startswith("timm:"):
        return value
    return os.path.normpath(os.path.join(os.path.abspath(folder), os.path.expanduser(value)))


def path_fields(config: type[BaseModel]) -> tuple[str, ...]:
    """The parameters of a plugin that are declared as paths."""
    extras = ((name, field.json_schema_extra) for name, field in config.model_fields.items())
    return tuple(name for name, extra in extras if isinstance(extra, dict) and extra.get("path"))


def absolute_file(name: str, folder: Path) -> str:
    """The name of a plugin in a file, `./file.py:Class`, with the file's path absolute; other
    names as they are.
    """
    file, colon, attribute = name.rpartition(":")
    if file.endswith(".py"):
        return f"{absolute(file, folder)}{colon}{attribute}"
    return name


def folder_of(path: KeyPath, marks: Marks | None, base: Path) -> Path:
    """What a relative path given at `path` is relative to; `base` where its origin has no
    folder.
    """
    return origin_of(path, marks).folder or base


_PATHS = (("init", "from"), ("resources", "storage"))


def absolute_paths(
    value: Any, path: KeyPath, marks: Marks | None, base: Path, is_path: Callable[[KeyPath], bool]
) -> Any:
    """A value of an experiment with the paths in it absolute, against the folder of whoever gave
    them, else `base`.

    Args:
        value: plain data.
        path: where it stands.
        marks: where each setting was given.
        base: a folder.
        is_path: whether a plugin's parameter is one.
    """
    if isinstance(value, dict):
        return {
            key: absolute_paths(inner, (*path, key), marks, base, is_path)
            for key, inner in value.items()
        }
    if isinstance(value, list) and path == ("mixers",):
        return [
            absolute_paths(inner, (*path, number), marks, base, is_path)
            for number, inner in enumerate(value)
        ]
    if not isinstance(value, str):
        return value
    if path in _PATHS or is_path(path):
        return absolute(value, folder_of(path, marks, base))
    place = (path[0], *path[2:]) if path[0] == "mixers" else path
    is_name = place[0] in (*COMPONENTS, "mixers") and place[1:] in ((), ("name",))
    if is_name:
        return absolute_file(value, folder_of(path, marks, base))
    return value
