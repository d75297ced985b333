"""One run: an experiment checked against its plugins, before anything heavy is imported or started."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from subquad import registry
from subquad.errors import ConfigError, PluginError, UserError
from subquad.experiment.canonical import digest
from subquad.experiment.refusals import Fault, Known, blamed_key, known_keys, refusal, validated
from subquad.experiment.rules import Parts, conflicts, misfits
from subquad.experiment.schema import Component, Experiment, MixerEntry
from subquad.experiment.settings import (
    COMPONENTS,
    STUDY_KEYS,
    KeyPath,
    Marks,
    absolute,
    absolute_file,
    dotted,
    folder_of,
    get,
    origin_of,
    path_fields,
)
from subquad.experiment.sources import parse_overrides
from subquad.plugin import Config, DatasetPlugin, Site, TaskPlugin
from subquad.registry import Kind, Resolved, SourceFile, load_source, plugin_facts, verify_same
from subquad.registry.foreign import blamed
from subquad.registry.unrun import unrun
from subquad.runs import path_at, read_result
from subquad.storage import checkpoints_at, store_copy
from subquad.trust import is_named, note_storage, refuse_strange_file

Resolve = Callable[..., Resolved]
"""`resolve_given`, or something with its signature."""


def resolve_given(kind: Kind, name: str, *, base: Path | None = None) -> Resolved:
    """Load the plugin that an experiment names, see `subquad.registry.resolve`.

    A file of code runs only where the user gave it: an experiment may be somebody else's.

    Raises:
        PluginError: it cannot be used, or only the experiment names the file.
    """
    if ".py:" not in name:
        return registry.resolve(kind, name, base=base)
    source = SourceFile.read(kind, name, base)
    refuse_strange_file(str(source.found), (base or Path.cwd()) / source.path, source.sha256)
    return load_source(source)


def resolve_unrun(kind: Kind, name: str, *, base: Path | None = None) -> Resolved:
    """As `resolve_given`, for commands that only look: no file of code runs that this command line does not name.

    Such a plugin takes all parameters as they are written, and nothing can be built of it.

    Raises:
        PluginError: it cannot be read.
    """
    if ".py:" not in name:
        return registry.resolve(kind, name, base=base)
    source = SourceFile.read(kind, name, base)
    return load_source(source) if is_named((base or Path.cwd()) / source.path) else unrun(source)


_CALLED = ("label", "axes", "labels", "launch", "is_trial")
"""What a run is called; it travels as it is."""


@dataclass(frozen=True)
class Run:
    """One run: an experiment that can run, its plugins, and, once it is made, its folder.

    Attributes:
        experiment: with every plugin parameter filled in and every path absolute.
        mixer, backbone, task, dataset: its plugins.
        mixer_config, backbone_config, task_config, dataset_config: their parameters.
        mixers: plugin and parameters of each entry of the experiment's `mixers`.
        label: names it within a study, and its folder there; for a single experiment the experiment's name.
        axes: its choice on each axis of a study: a component's label, else the value.
        labels: the label of that choice: a `when` of them all means this run alone.
        place: its folder; None until it is made.
        launch: names the start of the driver that works on it; a restart by hand is another one.
        data_root: folder for prepared data; None: that of the process that uses them, `storage.data_root()`.
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
    mixers: tuple[tuple[Resolved, Config], ...] = ()
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

    @property
    def checkpoints(self) -> Path:
        """Where its checkpoints are: in its folder, or in storage."""
        return checkpoints_at(self.folder, self.experiment.resources.storage)

    @cached_property
    def _mirrored(self) -> dict[str, Any]:
        return {}

    def mirror(self) -> None:
        """Bring what changed of its small files to storage.

        Raises:
            DiskError: they cannot be written there.
        """
        store_copy(self.folder, self.experiment.resources.storage, self._mirrored)

    @property
    def result(self) -> dict[str, Any] | None:
        """What its result.json says; None while there is none, where it is damaged, or of another experiment."""
        found = read_result(self.folder)
        return found if found and found.get("experiment") == self.digest else None

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of what decides its numbers."""
        return digest(self.experiment, {path: source.sha256 for path, source in self.sources.items()})

    @property
    def plugins(self) -> tuple[Resolved, ...]:
        """Every plugin it uses."""
        return (self.mixer, self.backbone, self.task, self.dataset, *(resolved for resolved, _ in self.mixers))

    @property
    def sources(self) -> dict[KeyPath, SourceFile]:
        """The text of each plugin that is given as a file, by `("mixer",)` or `("mixers", 0)`."""
        parts: dict[KeyPath, Resolved] = {(kind,): getattr(self, kind) for kind in COMPONENTS}
        parts |= {("mixers", number): resolved for number, (resolved, _) in enumerate(self.mixers)}
        return {path: one.source for path, one in parts.items() if one.source}

    def mixer_at(self, site: Site) -> tuple[Resolved, Config]:
        """The mixer of a site and its parameters: the entry of `mixers` that takes it, else the main one."""
        entries = zip(self.experiment.mixers, self.mixers, strict=True)
        return next((part for entry, part in entries if entry.takes(site)), (self.mixer, self.mixer_config))

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
        names = dict(_components(self.experiment))
        return {
            "experiment": self.experiment.model_dump(mode="python"),
            "sources": {names[path].name: dict(vars(source)) for path, source in self.sources.items()},
            "plugins": [plugin_facts(one) for one in self.plugins],
            "place": None if self.place is None else str(self.place),
            **{name: getattr(self, name) for name in _CALLED},
        }

    def __reduce__(self) -> tuple[Callable[..., Run], tuple[dict[str, Any]]]:
        return Run.rebuild, (self.plain(),)

    @staticmethod
    def rebuild(plain: Mapping[str, Any]) -> Run:
        """The run of `plain` values, from this process's plugins; one given as a file from the text that travelled.

        Raises:
            PluginError: this machine lacks a plugin, or has another version of it.
        """
        verify_same(plain["plugins"])

        def resolve_here(kind: Kind, name: str, *, base: Path | None = None) -> Resolved:
            if name in plain["sources"]:
                return load_source(SourceFile(**plain["sources"][name]))
            return resolve_given(kind, name, base=base)

        return replace(
            check(Experiment.model_validate(plain["experiment"]), resolve=resolve_here),
            place=None if plain["place"] is None else path_at(plain["place"]),
            **{name: plain[name] for name in _CALLED},
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
    experiment, faults = validated(Experiment, data, (), marks, lambda: _keys(data, marks, resolve or resolve_given))
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


def dataset_of(name: str, overrides: Sequence[str]) -> tuple[Resolved, Config]:
    """A data set by its name, and its parameters from `dataset.params.KEY=VALUE`.

    Raises:
        PluginError: there is none that can be used.
        ConfigError: a setting is none of a data set's parameters.
    """
    found, params = registry.resolve("dataset", name), dict[str, Any]()
    for setting in parse_overrides(overrides, Path.cwd()):
        if setting.path[:2] != ("dataset", "params") or len(setting.path) != 3:
            raise ConfigError(f"{setting.origin}: {name} is a data set, which has dataset.params.KEY=VALUE only")
        params[str(setting.path[2])] = setting.value
    schema = found.plugin.config
    return found, parameters(found, _absolute_params(schema, params, (), None, Path.cwd()))


def check(
    experiment: Experiment, marks: Marks | None = None, *, base: Path | None = None, resolve: Resolve | None = None
) -> Run:
    """Resolve an experiment's plugins, check their parameters, and check that all of it fits together.

    Args:
        experiment: what the schema accepted.
        marks: where each setting was given, for messages and relative paths.
        base: folder that relative paths start from where marks do not say; the working directory where None.
        resolve: finds plugins; `resolve_given` where None.

    Raises:
        ConfigError: parameters or combinations that cannot work.
        PluginError: a plugin that cannot be used.
    """
    base, resolve = base or Path.cwd(), resolve or resolve_given
    experiment = _absolute(experiment, marks, base)
    plugins: dict[KeyPath, Resolved] = {}
    for path, one in _components(experiment):
        try:
            plugins[path] = _resolved(path, one.name, marks, base, resolve)
        except UserError as error:
            _place(error, (*path, "name"), marks)
    configs = _configs(experiment, plugins, marks, base, resolve)
    parts: Parts = {path: (plugins[path], configs[path]) for path in plugins}
    is_known = all(plugin.runs for plugin in plugins.values())
    for path, message in misfits(experiment, parts) if is_known else ():
        raise refusal([Fault(5, path, message, blamed_key(message, path, marks))], marks)
    filled = {path: {"params": config.model_dump(mode="json")} for path, config in configs.items()}
    chosen: dict[str, Any] = {kind: plugins[(kind,)] for kind in COMPONENTS}
    chosen |= {f"{kind}_config": configs[(kind,)] for kind in COMPONENTS}
    mixers = tuple(part for path, part in parts.items() if path[0] == "mixers")
    return Run(_with(experiment, filled), **chosen, mixers=mixers, label=experiment.name)


def completed(run: Run, written: Run) -> Run:
    """A run of a study, with the defaults of plugins whose files do not run; only its own experiment has them.

    Args:
        run: as its study asks for it.
        written: as its own folder has it.
    """
    defaults = {path: component.params for path, component in _components(written.experiment)}
    filled = {
        path: {"params": {**defaults.get(path, {}), **component.params}}
        for path, component in _components(run.experiment)
        if path in run.sources
    }
    return replace(run, experiment=_with(run.experiment, filled))


def _components(experiment: Experiment) -> list[tuple[KeyPath, Component]]:
    """The plugins that an experiment names, by their places."""
    entries = ((("mixers", number), entry) for number, entry in enumerate(experiment.mixers))
    return [*(((kind,), getattr(experiment, kind)) for kind in COMPONENTS), *entries]


def _with(experiment: Experiment, changes: Mapping[KeyPath, Mapping[str, Any]]) -> Experiment:
    """The experiment with some fields of its components changed."""
    made = {path: one.model_copy(update=changes.get(path, {})) for path, one in _components(experiment)}
    mixers = tuple(one for path, one in made.items() if path[0] == "mixers")
    return experiment.model_copy(update={**{kind: made[(kind,)] for kind in COMPONENTS}, "mixers": mixers})


def _absolute(experiment: Experiment, marks: Marks | None, base: Path) -> Experiment:
    """The experiment with the paths of storage, of plugins in files, and of its starting weights, absolute."""
    init, resources = experiment.init, experiment.resources
    if resources.storage is not None:
        storage = absolute(resources.storage, folder_of(("resources", "storage"), marks, base))
        note_storage(storage)
        experiment = experiment.model_copy(update={"resources": resources.model_copy(update={"storage": storage})})
    if init is not None:
        source = absolute(init.source, folder_of(("init", "from"), marks, base))
        experiment = experiment.model_copy(update={"init": init.model_copy(update={"from": source})})
    names = {path: one.name for path, one in _components(experiment)}
    folders = {path: folder_of((*path, "name"), marks, base) for path in names}
    return _with(experiment, {path: {"name": absolute_file(names[path], folders[path])} for path in names})


def _resolved(path: KeyPath, name: str, marks: Marks | None, base: Path, resolve: Resolve) -> Resolved:
    kind = "mixer" if path[0] == "mixers" else path[0]
    return resolve(kind, name, base=folder_of((*path, "name"), marks, base))


def _place(error: UserError, path: KeyPath, marks: Marks | None) -> NoReturn:
    """Raise `error` again with the line of the setting that led to it."""
    origin = origin_of(path, marks)
    if not origin.source:
        raise error
    raise type(error)(f"{origin}: {dotted(path)}: {error}") from error


def _configs(
    experiment: Experiment, plugins: Mapping[KeyPath, Resolved], marks: Marks | None, base: Path, resolve: Resolve
) -> dict[KeyPath, Config]:
    """The plugins' parameters; everything that is wrong with them or with the experiment itself is one refusal."""
    found: dict[KeyPath, Config] = {}
    faults: list[Fault] = []
    for place, component in _components(experiment):
        path, schema = (*place, "params"), plugins[place].plugin.config
        params = _absolute_params(schema, component.params, path, marks, base)
        try:
            with blamed(f"{plugins[place].found} cannot check its parameters", passing=(ConfigError,)):
                config, wrong = validated(
                    schema, params, path, marks, lambda: _keys(experiment.model_dump(mode="json"), marks, resolve)
                )
        except PluginError as error:
            _place(error, path, marks)
        faults += wrong
        if config is not None:
            found[place] = config
    faults += [Fault(4, path, said, blamed_key(said, path, marks)) for path, said in conflicts(experiment)]
    if faults:
        raise refusal(faults, marks)
    return found


def _keys(data: Mapping[str, Any], marks: Marks | None, resolve: Resolve) -> Known:
    """Every key that a file with these plugins may have; plugins that cannot be found add nothing."""
    known, entries = known_keys(Experiment), data.get("mixers")
    known[()] += STUDY_KEYS
    numbers = range(len(entries)) if isinstance(entries, list) else ()
    for path in (*((kind,) for kind in COMPONENTS), *(("mixers", number) for number in numbers)):
        known |= known_keys(MixerEntry, path) if path[0] == "mixers" else {}
        name = get(data, (*path, "name"))
        with suppress(UserError):
            if isinstance(name, str):
                plugin = _resolved(path, name, marks, Path.cwd(), resolve).plugin
                known |= known_keys(plugin.config, (*path, "params"))
    return known


def _absolute_params(
    config: type[Config], params: Mapping[str, Any], path: KeyPath, marks: Marks | None, base: Path
) -> dict[str, Any]:
    """`params`, which stand at `path`, with every path absolute, against the folder of whoever gave it, else `base`."""
    given = {name: params[name] for name in path_fields(config) if isinstance(params.get(name), str)}
    return {**params, **{name: absolute(one, folder_of((*path, name), marks, base)) for name, one in given.items()}}
