"""From a file or recipe to everything that will be trained, checked before anything starts."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from subquad import registry
from subquad.errors import UserError
from subquad.experiment.axes import CASE
from subquad.experiment.canonical import dump
from subquad.experiment.run import Resolve, Run, check, parse, resolve_given
from subquad.experiment.schema import Experiment
from subquad.experiment.settings import STUDY_KEYS, Tree, problem
from subquad.experiment.sources import Recipes, parse_overrides, read_layers, refuse_size
from subquad.experiment.study_file import Combination, StudyFile, read_study
from subquad.experiment.study_text import study_text
from subquad.runs import CELLS, runs_root


@dataclass(frozen=True)
class Study:
    """What a file or recipe asks for.

    Attributes:
        name: folder of its runs.
        single: a single experiment, which is the only run; its folder is the run's.
        runs: all checked.
        text: the whole as canonical YAML; `load_study` reads it back to the same runs.
        source: where it came from.
        match: what all mixers have alike, as its file asks; see `study_file`.
        place: its folder; None until it is made.
    """

    name: str
    single: bool
    runs: tuple[Run, ...]
    text: str
    source: str
    match: str = ""
    place: Path | None = None

    @property
    def folder(self) -> Path:
        """Where its files are."""
        assert self.place is not None, "the study has no folder yet"
        return self.place

    @property
    def root(self) -> Path:
        """The folder that holds `runs/` and the tracking database."""
        runs = runs_root(self.folder)
        return runs.parent if runs.name == "runs" else runs

    @property
    def pending(self) -> list[Run]:
        """Runs without a finished result; failed ones are tried again."""
        return [one for one in self.runs if (one.result or {}).get("status") != "finished"]

    def placed(self, folder: Path) -> Study:
        """The study in a folder, for a driver that starts now."""
        launch = uuid.uuid4().hex
        runs = (
            replace(one, place=folder if self.single else folder / CELLS / one.label, launch=launch)
            for one in self.runs
        )
        return replace(self, place=folder, runs=tuple(runs))


def load_study(
    target: str,
    overrides: Sequence[str] = (),
    *,
    cwd: Path | None = None,
    resolve: Resolve | None = None,
    recipes: Recipes | None = None,
) -> Study:
    """Read an experiment or study, lay overrides over it, and check every run of it.

    Args:
        target: a path to a YAML file (it holds a separator or ends in .yaml or .yml), or a recipe's name.
        overrides: `key=value`, as on the command line.
        cwd: what `target` and paths in overrides are relative to; the working directory where None.
        resolve: finds plugins; `experiment.run.resolve_given` where None.
        recipes: finds recipes; `subquad.registry.recipes` where None.

    Raises:
        ConfigError: the file, an override or a combination of settings cannot be used.
        PluginError: a plugin cannot be used.
    """
    cwd = cwd or Path.cwd()
    recipes = recipes or registry.recipes
    layers, source = read_layers(target, cwd, recipes)
    settings = parse_overrides(overrides, cwd)
    for setting in settings:
        if len(setting.path) == 1 and setting.path[0] not in (*Experiment.model_fields, *STUDY_KEYS):
            refuse_size(setting, target, recipes)
    remembered = cache(resolve or resolve_given)  # each plugin of a study is asked for once
    asked = read_study([*layers[:-1], _named(layers[-1], target)], settings, remembered)
    return _study(asked, source, cwd, remembered) if asked.axes else _single(asked, source, cwd, remembered)


def load_text(text: str) -> Study:
    """What `load_study` reads from a file with this text.

    Raises:
        ConfigError: it does not load.
        PluginError: a plugin cannot be used.
    """
    stored: Any = SimpleNamespace(name="text", distribution="text", text=lambda: text)
    return load_study("text", recipes=lambda: {"text": stored})


def _single(asked: StudyFile, source: str, cwd: Path, resolve: Resolve) -> Study:
    run = _checked(asked.experiment_of({}), cwd, resolve)
    return Study(run.label, True, (run,), dump(run.experiment), source)


def _study(asked: StudyFile, source: str, cwd: Path, resolve: Resolve) -> Study:
    found: dict[str, Run] = {}
    for combination, label in zip(asked.combinations, asked.labels(), strict=True):
        try:
            run = _checked(asked.experiment_of(combination), cwd, resolve)
        except UserError as error:
            raise type(error)(f"{error} (run {label})") from error
        base = asked.base_label(combination)
        if base is None or not _is_base(run, found.get(base), combination):
            labels = {key: choice.label for key, choice in combination.items()}
            found[label] = replace(run, label=label, axes=asked.coordinates(combination), labels=labels)
    runs = tuple(found.values())
    return Study(runs[0].experiment.name, False, runs, study_text(asked, runs, cwd), source, asked.match)


def _is_base(run: Run, base: Run | None, combination: Combination) -> bool:
    """Whether a case changes nothing here: the run would be its base again.

    Raises:
        ConfigError: it changes what decides no number.
    """
    if base is None or run.digest != base.digest:
        return False
    if run.experiment != base.experiment:
        case = combination[CASE].value
        message = "changes nothing that decides the numbers; make it an axis of the matrix, or leave it out"
        raise problem((*case.when.path[:2], "set"), message, case.when.marks)
    return True


def _checked(tree: Tree, cwd: Path, resolve: Resolve) -> Run:
    return check(parse(tree.data, tree.marks, resolve=resolve), tree.marks, base=cwd, resolve=resolve)


def _named(tree: Tree, target: str) -> Tree:
    """The tree with a name: its own, or that of the file or recipe."""
    if "name" in tree.data:
        return tree
    stem = re.sub(r"\.ya?ml$", "", re.split(r"[/\\]", target)[-1])
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("._-")[:100] or "experiment"
    return Tree({"name": name, **tree.data}, tree.marks)
