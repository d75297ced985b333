"""One run: an experiment checked against its plugins, before anything heavy is imported or started."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from platformdirs import user_cache_path

from subquad import registry
from subquad.errors import ConfigError, PluginError, UserError
from subquad.experiment.canonical import digest
from subquad.experiment.refusals import Fault, Known, blamed_key, known_keys, refusal, validated
from subquad.experiment.rules import Parts, conflicts, misfits, untrimmable
from subquad.experiment.schema import Component, Experiment
from subquad.experiment.settings import (
    COMPONENTS,
    KeyPath,
    Marks,
    absolute_mixer,
    absolute_params,
    folder_of,
    get,
    one_line,
    origin_of,
)
from subquad.plugin import Config, DatasetPlugin, TaskPlugin
from subquad.registry import Kind, Resolved, SourceFile, load_source, plugin_facts, verify_same
from subquad.registry.foreign import blamed

Resolve = Callable[..., Resolved]
"""`subquad.registry.resolve`, or something with its signature."""


def data_root() -> Path:
    """Where prepared data live: $SUBQUAD_DATA, else the user's cache folder."""
    given = os.environ.get("SUBQUAD_DATA")
    return Path(given).resolve() if given else user_cache_path("subquad") / "data"


@dataclass(frozen=True)
class Run:
    """One run: an experiment that can run, its plugins, and, once it is made, its folder.

    Attributes:
        experiment: with every plugin parameter filled in and every path absolute.
        mixer, backbone, task, dataset: its plugins.
        mixer_config, backbone_config, task_config, dataset_config: their parameters.
        label: names it within a study, and its folder there; for a single experiment the experiment's name.
        axes: its choice on each axis of a study: a component's label, else the value.
        place: its folder, on storage that every worker sees; None until it is made.
        launch: names the start of the driver that works on it; a restart by hand is another one.
        data_root: folder for prepared data.
        is_trial: a trial of a search: it ends with its last evaluation, and the test split stays closed.
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
    axes: dict[str, Any] = field(default_factory=dict)
    place: Path | None = None
    launch: str = ""
    data_root: Path = field(default_factory=data_root)
    is_trial: bool = False

    @property
    def folder(self) -> Path:
        """Where its files are."""
        assert self.place is not None, "the run has no folder yet"
        return self.place

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of what decides its numbers."""
        return digest(self.experiment, self.mixer.source.sha256 if self.mixer.source else "")

    @property
    def plugins(self) -> tuple[Resolved, ...]:
        """Every plugin it uses."""
        return (self.mixer, self.backbone, self.task, self.dataset)

    @property
    def goal(self) -> TaskPlugin:
        """The task's own words: which metric selects, and whether its largest or smallest value is best."""
        assert isinstance(self.task.plugin, TaskPlugin)
        return self.task.plugin

    @property
    def dataset_label(self) -> str:
        """What tables call the data set: what its plugin says, else the plugin's name."""
        assert isinstance(self.dataset.plugin, DatasetPlugin)
        return self.dataset.plugin.label(self.dataset_config) or self.dataset.found.name

    def plain(self) -> dict[str, Any]:
        """The run as plain values that travel to another process or machine, its plugins by name."""
        source = self.mixer.source
        return {
            "experiment": self.experiment.model_dump(mode="python"),
            "source": None if source is None else dict(vars(source)),
            "plugins": [plugin_facts(one) for one in self.plugins],
            "place": None if self.place is None else str(self.place),
            "data_root": str(self.data_root),
            **{name: getattr(self, name) for name in ("label", "axes", "launch", "is_trial")},
        }

    @staticmethod
    def rebuild(plain: Mapping[str, Any]) -> Run:
        """The run of `plain` values, from this process's plugins; a mixer given as a file from the text that travelled.

        Raises:
            PluginError: this machine lacks a plugin, or has another version of it.
        """
        verify_same(plain["plugins"])

        def resolve_here(kind: Kind, name: str, *, base: Path | None = None) -> Resolved:
            if kind == "mixer" and plain["source"] is not None:
                return load_source(SourceFile(**plain["source"]))
            return registry.resolve(kind, name, base=base)

        return replace(
            check(Experiment.model_validate(plain["experiment"]), resolve=resolve_here),
            place=None if plain["place"] is None else Path(plain["place"]),
            data_root=Path(plain["data_root"]),
            **{name: plain[name] for name in ("label", "axes", "launch", "is_trial")},
        )


def parse(data: Mapping[str, Any], marks: Marks | None = None, *, resolve: Resolve | None = None) -> Experiment:
    """An experiment from plain data, checked by the schema alone.

    Args:
        data: mappings, lists and scalars, with components as mappings.
        marks: where each setting was given, for messages.
        resolve: finds plugins, so that a suggestion may name their parameters.

    Raises:
        ConfigError: the first of what is wrong, with file, line and key.
    """
    experiment, faults = validated(Experiment, data, (), marks, lambda: _all_keys(data, marks, resolve))
    if experiment is None:
        raise refusal(faults, marks)
    return experiment


def parameters(plugin: Resolved, params: Mapping[str, Any]) -> Config:
    """A plugin's parameters from plain values, outside any experiment.

    Raises:
        ConfigError: the first of what is wrong with them.
    """
    schema = plugin.plugin.config
    config, faults = validated(schema, params, (), None, lambda: known_keys(schema))
    if config is None:
        raise refusal(faults, None)
    return config


def check(
    experiment: Experiment, marks: Marks | None = None, *, base: Path | None = None, resolve: Resolve | None = None
) -> Run:
    """Resolve an experiment's plugins, check their parameters, and check that all of it fits together.

    Args:
        experiment: what the schema accepted.
        marks: where each setting was given, for messages and relative paths.
        base: folder that relative paths start from where marks do not say; the working directory where None.
        resolve: finds plugins; `subquad.registry.resolve` where None.

    Raises:
        ConfigError: parameters or combinations that cannot work.
        PluginError: a plugin that cannot be used.
    """
    base, resolve = base or Path.cwd(), resolve or registry.resolve
    experiment = _absolute_mixer(experiment, marks, base)
    plugins = {kind: _resolved(kind, experiment, marks, base, resolve) for kind in COMPONENTS}
    configs = _configs(experiment, plugins, marks, base)
    parts: Parts = {kind: (plugins[kind], configs[kind]) for kind in COMPONENTS}
    for path, message in (*misfits(parts), *untrimmable(experiment.train, parts)):
        raise refusal([Fault(5, path, message, blamed_key(message, path, marks))], marks)
    return Run(
        experiment=_filled(experiment, configs),
        mixer=plugins["mixer"],
        backbone=plugins["backbone"],
        task=plugins["task"],
        dataset=plugins["dataset"],
        mixer_config=configs["mixer"],
        backbone_config=configs["backbone"],
        task_config=configs["task"],
        dataset_config=configs["dataset"],
        label=experiment.name,
    )


def _absolute_mixer(experiment: Experiment, marks: Marks | None, base: Path) -> Experiment:
    name = absolute_mixer(experiment.mixer.name, marks, base)
    return experiment.model_copy(update={"mixer": experiment.mixer.model_copy(update={"name": name})})


def _resolved(kind: str, experiment: Experiment, marks: Marks | None, base: Path, resolve: Resolve) -> Resolved:
    path: KeyPath = (kind, "name")
    try:
        return resolve(kind, getattr(experiment, kind).name, base=folder_of(path, marks, base))
    except UserError as error:
        _place(error, path, marks)


def _place(error: UserError, path: KeyPath, marks: Marks | None) -> NoReturn:
    """Raise `error` again with the line of the setting that led to it."""
    origin = origin_of(path, marks)
    if origin is None:
        raise error
    raise type(error)(one_line(f"{origin}: {'.'.join(map(str, path))}: {error}")) from error


def _configs(
    experiment: Experiment, plugins: Mapping[str, Resolved], marks: Marks | None, base: Path
) -> dict[str, Config]:
    """The plugins' parameters; everything that is wrong with them or with the experiment itself is one refusal."""
    found: dict[str, Config] = {}
    faults: list[Fault] = []
    for kind in COMPONENTS:
        config, wrong = _config(kind, getattr(experiment, kind), plugins, marks, base)
        faults += wrong
        if config is not None:
            found[kind] = config
    faults += [Fault(4, path, said, blamed_key(said, path, marks)) for path, said in conflicts(experiment)]
    if faults:
        raise refusal(faults, marks)
    return found


def _config(
    kind: str, component: Component, plugins: Mapping[str, Resolved], marks: Marks | None, base: Path
) -> tuple[Config | None, list[Fault]]:
    path: KeyPath = (kind, "params")
    plugin = plugins[kind].plugin
    params = absolute_params(plugin.config, component.params, path, marks, base)
    try:
        with blamed(f"{plugins[kind].found} cannot check its parameters", passing=(ConfigError,)):
            return validated(plugin.config, params, path, marks, lambda: _keys(plugins))
    except PluginError as error:
        _place(error, path, marks)


def _keys(plugins: Mapping[str, Resolved]) -> Known:
    """Every key an experiment with these plugins may have."""
    known = known_keys(Experiment)
    for kind, resolved in plugins.items():
        known |= known_keys(resolved.plugin.config, (kind, "params"))
    return known


def _all_keys(data: Mapping[str, Any], marks: Marks | None, resolve: Resolve | None) -> Known:
    """The same for an experiment that may be wrong: plugins that cannot be found add nothing."""
    plugins: dict[str, Resolved] = {}
    for kind in COMPONENTS:
        name = get(data, (kind, "name"))
        if not isinstance(name, str):
            continue
        try:
            plugins[kind] = (resolve or registry.resolve)(kind, name, base=folder_of((kind,), marks, Path.cwd()))
        except UserError:
            continue
    return _keys(plugins)


def _filled(experiment: Experiment, configs: Mapping[str, Config]) -> Experiment:
    components = {
        kind: getattr(experiment, kind).model_copy(update={"params": config.model_dump(mode="json")})
        for kind, config in configs.items()
    }
    return experiment.model_copy(update=components)
