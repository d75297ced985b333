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
from subquad.experiment.canonical import digest, dump
from subquad.experiment.components import Resolve, resolve_given
from subquad.experiment.run import Run, run_of
from subquad.experiment.settings import Tree, get
from subquad.experiment.sources import Recipes, parse_overrides, read_layers, stem
from subquad.experiment.study_file import Combination, StudyFile, read_study
from subquad.experiment.study_text import study_text
from subquad.record.layout import runs_root
from subquad.record.names import CELLS
from subquad.record.trust import give


@dataclass(frozen=True)
class Study:
    """What a file or recipe asks for.

    Attributes:
        name: folder of its runs.
        single: a single experiment, which is the only run; its folder is the run's.
        runs: all checked.
        text: the whole as canonical YAML; `load_study` reads it back to the same runs.
        source: where it came from.
        file: what its file says: axes, cases, `match`.
        place: its folder; None until it is made.
    """

    name: str
    single: bool
    runs: tuple[Run, ...]
    text: str
    source: str
    file: StudyFile
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
        if runs.name == "runs":
            return runs.parent
        return runs

    @property
    def match(self) -> str:
        """What all mixers have alike, as the file asks; "" for nothing."""
        return self.file.match

    @property
    def pending(self) -> list[Run]:
        """Runs without a finished result; failed ones are tried again."""
        return [run for run in self.runs if (run.result or {}).get("status") != "finished"]

    def placed(self, folder: Path) -> Study:
        """The study in a folder, for a driver that starts now."""
        launch = uuid.uuid4().hex
        runs = tuple(
            replace(run, place=folder if self.single else folder / CELLS / run.label, launch=launch)
            for run in self.runs
        )
        return replace(self, place=folder, runs=runs)


def load_study(
    target: str,
    overrides: Sequence[str] = (),
    *,
    cwd: Path | None = None,
    resolve: Resolve = resolve_given,
    recipes: Recipes = registry.recipes,
    given: bool = True,
) -> Study:
    """Read an experiment or study, lay overrides over it, and check every run of it.

    Args:
        target: a path to a YAML file (it holds a separator or ends in .yaml or .yml), or a recipe's
            name.
        overrides: `key=value`, as on the command line.
        cwd: what `target` and paths in overrides are relative to; the working directory where None.
        resolve: finds plugins.
        recipes: finds recipes.
        given: the user gave this experiment; what it names outside may be asked.

    Raises:
        ConfigError: the file, an override or a combination of settings cannot be used.
        PluginError: a plugin cannot be used.
    """
    cwd = cwd or Path.cwd()
    layers, source = read_layers(target, cwd, recipes)
    settings = parse_overrides(overrides, cwd)
    remembered = cache(resolve)  # each plugin of a study is asked for once
    file = read_study(_named(layers, target), settings, remembered)
    if file.axes:
        study = _study(file, source, cwd, remembered)
    else:
        run = run_of(file.experiment_of({}), cwd, remembered)
        study = Study(run.label, True, (run,), dump(run.experiment), source, file)
    if given:
        give([run.outside for run in study.runs])
    return study


def named_datasets(target: str, overrides: Sequence[str]) -> tuple[list[str], bool]:
    """The data sets that a study names, in order, and whether they are an axis of it; their
    parameters are not looked at.

    Raises:
        ConfigError: the file or an override cannot be used.
    """
    cwd = Path.cwd()
    layers, _ = read_layers(target, cwd, registry.recipes)
    settings = parse_overrides(overrides, cwd)
    file = read_study(_named(layers, target), settings, resolve_given)
    names: dict[str, None] = {}
    for combination in file.combinations:
        data = file.experiment_of(combination).data
        name = get(data, ("dataset", "name")) or get(data, ("dataset",))
        if isinstance(name, str):
            names[name] = None
    axes = [axis.key for axis in file.axes]
    return list(names), "dataset" in axes


def load_text(text: str, resolve: Resolve = resolve_given) -> Study:
    """What `load_study` reads from a file with this text.

    Raises:
        ConfigError: it does not load.
        PluginError: a plugin cannot be used.
    """
    stored: Any = SimpleNamespace(full_name="text", text=lambda: text)
    return load_study("text", resolve=resolve, recipes=lambda: {"text": stored}, given=False)


def _study(file: StudyFile, source: str, cwd: Path, resolve: Resolve) -> Study:
    found: dict[tuple[str, ...], Run] = {}
    for combination, label in zip(file.combinations, file.labels(), strict=True):
        try:
            run = run_of(file.experiment_of(combination), cwd, resolve)
        except UserError as error:
            raise type(error)(f"{error} (run {label}{_left_out(file, error)})") from error
        # Two runs that have this alike are one, and the first is trained.
        key: list[str] = []
        axes: dict[str, Any] = {}
        labels: dict[str, str] = {}
        for axis in file.axes:
            value = combination[axis.key]
            axes[axis.key] = axis.coordinate(value)
            labels[axis.key] = value.label
            key.append(value.label if axis.path else digest(run.experiment, coupled=run.coupled))
        same = found.get(tuple(key))
        if same:
            _refuse_free(file, combination, run, same)
            continue
        found[tuple(key)] = replace(run, label=label, axes=axes, labels=labels)
    runs = tuple(found.values())
    return Study(runs[0].experiment.name, False, runs, study_text(file, runs, cwd), source, file)


def _left_out(file: StudyFile, error: UserError) -> str:
    """How runs are left out whose component has no parameter that is an axis."""
    for axis in file.axes:
        if ".params." in axis.key and f"{axis.key}: unknown key" in str(error):
            return f"; leave it out by `when: {{{axis.path[0]}: [...]}}` at the axis' values"
    return ""


def _refuse_free(file: StudyFile, combination: Combination, run: Run, same: Run) -> None:
    """Refuse a value that changes a run in what decides no number."""
    if run.experiment == same.experiment:
        return
    values = [combination[axis.key] for axis in file.axes if not axis.path]
    changing = [value for value in values if value.settings]
    place = (changing or values)[0].place
    message = "changes nothing that decides the numbers"
    raise place.at("set").wrong(f"{message}; make it an axis of its own, or leave it out")


def _named(layers: Sequence[Tree], target: str) -> list[Tree]:
    """The layers with one name: that of the last, else that of the file or recipe."""
    *below, last = layers
    *_, file = re.split(r"[/\\]", target)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", stem(file)).strip("._-")[:100]
    return [*below, Tree({"name": name or "experiment", **last.data}, last.marks)]
