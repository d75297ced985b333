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
from subquad.experiment.canonical import digest, dump
from subquad.experiment.checked import Checked, Resolve, check, parse
from subquad.experiment.scales import at_scale
from subquad.experiment.settings import Setting, Tree, normalized, one_line, overlay, problem
from subquad.experiment.sources import Recipes, parse_overrides, read_target
from subquad.experiment.study import Study, axes_of, base_of, experiment_of, label_of, labels_of
from subquad.experiment.study_file import STUDY_KEYS, parse_study
from subquad.experiment.study_text import study_text
from subquad.experiment.vary import VARY


@dataclass(frozen=True)
class Cell:
    """One run of a plan.

    Attributes:
        label: names it within the study, and its folder; for a single experiment its name.
        axes: the choice on each axis: a component's label, else the value.
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
    scale: str | None = None,
    cwd: Path | None = None,
    resolve: Resolve | None = None,
    recipes: Recipes | None = None,
) -> Plan:
    """Read an experiment or study, lay overrides over it, and check every run of it.

    Args:
        target: a path to a YAML file (it holds a separator or ends in .yaml or .yml), or a recipe's name.
        overrides: `key=value`, as on the command line.
        scale: one of the study's `scales`, or "full"; None is the file as it is.
        cwd: what `target` and paths in overrides are relative to; the working directory where None.
        resolve: finds plugins; `subquad.registry.resolve` where None.
        recipes: finds recipes; `subquad.registry.recipes` where None.

    Raises:
        ConfigError: the file, an override or a combination of settings cannot be used.
        PluginError: a plugin cannot be used.
    """
    cwd = cwd or Path.cwd()
    settings = parse_overrides(overrides, cwd)
    read, source = read_target(target, cwd, recipes or registry.recipes)
    tree = _named(normalized(read), target)
    remembered = _remember(resolve or registry.resolve)
    tree, scale_axes = at_scale(tree, scale)
    if (
        scale_axes
        or any(key in tree.data for key in STUDY_KEYS)
        or any(setting.path[0] in ("matrix", VARY) for setting in settings)
    ):
        return _study(parse_study(tree, settings, scale_axes), source, cwd, remembered)
    return _single(tree, settings, source, cwd, remembered)


def _single(tree: Tree, settings: Sequence[Setting], source: str, cwd: Path, resolve: Resolve) -> Plan:
    checked = _checked(overlay(tree, settings), cwd, resolve)
    name = checked.experiment.name
    return Plan(name, False, (Cell(name, {}, checked),), dump(checked.experiment), source)


def _study(study: Study, source: str, cwd: Path, resolve: Resolve) -> Plan:
    cells: dict[str, Cell] = {}
    for combination, label in zip(study.cells, labels_of(study), strict=True):
        try:
            checked = _checked(experiment_of(study, combination), cwd, resolve)
        except UserError as error:
            raise type(error)(one_line(f"{error} (cell {label})")) from error
        if not _is_base(checked, cells.get(label_of(base_of(study, combination)))):
            cells[label] = Cell(label, axes_of(study, combination), checked)
    made = tuple(cells.values())
    _refuse_unvaried(study, made)
    text = study_text(study, [cell.experiment for cell in made], cwd)
    return Plan(made[0].experiment.experiment.name, True, made, text, source)


def _is_base(checked: Checked, base: Cell | None) -> bool:
    """Whether a variation computes what its base computes: its value is the base's own."""
    return base is not None and digest(checked.experiment) == digest(base.experiment.experiment)


def _refuse_unvaried(study: Study, cells: Sequence[Cell]) -> None:
    for axis in study.varied:
        if not any(axis.key in cell.axes[VARY] for cell in cells):
            message = "every value is the one that its cells have anyway; give another one"
            raise problem((VARY, axis.key), message, study.marks)


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
