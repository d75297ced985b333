"""Spaces by name, as on a command line: `agf+optimizer`, `auto+optimizer`, `./my_space.yaml`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from pydantic_core import to_jsonable_python

from subquad.errors import ConfigError
from subquad.experiment.run import Run
from subquad.experiment.settings import Origin, one_line, problem, shown_target
from subquad.experiment.strict_yaml import read_text
from subquad.plugin import Config
from subquad.registry import ParameterRow, describe_config, recipe
from subquad.space.dimension import Condition, Dimension, Distribution
from subquad.space.fields import Fields
from subquad.space.files import Declared, merge_spaces, parse_space
from subquad.space.space import ever_active

AUTO = "auto"


def find_space(names: str, experiment: Run, *, cwd: Path | None = None) -> Declared:
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
        raise ConfigError(one_line(f"space {names!r}: a name is missing; write them as in auto+optimizer"))
    cwd = cwd or Path.cwd()
    if len(parts) > 1 and _is_path(names) and (cwd / names).exists():
        raise ConfigError(one_line(f"space {shown_target(names)}: + joins spaces; give the file a name without it"))
    return merge_spaces([_one(part.strip(), experiment, cwd) for part in parts])


def _is_path(name: str) -> bool:
    return "/" in name or "\\" in name or name.endswith((".yaml", ".yml"))


def _one(name: str, experiment: Run, cwd: Path) -> Declared:
    if name == AUTO:
        return auto_space(experiment)
    if _is_path(name):
        path, shown = cwd / name, shown_target(name)
        stem = re.sub(r"\.ya?ml$", "", path.name)
        said = parse_space(read_text(path, shown), stem, source=shown, folder=path.parent.absolute())
        return replace(said, source=str(path.resolve()))
    return parse_space(recipe(name, "space").text(), name)


def auto_space(experiment: Run) -> Declared:
    """The space that the fields of an experiment's mixer and backbone say; without dimensions where none says anything.

    A field whose `when` cannot hold in this experiment is left out.

    Raises:
        ConfigError: a field's range holds nothing, or has no logarithm.
    """
    dims = [*_searched("mixer", experiment.mixer_config, experiment)]
    dims += _searched("backbone", experiment.backbone_config, experiment)
    fields = Fields(experiment)
    rest = {one.key: fields.value(tuple(one.key.split("."))) for dim in dims for one in dim.when}

    def idle() -> Dimension | None:
        defaults = rest | {dim.path: fields.default(dim.key_path) for dim in dims if dim.when}
        return next((dim for dim in dims if not ever_active(dim, dims, defaults)), None)

    while never := idle():
        dims.remove(never)
    return Declared(AUTO, tuple(dims))


def _searched(kind: str, config: Config, experiment: Run) -> Iterator[Dimension]:
    name = getattr(experiment, kind).found.name
    for row in describe_config(type(config)):
        if row.search is not None:
            yield _dimension(f"{kind}.params.", row, Origin(f"space {AUTO} ({kind} {name})"), name)


def _dimension(prefix: str, row: ParameterRow, origin: Origin, name: str) -> Dimension:
    search: dict[str, Any] = row.search or {}
    path, beside = prefix + row.name, prefix + row.name[: row.name.rfind(".") + 1]
    when = tuple(Condition(beside + key, tuple(to_jsonable_python(one))) for key, one in search.get("when", {}).items())
    if fault := _fault(search):
        raise problem(tuple(path.split(".")), fault, {(): origin})
    mixer = name if prefix.startswith("mixer.") else None
    return Dimension(path, _distribution(row, search), when, mixer, origin)


def _fault(search: dict[str, Any]) -> str:
    """What a plugin got wrong in its own field."""
    if "choices" in search:
        return "" if search["choices"] else "has no values to try"
    if search["low"] >= search["high"]:
        return "has no values to try"
    return f"starts at {search['low']:g}, which has no logarithm" if search["log"] and search["low"] <= 0 else ""


def _distribution(row: ParameterRow, search: dict[str, Any]) -> Distribution:
    if "choices" in search:
        return CategoricalDistribution(to_jsonable_python(search["choices"]))
    low, high, log = search["low"], search["high"], search["log"]
    if row.type.startswith("int"):
        return IntDistribution(math.ceil(low), math.floor(high), log=log)
    return FloatDistribution(float(low), float(high), log=log)
