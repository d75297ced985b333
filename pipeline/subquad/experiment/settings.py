"""The plain tree of an experiment before validation: where each setting was given, how later ones
are laid over it.

Settings come in layers: the file, a study's axes, each of its cases, the command line. In every
layer one of a pair of alternatives (epochs or steps) that is given without the other switches the
other off.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from subquad.errors import ConfigError
from subquad.plugin.effect import extra_of

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
        return f"{self.source}:{self.line}" if self.line else self.source


_UNKNOWN = Origin("")
Marks = Mapping[KeyPath, Origin]
"""The origin of each key; a key that is not there came with its nearest ancestor, or is a
default.
"""
NO_MARKS: Marks = {}


def origin_of(path: KeyPath, marks: Marks) -> Origin:
    """The origin of a key, or of the mapping it would stand in; one without a source when
    nothing is known.
    """
    for length in range(len(path), -1, -1):
        if path[:length] in marks:
            return marks[path[:length]]
    return _UNKNOWN


@lru_cache(10_000)
def dotted(path: KeyPath) -> str:
    """`mixer.params.order`; an index in a list is written `[2]`, counted from 0."""
    keys = (f"[{key}]" if isinstance(key, int) else f".{shown_key(key)}" for key in path)
    return "".join(keys).removeprefix(".")


def flat_key(path: KeyPath) -> str:
    """The key as a file writes it: `mixers.0.params.order`."""
    return ".".join(map(str, path))


def shown_key(key: str) -> str:
    """A key as it is, or quoted where it is long or holds anything but letters, digits, '.', '-'
    and '_'.
    """
    return key if re.fullmatch(r"[\w.-]{1,60}", key) else repr(shorten(key, 60))


def shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def shown_target(target: str) -> str:
    """A file's name as messages show it: of a very long one the end."""
    return target if len(target) <= 200 else f"...{target[-197:]}"


def problem(path: KeyPath, message: str, origin: Origin) -> ConfigError:
    """The error for one setting: `file:line: key.path: message`."""
    return ConfigError(": ".join(filter(None, (str(origin), dotted(path), message))))


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
STUDY_KEYS = ("extends", "matrix", "runs", "baseline", "match")
SECTIONS = ("train", "resources", "tracking")
COMPONENT_PATHS = [(kind,) for kind in COMPONENTS]
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

    def wrong(self, message: str) -> ConfigError:
        """The refusal of this setting."""
        return problem(self.path, message, self.origin)


def overlay(tree: Tree, layer: Sequence[Setting]) -> Tree:
    """The tree with one layer of settings over it; whole components first, then single keys in the
    order given.

    Raises:
        ConfigError: a setting lies below something that is not a mapping.
    """
    if not layer:
        return tree
    data = _copied(tree.data)
    marks = dict(tree.marks)
    settings = single(layer)
    settings.sort(key=lambda setting: len(setting.path) > 1)
    for setting in settings:
        marks |= _put(data, setting)
    _switch_off_others(data, layer)
    given = mark_all(data, (), _UNKNOWN)
    return Tree(data, {path: origin for path, origin in marks.items() if path in given})


def _copied(value: Any) -> Any:
    """Plain data that may be changed."""
    if isinstance(value, dict):
        return {key: _copied(inner) for key, inner in value.items()}
    return [*map(_copied, value)] if isinstance(value, list) else value


def key_path(key: str) -> KeyPath:
    """The path of a dotted key; `mixers.0.params.order` counts the entries of the list from 0."""
    path: KeyPath = ()
    for part in key.split("."):
        path += (int(part) if path[:1] == ("mixers",) and part.isdecimal() else part,)
    return path


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


_CONTAINERS = {"list": list, "mapping": dict}


def _put(data: dict[str, Any], setting: Setting) -> dict[KeyPath, Origin]:
    """Write a setting into `data`; the marks it brings."""
    path = setting.path
    if path in COMPONENT_PATHS:
        return _put_component(data, setting)
    marks = mark_all(setting.value, path, setting.origin)
    place: Any = data
    for depth, key in enumerate(path):
        here = path[: depth + 1]
        name = "list" if isinstance(key, int) else "mapping"
        if type(place) is not _CONTAINERS[name]:
            raise setting.wrong(f"cannot be set, as {dotted(path[:depth])} is not a {name}")
        if isinstance(key, int) and key >= len(place):
            raise problem(
                here, f"there is no such entry, the list has {len(place)}", setting.origin
            )
        if here == path:
            place[key] = _copied(setting.value)
        elif isinstance(key, str) and key not in place:
            marks[here] = setting.origin
            place[key] = {}
        place = place[key]
    return marks


def _put_component(data: dict[str, Any], setting: Setting) -> dict[KeyPath, Origin]:
    """Choose a plugin. Parameters stay only while the plugin does; those that are given are laid
    over them.
    """
    key = str(setting.path[0])
    given = _copied(setting.value)
    if isinstance(given, str):
        given = {"name": given}
    before = data.get(key)
    data[key] = given
    if isinstance(given, dict) and isinstance(before, dict):
        name = before.get("name")
        params = before.get("params", {})
        added = given.get("params", {})
        if given.get("name", name) == name and isinstance(params, dict) and isinstance(added, dict):
            data[key] = {**before, **given, "params": params | added}
    return mark_all(given, (key,), setting.origin)


def _switch_off_others(data: dict[str, Any], layer: Sequence[Setting]) -> None:
    """Switch off the other of each pair of which exactly one was given."""
    for first, second in ALTERNATIVES:
        has_first = _gives(layer, first)
        has_second = _gives(layer, second)
        name, key = second if has_first else first
        section = data.get(name)
        if has_first != has_second and isinstance(section, dict):
            section[key] = None


def _gives(layer: Sequence[Setting], path: KeyPath) -> bool:
    """Whether a layer has a value for this key."""
    found = [
        get(setting.value, path[len(setting.path) :])
        for setting in layer
        if path[: len(setting.path)] == setting.path
    ]
    return found.count(None) < len(found)


def get(value: Any, path: KeyPath) -> Any:
    """The value below `value` at `path`; None where there is none."""
    for key in path:
        value = dict(children(value)).get(key)
    return value


def is_given(data: Any, path: KeyPath) -> bool:
    """Whether there is a value at `path`, be it null."""
    if not path:
        return True
    *above, key = path
    return key in dict(children(get(data, tuple(above))))


def absolute(value: str, folder: Path) -> str:
    """An absolute path; `~` is the home folder. An address (`s3://...`, `timm:...`) and empty
    text stay as they are.
    """
    if not value or "://" in value or value.startswith("timm:"):
        return value
    folder = folder.absolute()
    return os.path.normpath(folder / os.path.expanduser(value))


def path_fields(config: type[BaseModel]) -> tuple[str, ...]:
    """The parameters of a plugin that are declared as paths."""
    return tuple(name for name, field in config.model_fields.items() if extra_of(field).get("path"))


def folder_of(path: KeyPath, marks: Marks, base: Path) -> Path:
    """What a relative path given at `path` is relative to; `base` where its origin has no
    folder.
    """
    return origin_of(path, marks).folder or base


_PATHS = (("init", "from"), ("resources", "storage"))


def kind_path(path: KeyPath) -> KeyPath:
    """The path of a component's setting, that of an entry of `mixers` as the mixer's."""
    if path[:1] == ("mixers",):
        return ("mixer", *path[2:])
    return path


def absolute_paths(
    value: Any, path: KeyPath, marks: Marks, base: Path, params: Collection[KeyPath] = ()
) -> Any:
    """A value of an experiment with the paths in it absolute, against the folder of whoever gave
    them, else `base`.

    Args:
        value: plain data.
        path: where it stands.
        marks: where each setting was given.
        base: a folder.
        params: parameters of plugins that are paths, those of all mixers as the mixer's.
    """
    if isinstance(value, dict) or (isinstance(value, list) and path == ("mixers",)):
        made: Any = value.copy()
        for key, inner in children(value):
            made[key] = absolute_paths(inner, (*path, key), marks, base, params)
        return made
    if not isinstance(value, str):
        return value
    place = kind_path(path)
    folder = folder_of(path, marks, base)
    if place in _PATHS or place in params:
        return absolute(value, folder)
    if place[1:] in ((), ("name",)) and place[0] in COMPONENTS:
        file, colon, attribute = value.rpartition(":")
        if file.endswith(".py"):
            return f"{absolute(file, folder)}{colon}{attribute}"
    return value
