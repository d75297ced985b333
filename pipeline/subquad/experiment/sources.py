"""What the user named: a file, a recipe that a package ships, and `key=value` on the command
line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subquad.addresses import mask, without_value
from subquad.errors import ConfigError
from subquad.experiment.refusals import shown, top_of
from subquad.experiment.settings import (
    KeyPath,
    Origin,
    Setting,
    Tree,
    flat_key,
    key_path,
    shorten,
    shown_target,
)
from subquad.experiment.strict_yaml import parse_value, parse_yaml, read_text
from subquad.record.trust import give, refuse_strange_file
from subquad.registry import SourceFile
from subquad.registry.faults import blamed
from subquad.suggest import did_you_mean, nearest

if TYPE_CHECKING:
    from subquad.registry import Recipe

MAX_EXTENDED = 10
Recipes = Callable[[], "Mapping[str, Recipe]"]
"""`subquad.registry.shipped`, or something with its signature."""
_ENDINGS = (".yaml", ".yml")


def read_layers(target: str, cwd: Path, recipes: Recipes) -> tuple[list[Tree], str]:
    """What a file, recipe or function says, after the files that it `extends`; and what messages
    call it.

    Paths in a recipe are relative to `cwd`.

    Raises:
        ConfigError: there is no such file or recipe, or it is not strict YAML with a mapping in it.
    """
    if _FUNCTION.fullmatch(target) and not _exists(cwd / target):
        return [_returned(target, cwd)], shown_target(target)
    tree, name = _read(target, cwd, recipes)
    layers = [tree]
    while "extends" in layers[0].data:
        below = top_of(layers[0]).at("extends")
        below.expect_filled(str, "a recipe's name, or a file's, as in ./base.yaml")
        if len(layers) > MAX_EXTENDED:
            raise below.wrong(
                f"more than {MAX_EXTENDED} files, one below the other, or in a circle"
            )
        try:
            tree, _ = _read(below.value, below.origin.folder or cwd, recipes)
        except ConfigError as error:
            raise below.wrong(str(error)) from error
        layers.insert(0, tree)
    return layers, name


_FUNCTION = re.compile(r".+\.py:.+")


def _returned(target: str, cwd: Path) -> Tree:
    """The runs that a function of a Python file returns, as a study lists them.

    Only what a command names is a function; no file can name one.

    Raises:
        PluginError: the file cannot be used, or the user does not trust it; the function raises, or
            returns no runs.
    """
    source = SourceFile.read("recipe", target, cwd)
    refuse_strange_file(str(source.found), cwd / source.path, source.sha256, base=cwd, owner=None)
    function = source.run()
    with blamed(f"{source.found} returns no list of experiments"):
        made = json.loads(json.dumps(list(function()), allow_nan=False))
        runs: list[Any] = []
        for entry in made:
            label, settings = (entry.pop("name"), entry) if isinstance(entry, dict) else entry
            runs.append({"labels": {"run": label}, "set": settings})
    origin = Origin(shown_target(target), folder=(cwd / source.path).parent.absolute())
    return Tree({"name": source.attribute, "runs": runs}, {(): origin})


def _read(target: str, cwd: Path, recipes: Recipes) -> tuple[Tree, str]:
    name = shown_target(target)
    if is_path(target):
        path = cwd / target
        if not _exists(path):
            raise ConfigError(f"{name}: no such file{_near(target, path, recipes)}")
        return _mapping(read_text(path, name), name, path.parent.absolute()), name
    name = f"recipe {target}"
    known = recipes()
    for short_name, recipe in known.items():
        if target in (short_name, recipe.full_name):
            return _mapping(recipe.text(), name, cwd), name
    hint = did_you_mean(target, known)
    if known and not hint:
        hint = f"; there is {', '.join(known)}"
    if _exists(cwd / target):
        hint += f"; for the file write ./{target}"
    raise ConfigError(f"{shown(target)}: no such recipe, and no such file{hint}")


def is_path(target: str) -> bool:
    """Whether a user means a YAML file, rather than something that a package ships."""
    return target.endswith(_ENDINGS) or "/" in target or "\\" in target


def stem(name: str) -> str:
    """A file's name without its ending."""
    return re.sub(r"\.ya?ml$", "", name)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long, or with a NUL: no file has it
        return False


def _near(target: str, path: Path, recipes: Recipes) -> str:
    """The nearest YAML file beside it, or the recipe of that name."""
    beside: list[str] = []
    with suppress(OSError, ValueError):
        beside += [other.name for other in path.parent.iterdir() if other.suffix in _ENDINGS]
    for found in nearest(path.name, beside):
        return f"; did you mean {target.removesuffix(path.name)}{found}?"
    for found in nearest(stem(path.name), recipes()):
        return f"; did you mean the recipe {found}?"
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
    settings: dict[KeyPath, Setting] = {}
    for text in overrides:
        name = f"override {shorten(mask(without_value(text)), 80)!r}"
        key, equals, given = text.partition("=")
        if not equals:
            raise ConfigError(f"{name}: no '=', write key=value, as in train.lr=3e-4")
        key = key.strip()
        path = key_path(key)
        if key.startswith("matrix."):
            # a key below `matrix` is an axis, itself written with dots
            path = ("matrix", key.removeprefix("matrix."))
        if "" in path:
            raise ConfigError(f"{name}: {key!r} is not a key, write key=value, as in train.lr=3e-4")
        value = parse_value(given, name)
        if path in settings:
            raise ConfigError(f"{name}: {flat_key(path)}: given twice")
        settings[path] = Setting(path, value, Origin(name, folder=cwd))
        give(value)
    return list(settings.values())
