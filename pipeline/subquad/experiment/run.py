"""One run: an experiment checked against its plugins, before anything heavy is imported or
started.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from subquad.experiment.canonical import differences, digest
from subquad.experiment.components import (
    Resolve,
    checked_parts,
    components_of,
    parse,
    resolve_given,
    resolved,
    told_at,
    with_params,
)
from subquad.experiment.refusals import refusal
from subquad.experiment.rules import Part, Parts, facts_of, misfits
from subquad.experiment.schema import Experiment
from subquad.experiment.settings import (
    COMPONENTS,
    NO_MARKS,
    KeyPath,
    Marks,
    Origin,
    Setting,
    Tree,
    absolute_paths,
    dotted,
    key_path,
    overlay,
    path_fields,
)
from subquad.plugin import Config, DatasetPlugin, Site, TaskPlugin
from subquad.record.files import find_file
from subquad.record.models import Result
from subquad.record.run_folder import RunFolder
from subquad.record.trust import give
from subquad.registry import Kind, Resolved, SourceFile, load_source, plugin_facts, verify_same

_CALLED = ("label", "axes", "labels", "launch", "is_trial")
"""What a run is called; it travels as it is."""

_LABELS = {
    "honest": "checkpoint chosen on a validation part of TRAIN; test opened {times}",
    "fixed": "trained on all of TRAIN for a fixed number of epochs; test opened {times}",
    "paper": "best test accuracy over epochs (the published convention; the checkpoint is "
    "chosen on the test split)",
    "trial": "a trial of a search: evaluated on a validation part of TRAIN; test not opened",
}


@dataclass(frozen=True)
class Run:
    """One run: an experiment that can run, its plugins, and, once it is made, its folder.

    Attributes:
        experiment: with every plugin parameter filled in and every path absolute.
        mixer, backbone, task, dataset: its plugins.
        mixer_config, backbone_config, task_config, dataset_config: their parameters.
        mixers: plugin and parameters of each entry of the experiment's `mixers`.
        label: names it within a study, and its folder there; for a single experiment the
            experiment's name.
        axes: its choice on each axis of a study: a component's label, else the value.
        labels: the label of that choice.
        place: its folder; None until it is made.
        launch: names the start of the driver that works on it; a restart by hand is another one.
        data_root: folder for prepared data; None: that of the process that uses them,
            `storage.data_root()`.
        is_trial: a trial of a search: it ends with its last evaluation, and the test split stays
            closed.
    """

    experiment: Experiment
    mixer: Resolved
    backbone: Resolved
    task: Resolved
    dataset: Resolved
    mixer_config: Config
    backbone_config: Config
    task_config: Config
    dataset_config: Config
    label: str
    mixers: tuple[Part, ...] = ()
    axes: dict[str, Any] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    place: Path | None = None
    launch: str = ""
    data_root: Path | None = None
    is_trial: bool = False

    @property
    def folder(self) -> Path:
        """Where its files are."""
        assert self.place is not None, "the run has no folder yet"
        return self.place

    @cached_property
    def files(self) -> RunFolder:
        """Its folder, and its place in storage."""
        return RunFolder(self.folder, self.experiment.resources.storage)

    @property
    def result(self) -> Result | None:
        """How it ended; None while there is none, where it is damaged, or of
        another experiment.
        """
        found = find_file(Result, self.folder)
        return found if found and found.experiment == self.digest else None

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of what decides its numbers."""
        hashes = {path: source.sha256 for path, source in self.sources.items()}
        return digest(self.experiment, hashes, self.places, coupled=self.coupled)

    def differences(self, recorded: Mapping[str, Any]) -> list[str]:
        """Dotted keys of what decides its numbers that an experiment as plain values has
        otherwise.
        """
        if recorded == self.experiment.model_dump(mode="json"):
            return []
        return differences(recorded, self.experiment, self.places, coupled=self.coupled)

    def protocol_label(self, openings: int = 1) -> str:
        """The protocol in words, with how often it has opened the test split."""
        return _LABELS["trial" if self.is_trial else self.experiment.protocol].format(
            times="once" if openings < 2 else f"{openings} times"
        )

    @property
    def names(self) -> dict[str, Any]:
        """What it is called, from its beginning on."""
        experiment = self.experiment
        return {
            "name": experiment.name,
            "label": self.label,
            "axes": self.axes,
            "mixer": self.mixer.found.name,
            "dataset": self.dataset_label,
            "task": self.task.found.name,
            "backbone": self.backbone.found.name,
            "protocol": experiment.protocol,
            "protocol_label": self.protocol_label(),
            "seed": experiment.train.seed,
            "coupled": self.coupled,
            "metric": self.goal.metric,
            "tested": list(self.goal.tested),
            "metrics": {name: asdict(metric) for name, metric in self.goal.reports.items()},
            "workers": experiment.resources.workers,
        }

    @cached_property
    def coupled(self) -> bool:
        """Whether a mixer lets the samples of a batch change each other."""
        return any(facts_of(*part).couples_samples for part in self.parts.values())

    @property
    def plugins(self) -> tuple[Resolved, ...]:
        """Every plugin it uses."""
        others = (plugin for plugin, _ in self.mixers)
        return self.mixer, self.backbone, self.task, self.dataset, *others

    @cached_property
    def parts(self) -> Parts:
        """Plugin and parameters by place: `("mixer",)` or `("mixers", 0)`."""
        parts: dict[KeyPath, Part] = {
            (kind,): (getattr(self, kind), getattr(self, f"{kind}_config")) for kind in COMPONENTS
        }
        for number, part in enumerate(self.mixers):
            parts[("mixers", number)] = part
        return parts

    @cached_property
    def places(self) -> dict[str, str]:
        """Where what it reads lies, by dotted key: not the place, its content decides numbers.

        A plugin in a file says which of its parameters are places only where it runs, so they
        count as they are written.
        """
        places: dict[str, str] = {}
        if self.experiment.init:
            places["init.from"] = self.experiment.init.source
        for path, (plugin, config) in self.parts.items():
            for name in () if plugin.source else path_fields(type(config)):
                if place := getattr(config, name):
                    places[dotted((*path, "params", name))] = place
        return places

    @property
    def outside(self) -> list[str]:
        """Its storage, and addresses of data and weights."""
        places = [self.experiment.resources.storage, *self.places.values()]
        return [place for place in places if place and (place is places[0] or "://" in place)]

    @property
    def sources(self) -> dict[KeyPath, SourceFile]:
        """The text of each plugin that is given as a file, by place."""
        parts = self.parts.items()
        return {path: plugin.source for path, (plugin, _) in parts if plugin.source}

    def mixer_at(self, site: Site) -> Part:
        """The mixer of a site and its parameters: the entry of `mixers` that takes it, else the
        main one.
        """
        for entry, part in zip(self.experiment.mixers, self.mixers, strict=True):
            if entry.takes(site):
                return part
        return self.mixer, self.mixer_config

    @property
    def goal(self) -> TaskPlugin:
        """The task's own words: which metric selects, and whether its largest or smallest value
        is best.
        """
        assert isinstance(self.task.plugin, TaskPlugin)
        return self.task.plugin

    def seeded(self, seed: int) -> Run:
        """The same with another seed, of which no check says anything."""
        train = self.experiment.train.model_copy(update={"seed": seed})
        return replace(self, experiment=self.experiment.model_copy(update={"train": train}))

    @property
    def dataset_label(self) -> str:
        """What tables call the data set: what its plugin says, else the plugin's name."""
        plugin = self.dataset.plugin
        assert isinstance(plugin, DatasetPlugin)
        return plugin.label(self.dataset_config) or self.dataset.found.name

    def as_values(self) -> dict[str, Any]:
        """The run as plain values that travel to another process or machine, its plugins by
        name.
        """
        components = dict(components_of(self.experiment))
        sources = self.sources.items()
        return {
            "experiment": self.experiment.model_dump(mode="python"),
            "sources": {components[path].name: dict(vars(source)) for path, source in sources},
            "plugins": [plugin_facts(plugin) for plugin in self.plugins],
            "place": None if self.place is None else str(self.place),
            **{name: getattr(self, name) for name in _CALLED},
        }

    def __reduce__(self) -> tuple[Callable[..., Run], tuple[dict[str, Any]]]:
        return Run.rebuild, (self.as_values(),)

    @staticmethod
    def rebuild(plain: Mapping[str, Any]) -> Run:
        """The run of `as_values`, from this process's plugins; one given as a file from the text
        that travelled.

        Raises:
            PluginError: this machine lacks a plugin, or has another version of it.
        """
        verify_same(plain["plugins"])

        def resolve_here(kind: Kind, name: str, *, base: Path | None = None) -> Resolved:
            if name in plain["sources"]:
                return load_source(SourceFile(**plain["sources"][name]))
            return resolve_given(kind, name, base=base)

        run = checked_run(Experiment.model_validate(plain["experiment"]), resolve=resolve_here)
        give(run.outside)
        place = plain["place"] and Path(plain["place"])
        return replace(run, place=place, **{name: plain[name] for name in _CALLED})


def checked_run(
    experiment: Experiment,
    marks: Marks = NO_MARKS,
    *,
    base: Path | None = None,
    resolve: Resolve = resolve_given,
) -> Run:
    """Resolve an experiment's plugins, check their parameters, and check that all of it fits
    together.

    Args:
        experiment: what the schema accepted.
        marks: where each setting was given, for messages and relative paths.
        base: folder that relative paths start from where marks do not say; the working directory
            where None.
        resolve: finds plugins.

    Raises:
        ConfigError: parameters or combinations that cannot work.
        PluginError: a plugin that cannot be used.
    """
    base = base or Path.cwd()
    experiment = Experiment.model_validate_json(
        json.dumps(absolute_paths(experiment.model_dump(mode="json"), (), marks, base))
    )
    plugins: dict[KeyPath, Resolved] = {}
    for path, component in components_of(experiment):
        with told_at((*path, "name"), marks):
            plugins[path] = resolved(path, component.name, marks, base, resolve)
    parts = checked_parts(experiment, plugins, marks, base, resolve)
    # A plugin whose file does not run says nothing about what fits it.
    if all(plugin.runs for plugin in plugins.values()):
        for fault in misfits(experiment, parts):
            raise refusal([fault], marks)
    chosen: dict[str, Any] = {}
    for kind in COMPONENTS:
        chosen[kind], chosen[f"{kind}_config"] = parts[(kind,)]
    mixers = tuple(part for path, part in parts.items() if path[0] == "mixers")
    experiment = with_params(
        experiment, {path: config.model_dump(mode="json") for path, (_, config) in parts.items()}
    )
    return Run(experiment=experiment, label=experiment.name, mixers=mixers, **chosen)


def run_of(tree: Tree, base: Path | None, resolve: Resolve) -> Run:
    """The run of an experiment as plain data; see `checked_run`."""
    return checked_run(
        parse(tree.data, tree.marks, resolve=resolve), tree.marks, base=base, resolve=resolve
    )


def laid(run: Run, values: Mapping[str, Any]) -> Run:
    """A run's experiment with settings laid over it, by dotted key. Nothing heavy is imported, and
    no plugin is looked for again.

    Raises:
        UserError: a plugin refuses them.
    """
    others = {
        entry.name: plugin
        for entry, (plugin, _) in zip(run.experiment.mixers, run.mixers, strict=True)
    }

    def known(kind: str, name: str, **_: Any) -> Resolved:
        if kind == "mixer":
            return others.get(name, run.mixer)
        return getattr(run, kind)

    tree = overlay(Tree(run.experiment.model_dump(mode="json"), NO_MARKS), by_key(values))
    return replace(run_of(tree, None, known), label=run.label, axes=run.axes, labels=run.labels)


def by_key(values: Mapping[str, Any]) -> list[Setting]:
    """Settings by dotted key, as settings."""
    return [Setting(key_path(key), value, Origin("")) for key, value in values.items()]
