"""From a file or recipe to everything that will be trained, checked before anything starts."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from subquad import registry
from subquad.errors import ConfigError, UserError
from subquad.experiment.axes import SEED, axis_path
from subquad.experiment.canonical import digest, dump
from subquad.experiment.components import Resolve, resolve_given
from subquad.experiment.labels import plain_label
from subquad.experiment.run import Run, by_key, run_of
from subquad.experiment.settings import NO_MARKS, SECTIONS, Tree, dotted, get, overlay
from subquad.experiment.sources import Recipes, parse_overrides, read_layers, stem
from subquad.experiment.strict_yaml import MAX_BYTES, MAX_NODES, parse_yaml, to_yaml
from subquad.experiment.study_file import StudyFile, read_study
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
        return runs.parent if runs.name == "runs" else runs

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
        return _study_text(self.runs, self.file.baseline, self.match)

    @property
    def pending(self) -> list[Run]:
        """Runs without a finished result; failed ones are tried again."""
        return [run for run in self.runs if not (found := run.result) or found.status != "finished"]

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
    remembered = cache(resolve)  # each plugin of a study is asked for once
    file, source = _read(target, overrides, cwd, remembered, recipes)
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
    give(target)
    file, _ = _read(target, overrides, Path.cwd(), resolve_given, registry.recipes)
    trees = [cell.tree.data for cell in file.cells()]
    names = [get(data, ("dataset", "name")) or get(data, ("dataset",)) for data in trees]
    return list(dict.fromkeys(name for name in names if isinstance(name, str))), "dataset" in [
        axis.key for axis in file.axes
    ]


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
    before: Any = None
    run: Any = None
    for cell in file.cells():
        seed, others = _apart(cell.tree)
        try:
            if before == others and type(seed) is int and seed in _SEEDS:
                run = run.seeded(seed)
            else:
                run = run_of(cell.tree, cwd, resolve)
                before = others
        except UserError as error:
            raise type(error)(f"{error} (run {cell.label})") from error
        # two runs that have this alike are one, and the first is trained
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


_SEEDS = range(2**32)
"""Of which no rule says more: a run differs from one of another seed in nothing else."""


def _apart(tree: Tree) -> tuple[Any, Any]:
    """The seed, and all else that decides what is checked."""
    train = tree.data.get("train")
    if not isinstance(train, dict):
        return None, None
    others = {**tree.data, "train": {**train, "seed": None}}, {**tree.marks, SEED: None}
    return train.get("seed"), others


def _read(
    target: str, overrides: Sequence[str], cwd: Path, resolve: Resolve, recipes: Recipes
) -> tuple[StudyFile, str]:
    """What a file or recipe says with overrides, and what messages call it; its name is that of the
    last layer, else that of the file or recipe.
    """
    (*below, last), source = read_layers(target, cwd, recipes)
    *_, file = re.split(r"[/\\]", target)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", stem(file)).strip("._-")[:100]
    last = Tree({"name": name or "experiment", **last.data}, last.marks)
    return read_study([*below, last], parse_overrides(overrides, cwd), resolve), source


_SURELY_READABLE = 4 * MAX_NODES
"""Characters; each key and value takes at least four in the canonical form."""


def _study_text(runs: Sequence[Run], baseline: str, match: str) -> str:
    """Checked runs, with defaults filled in and paths absolute; files that were extended, axes and
    overrides are part of them.

    Raises:
        ConfigError: with its defaults it is larger than what `load_study` reads.
    """
    top = _listed([(run, _settings(run)) for run in runs], [*runs[0].labels])
    data: dict[str, Any] = overlay(Tree({}, NO_MARKS), by_key(top["set"])).data
    if baseline:
        data["baseline"] = baseline
    if match:
        data["match"] = match
    data["runs"] = top["runs"]
    text = to_yaml(data)
    if len(text) >= _SURELY_READABLE:  # a study that could not be resumed must not start
        try:
            read_back = parse_yaml(text, "study.yaml")
        except ConfigError:
            read_back = None
        if read_back is None or len(text.encode()) > MAX_BYTES:
            size = f"with every default written out the study has {len(text):,} characters"
            raise ConfigError(f"{size}, more than can be read back; use less")
    return text


def _listed(runs: Sequence[tuple[Run, Mapping[str, Any]]], keys: Sequence[str]) -> dict[str, Any]:
    """What some runs have alike, and below it these runs by their values of the axes `keys`."""
    _, first = runs[0]
    alike = {
        key: value
        for key, value in first.items()
        if all(key in settings and settings[key] == value for _, settings in runs)
    }
    listed: dict[str, Any] = {"set": alike}
    if not keys:
        return listed
    key, *below = keys
    path = dotted(axis_path(key))
    values = [run.axes[key] for run, _ in runs]
    if all(
        {name: settings[name] for name in settings.keys() - alike.keys()} == {path: value}
        and run.labels[key] == plain_label(key, value)
        for (run, settings), value in zip(runs, values, strict=True)
    ):
        return {**listed, "runs": [{"each": {key: values}}]}
    groups: dict[str, list[tuple[Run, Mapping[str, Any]]]] = {}
    for run, settings in runs:
        own = {name: value for name, value in settings.items() if name not in alike}
        groups.setdefault(repr((run.labels[key], run.axes[key])), []).append((run, own))
    listed["runs"] = []
    for group in groups.values():
        run, _ = group[0]
        entry: dict[str, Any] = {"labels": {key: run.labels[key]}}
        if run.axes[key] != run.labels[key]:
            entry["axes"] = {key: run.axes[key]}
        listed["runs"].append(entry | _listed(group, below))
    return listed


def _settings(run: Run) -> dict[str, Any]:
    """A run's experiment by the keys that a study may vary: sections key by key."""
    settings = run.experiment.model_dump(mode="json")
    for section in SECTIONS:
        settings |= {f"{section}.{name}": value for name, value in settings.pop(section).items()}
    return settings
