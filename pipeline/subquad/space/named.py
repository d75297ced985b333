"""Spaces by name, as on a command line: `agf+optimizer`, `auto+optimizer`, `./my_space.yaml`."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from subquad.errors import ConfigError
from subquad.experiment.checked import Checked
from subquad.experiment.settings import one_line, shown_target
from subquad.experiment.strict_yaml import read_text
from subquad.registry import recipe
from subquad.space.auto import NAME, auto
from subquad.space.declared import Declared, merge
from subquad.space.read import parse_space


def declared(names: str, experiment: Checked, *, cwd: Path | None = None) -> Declared:
    """What the spaces say that a user names, before they are checked.

    Args:
        names: names of shipped spaces, paths of YAML files, or `auto`, joined by `+`.
        experiment: what `auto` derives its space from.
        cwd: what paths are relative to; the working directory where None.

    Raises:
        ConfigError: a name is missing or twice, a file is missing or wrong, or two spaces conflict.
        PluginError: no such space is installed, or several are.
    """
    parts = names.split("+")
    if not all(part.strip() for part in parts):
        raise ConfigError(one_line(f"space {names!r}: a name is missing; write them as in agf+optimizer"))
    cwd = cwd or Path.cwd()
    if len(parts) > 1 and _is_path(names) and (cwd / names).exists():
        raise ConfigError(one_line(f"space {shown_target(names)}: + joins spaces; give the file a name without it"))
    return merge([_one(part.strip(), experiment, cwd) for part in parts])


def _is_path(name: str) -> bool:
    return "/" in name or "\\" in name or name.endswith((".yaml", ".yml"))


def _one(name: str, experiment: Checked, cwd: Path) -> Declared:
    if name == NAME:
        return auto(experiment)
    if _is_path(name):
        path, shown = cwd / name, shown_target(name)
        stem = re.sub(r"\.ya?ml$", "", path.name)
        said = parse_space(read_text(path, shown), stem, source=shown, folder=path.parent.absolute())
        return replace(said, source=str(path.resolve()))
    return parse_space(recipe(name, "space").text(), name)
