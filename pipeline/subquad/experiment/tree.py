"""The plain tree of an experiment before validation, and how later settings are laid over it.

Settings come in layers: the file, a study's axes, each of its cases, the command line. In every layer one of a pair of
alternatives (epochs or steps) that is given without the other switches the other off.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from subquad.experiment.origins import KeyPath, Marks, Origin, dotted, mark_all, problem

COMPONENTS = ("dataset", "task", "backbone", "mixer")
SECTIONS = ("train", "resources", "tracking")
ALTERNATIVES = (
    (("train", "epochs"), ("train", "steps")),
    (("train", "eval_every_epochs"), ("train", "eval_every_steps")),
)


@dataclass(frozen=True)
class Tree:
    """An experiment as plain data.

    Attributes:
        data: mappings, lists and scalars.
        marks: where each of them was given.
    """

    data: dict[str, Any]
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


def normalized(tree: Tree) -> Tree:
    """The tree of a file with components as mappings and alternatives settled."""
    data, marks = copy.deepcopy(tree.data), dict(tree.marks)
    for key in COMPONENTS:
        if isinstance(data.get(key), str):
            data[key] = {"name": data[key]}
            marks[(key, "name")] = marks[(key,)]
    _settle(data, _given(data, ()))
    return Tree(data, marks)


def overlay(tree: Tree, layer: Sequence[Setting]) -> Tree:
    """The tree with one layer of settings over it; whole components first, then single keys in the order given.

    Raises:
        ConfigError: a setting lies below something that is not a mapping.
    """
    data, marks = copy.deepcopy(tree.data), dict(tree.marks)
    for setting in sorted(single(layer), key=lambda setting: len(setting.path) > 1):
        marks |= _put(data, setting)
    _settle(data, [path for setting in layer for path in _given(setting.value, setting.path)])
    return Tree(data, {path: origin for path, origin in marks.items() if _stands(data, path)})


def single(layer: Sequence[Setting]) -> list[Setting]:
    """The layer with sections (`train: {lr: 1}`) as settings of their keys, so that they add to what is there."""
    return [
        Setting((*setting.path, key), value, setting.origin) if key else setting
        for setting in layer
        for key, value in (setting.value.items() if _is_section(setting) else [("", None)])
    ]


def _is_section(setting: Setting) -> bool:
    return len(setting.path) == 1 and setting.path[0] in SECTIONS and isinstance(setting.value, dict)


def _put(data: dict[str, Any], setting: Setting) -> dict[KeyPath, Origin]:
    """Write a setting into `data`; the marks it brings."""
    if len(setting.path) == 1 and setting.path[0] in COMPONENTS:
        return _put_component(data, setting)
    place, marks = data, mark_all(setting.value, setting.path, setting.origin)
    for depth, key in enumerate(setting.path[:-1], 1):
        if key not in place:
            marks[setting.path[:depth]] = setting.origin
        place = place.setdefault(str(key), {})
        if not isinstance(place, dict):
            message = f"cannot be set, as {dotted(setting.path[:depth])} is not a mapping"
            raise problem(setting.path, message, {(): setting.origin})
    place[str(setting.path[-1])] = copy.deepcopy(setting.value)
    return marks


def _put_component(data: dict[str, Any], setting: Setting) -> dict[KeyPath, Origin]:
    """Choose a plugin. Parameters stay only while the plugin does; those that are given are laid over them."""
    key, value = str(setting.path[0]), setting.value
    given = {"name": value} if isinstance(value, str) else value
    marks = mark_all(given, (key,), setting.origin)
    before = data.get(key)
    if not isinstance(given, dict) or not isinstance(before, dict) or before.get("name") != given.get("name"):
        data[key] = copy.deepcopy(given)
        return marks
    params, added = before.get("params", {}), given.get("params", {})
    if isinstance(params, dict) and isinstance(added, dict):
        data[key] = {**before, **given, "params": {**params, **copy.deepcopy(added)}}
    else:
        data[key] = copy.deepcopy(given)
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
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _stands(value: Any, path: KeyPath) -> bool:
    """Whether there is a value at `path`."""
    for key in path:
        if isinstance(value, list) and isinstance(key, int) and key < len(value):
            value = value[key]
        elif isinstance(value, dict) and key in value:
            value = value[str(key)]
        else:
            return False
    return True
