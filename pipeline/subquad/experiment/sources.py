"""What the user named: a file, a recipe that a package ships, and `key=value` on the command
line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from subquad.addresses import mask, without_value
from subquad.errors import ConfigError
from subquad.experiment.refusals import shown
from subquad.experiment.settings import (
    KeyPath,
    Origin,
    Setting,
    Tree,
    folder_of,
    key_path,
    problem,
    shorten,
    shown_target,
)
from subquad.experiment.strict_yaml import parse_value, parse_yaml, read_text
from subquad.suggest import did_you_mean, nearest

if TYPE_CHECKING:
    from subquad.registry import Recipe

MAX_EXTENDED = 10
Recipes = Callable[[], "Mapping[str, Recipe]"]
"""`subquad.registry.shipped`, or something with its signature."""


def read_layers(target: str, cwd: Path, recipes: Recipes) -> tuple[list[Tree], str]:
    """What a file or recipe says, after the files that it `extends`; and what messages call it.

    Paths in a recipe are relative to `cwd`.

    Raises:
        ConfigError: there is no such file or recipe, or it is not strict YAML with a mapping in it.
    """
    tree, name = _read(target, cwd, recipes)
    layers = [tree]
    while "extends" in layers[0].data:
        below = layers[0].data["extends"]
        marks = layers[0].marks
        if not isinstance(below, str) or not below:
            message = f"got {shown(below)}, must be a recipe's name, or a file's, as in ./base.yaml"
            raise problem(("extends",), message, marks)
        if len(layers) > MAX_EXTENDED:
            raise problem(
                ("extends",),
                f"more than {MAX_EXTENDED} files, one below the other, or in a circle",
                marks,
            )
        try:
            layers.insert(0, _read(below, folder_of(("extends",), marks, cwd), recipes)[0])
        except ConfigError as error:
            raise problem(("extends",), str(error), marks) from error
    return layers, name


def _read(target: str, cwd: Path, recipes: Recipes) -> tuple[Tree, str]:
    name = shown_target(target)
    if "/" in target or "\\" in target or target.endswith((".yaml", ".yml")):
        path = cwd / target
        if not _exists(path):
            raise ConfigError(f"{name}: no such file{_near(target, path, recipes)}")
        return _mapping(read_text(path, name), name, path.parent.absolute()), name
    known = recipes()
    found = known.get(target) or next(
        (recipe for recipe in known.values() if recipe.full_name == target), None
    )
    if found is None:
        hint = did_you_mean(target, known) or (f"; there is {', '.join(known)}" if known else "")
        also = f"; for the file write ./{target}" if _exists(cwd / target) else ""
        raise ConfigError(f"{shown(target)}: no such recipe, and no such file{hint}{also}")
    name = f"recipe {target}"
    return _mapping(found.text(), name, cwd), name


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long, or with a NUL: no file has it
        return False


def _near(target: str, path: Path, recipes: Recipes) -> str:
    """The nearest YAML file beside it, or the recipe of that name."""
    try:
        beside = [
            other.name for other in path.parent.iterdir() if other.suffix in (".yaml", ".yml")
        ]
    except (OSError, ValueError):
        beside = []
    if found := nearest(path.name, beside):
        return f"; did you mean {target[: len(target) - len(path.name)]}{found[0]}?"
    stem = re.sub(r"\.ya?ml$", "", path.name)
    found = nearest(stem, recipes())
    if found:
        return f"; did you mean the recipe {found[0]}?"
    return ""


def _mapping(text: str, source: str, folder: Path) -> Tree:
    tree = parse_yaml(text, source, folder)
    if tree.data is None:
        raise ConfigError(f"{source}: is empty; it must say dataset, task, backbone and mixer")
    if not isinstance(tree.data, dict):
        raise ConfigError(f"{source}:1: got {shown(tree.data)}, must be a mapping of settings")
    return tree


def parse_overrides(overrides: Sequence[str], cwd: Path) -> list[Setting]:
    """Settings from `train.lr=3e-4`, `mixer=agf`, `matrix.seed=[0, 1]`.

    Args:
        overrides: as typed; the value follows YAML's rules for plain text, and needs no quotes.
        cwd: what relative paths in values are relative to.

    Raises:
        ConfigError: one is not `key=value`, or a key comes twice.
    """
    settings: list[Setting] = []
    for text in overrides:
        setting = _parse(text, cwd)
        if any(setting.path == other.path for other in settings):
            raise ConfigError(f"{setting.origin}: {'.'.join(map(str, setting.path))}: given twice")
        settings.append(setting)
    return settings


def _parse(text: str, cwd: Path) -> Setting:
    name = f"override {shorten(mask(without_value(text)), 80)!r}"
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"{name}: no '=', write key=value, as in train.lr=3e-4")
    head, _, rest = key.strip().partition(".")
    # A key below `matrix` is an axis, itself written with dots.
    path: KeyPath = (head, rest) if head == "matrix" and rest else key_path(key.strip())
    if "" in path:
        raise ConfigError(
            f"{name}: {key.strip()!r} is not a key, write key=value, as in train.lr=3e-4"
        )
    return Setting(path, parse_value(value, name), Origin(name, folder=cwd))
