"""From a file or recipe to everything that will be trained, checked before anything starts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from subquad import registry
from subquad.errors import UserError
from subquad.experiment.axes import CASE
from subquad.experiment.canonical import digest, dump
from subquad.experiment.checked import Checked, Resolve, check, parse
from subquad.experiment.settings import Tree, one_line, problem
from subquad.experiment.sources import Recipes, parse_overrides, read_layers
from subquad.experiment.study_file import Combination, StudyFile, label_of, read_study
from subquad.experiment.study_text import study_text


@dataclass(frozen=True)
class Cell:
    """One run of a plan.

    Attributes:
        label: names it within the study, and its folder; for a single experiment its name.
        axes: the choice on each axis: a component's label, else the value; under `case` what its case changes.
        experiment: what to run.
    """

    label: str
    axes: dict[str, Any]
    experiment: Checked


@dataclass(frozen=True)
class Plan:
    """What a file or recipe asks for.

    Attributes:
        name: folder of its runs.
        study: False for a single experiment.
        cells: its runs, all checked.
        text: the whole as canonical YAML; `load` reads it back to the same cells.
        source: where it came from.
    """

    name: str
    study: bool
    cells: tuple[Cell, ...]
    text: str
    source: str


def load(
    target: str,
    overrides: Sequence[str] = (),
    *,
    cwd: Path | None = None,
    resolve: Resolve | None = None,
    recipes: Recipes | None = None,
) -> Plan:
    """Read an experiment or study, lay overrides over it, and check every run of it.

    Args:
        target: a path to a YAML file (it holds a separator or ends in .yaml or .yml), or a recipe's name.
        overrides: `key=value`, as on the command line.
        cwd: what `target` and paths in overrides are relative to; the working directory where None.
        resolve: finds plugins; `subquad.registry.resolve` where None.
        recipes: finds recipes; `subquad.registry.recipes` where None.

    Raises:
        ConfigError: the file, an override or a combination of settings cannot be used.
        PluginError: a plugin cannot be used.
    """
    cwd = cwd or Path.cwd()
    layers, source = read_layers(target, cwd, recipes or registry.recipes)
    asked = read_study([*layers[:-1], _named(layers[-1], target)], parse_overrides(overrides, cwd))
    remembered = _remember(resolve or registry.resolve)
    return _study(asked, source, cwd, remembered) if asked.axes else _single(asked, source, cwd, remembered)


def _single(asked: StudyFile, source: str, cwd: Path, resolve: Resolve) -> Plan:
    checked = _checked(asked.experiment_of({}), cwd, resolve)
    name = checked.experiment.name
    return Plan(name, False, (Cell(name, {}, checked),), dump(checked.experiment), source)


def _study(asked: StudyFile, source: str, cwd: Path, resolve: Resolve) -> Plan:
    cells: dict[str, Cell] = {}
    for combination, label in zip(asked.combinations, asked.labels(), strict=True):
        try:
            checked = _checked(asked.experiment_of(combination), cwd, resolve)
        except UserError as error:
            raise type(error)(one_line(f"{error} (run {label})")) from error
        base = asked.base_of(combination)
        if base is None or not _is_base(checked, cells.get(label_of(base)), combination):
            cells[label] = Cell(label, asked.coordinates(combination), checked)
    made = tuple(cells.values())
    text = study_text(asked, [cell.experiment for cell in made], cwd)
    return Plan(made[0].experiment.experiment.name, True, made, text, source)


def _is_base(checked: Checked, base: Cell | None, combination: Combination) -> bool:
    """Whether a case changes nothing here: the run would be its base again.

    Raises:
        ConfigError: it changes what decides no number.
    """
    if base is None or digest(checked.experiment) != digest(base.experiment.experiment):
        return False
    if checked.experiment != base.experiment.experiment:
        case = combination[CASE].value
        message = "changes nothing that decides the numbers; make it an axis of the matrix, or leave it out"
        raise problem((*case.when.path[:2], "set"), message, case.when.marks)
    return True


def _checked(tree: Tree, cwd: Path, resolve: Resolve) -> Checked:
    return check(parse(tree.data, tree.marks, resolve=resolve), tree.marks, base=cwd, resolve=resolve)


def _remember(resolve: Resolve) -> Resolve:
    """`resolve`, asked once for each plugin of a study."""

    @cache
    def remembered(kind: str, name: str, *, base: Path | None = None) -> Any:
        return resolve(kind, name, base=base)

    return remembered


def _named(tree: Tree, target: str) -> Tree:
    """The tree with a name: its own, or that of the file or recipe."""
    if "name" in tree.data:
        return tree
    stem = re.sub(r"\.ya?ml$", "", re.split(r"[/\\]", target)[-1])
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("._-")[:100] or "experiment"
    return Tree({"name": name, **tree.data}, tree.marks)
