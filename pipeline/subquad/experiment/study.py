"""From a file or recipe to everything that will be trained, checked before anything starts."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
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
from subquad.experiment.study_file import StudyFile, read_study
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
        repeats: runs that are one experiment with an earlier one, which is trained for them.
        source: where it came from.
        file: what its file says: axes, `baseline`, `match`.
        place: its folder; None until it is made.
    """

    name: str
    single: bool
    runs: tuple[Run, ...]
    source: str
    file: StudyFile
    place: Path | None = None
    repeats: tuple[Run, ...] = ()

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

    @cached_property
    def text(self) -> str:
        """The whole as canonical YAML; `load_study` reads it back to the same runs.

        Raises:
            ConfigError: with its defaults it is larger than what `load_study` reads.
        """
        if self.single:
            return dump(self.runs[0].experiment)
        return study_text(self.runs, self.file.baseline, self.match)

    @property
    def pending(self) -> list[Run]:
        """Runs without a finished result; failed ones are tried again."""
        return [run for run in self.runs if not run.result or run.result.status != "finished"]

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
) -> Study:
    """Read an experiment or study, lay overrides over it, and check every run of it.

    Args:
        target: a path to a YAML file (it holds a separator or ends in .yaml or .yml), a recipe's
            name, or `./study.py:NAME`, a function that returns experiments.
        overrides: `key=value`, as on the command line.
        cwd: what `target` and paths in overrides are relative to; the working directory where None.
        resolve: finds plugins.
        recipes: finds recipes.

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
        runs, repeats = _runs(file, cwd, remembered)
        return Study(runs[0].experiment.name, False, runs, source, file, repeats=repeats)
    (cell,) = file.cells()
    run = run_of(cell.tree, cwd, remembered)
    return Study(run.label, True, (run,), source, file)


def load_given(target: str, overrides: Sequence[str] = (), **more: Any) -> Study:
    """`load_study` of what the user gives: a function that it names may run, and what the runs name
    outside may be asked.
    """
    give(target)
    study = load_study(target, overrides, **more)
    give([run.outside for run in study.runs])
    return study


def named_datasets(target: str, overrides: Sequence[str]) -> tuple[list[str], bool]:
    """The data sets that a study names, in order, and whether they are an axis of it; their
    parameters are not looked at.

    Raises:
        ConfigError: the file or an override cannot be used.
    """
    cwd = Path.cwd()
    give(target)
    layers, _ = read_layers(target, cwd, registry.recipes)
    file = read_study(_named(layers, target), parse_overrides(overrides, cwd), resolve_given)
    names: dict[str, None] = {}
    for cell in file.cells():
        name = get(cell.tree.data, ("dataset", "name")) or get(cell.tree.data, ("dataset",))
        if isinstance(name, str):
            names[name] = None
    return list(names), "dataset" in [axis.key for axis in file.axes]


def load_text(text: str, resolve: Resolve = resolve_given) -> Study:
    """What `load_study` reads from a file with this text.

    Raises:
        ConfigError: it does not load.
        PluginError: a plugin cannot be used.
    """
    stored: Any = SimpleNamespace(full_name="text", text=lambda: text)
    return load_study("text", resolve=resolve, recipes=lambda: {"text": stored})


def _runs(file: StudyFile, cwd: Path, resolve: Resolve) -> tuple[tuple[Run, ...], tuple[Run, ...]]:
    """Every run, checked; of those that are one experiment the first, and the others."""
    found: dict[tuple[str, ...], Run] = {}
    repeats: list[Run] = []
    for cell in file.cells():
        try:
            run = run_of(cell.tree, cwd, resolve)
        except UserError as error:
            raise type(error)(f"{error} (run {cell.label})") from error
        # Two runs that have this alike are one, and the first is trained.
        key = [cell.labels[axis.key] for axis in file.axes if axis.path]
        if len(key) < len(file.axes):
            key.append(digest(run.experiment, coupled=run.coupled))
        run = replace(run, label=cell.label, axes=cell.axes, labels=cell.labels)
        same = found.setdefault(tuple(key), run)
        if same is not run:
            repeats.append(run)
        if run.experiment != same.experiment:
            raise file.wrong(
                f"run {cell.label} differs from {same.label} in nothing that decides the "
                "numbers; leave it out"
            )
    return tuple(found.values()), tuple(repeats)


def _named(layers: Sequence[Tree], target: str) -> list[Tree]:
    """The layers with one name: that of the last, else that of the file or recipe."""
    *below, last = layers
    *_, file = re.split(r"[/\\]", target)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", stem(file)).strip("._-")[:100]
    return [*below, Tree({"name": name or "experiment", **last.data}, last.marks)]
