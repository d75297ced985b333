"""The plugins that an experiment names: which they are, and whether their parameters fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from subquad import registry
from subquad.errors import ConfigError, UserError
from subquad.experiment.key_names import Known, known_keys
from subquad.experiment.refusals import Fault, refusal, validated
from subquad.experiment.rules import Part, Parts, conflicts
from subquad.experiment.schema import Component, Experiment, MixerEntry
from subquad.experiment.settings import (
    COMPONENT_PATHS,
    COMPONENTS,
    NO_MARKS,
    STUDY_KEYS,
    KeyPath,
    Marks,
    absolute_paths,
    children,
    dotted,
    folder_of,
    get,
    kind_path,
    origin_of,
    path_fields,
)
from subquad.experiment.sources import parse_overrides
from subquad.plugin import Config
from subquad.record.trust import is_named, refuse_strange_file
from subquad.registry import Kind, Resolved, SourceFile, load_source
from subquad.registry.faults import blamed
from subquad.registry.loaded import read_only

Resolve = Callable[..., Resolved]
"""`resolve_given`, or something with its signature."""


def resolve_given(
    kind: Kind, name: str, *, base: Path | None = None, owner: Path | None = None
) -> Resolved:
    """Load the plugin that an experiment names, see `subquad.registry.resolve`.

    A file of code runs only where the user named it or trusts the folder, see
    `subquad.record.trust.refuse_strange_file`: an experiment may be somebody else's.

    Args:
        owner: folder of the run, study, search or exported model that the experiment is kept in.

    Raises:
        PluginError: it cannot be used, or the user does not trust it.
        RunError: the file has changed since the run was started.
    """
    if ".py:" not in name:
        return registry.resolve(kind, name, base=base)
    base = base or Path.cwd()
    source = SourceFile.read(kind, name, base)
    refuse_strange_file(
        str(source.found), base / source.path, source.sha256, base=base, owner=owner
    )
    return load_source(source)


def resolve_unrun(kind: Kind, name: str, *, base: Path | None = None) -> Resolved:
    """As `resolve_given`, for commands that only look: no file of code runs that this command line
    does not name.

    Such a plugin takes all parameters as they are written, and nothing can be built of it.

    Raises:
        PluginError: it cannot be read.
    """
    if ".py:" not in name:
        return registry.resolve(kind, name, base=base)
    source = SourceFile.read(kind, name, base)
    runs = is_named((base or Path.cwd()) / source.path)
    return load_source(source) if runs else read_only(source)


def parse(
    data: Mapping[str, Any], marks: Marks = NO_MARKS, *, resolve: Resolve = resolve_given
) -> Experiment:
    """An experiment from plain data, checked by the schema alone.

    Args:
        data: mappings, lists and scalars, with components as mappings.
        marks: where each setting was given, for messages.
        resolve: finds plugins, so that a suggestion may name their parameters.

    Raises:
        ConfigError: the first of what is wrong, with file, line and key.
    """
    experiment, faults = validated(Experiment, data, (), lambda: _keys_of(data, marks, resolve))
    if experiment is None:
        raise refusal(faults, marks)
    return experiment


def parameters(plugin: Resolved, params: Mapping[str, Any]) -> Config:
    """A plugin's parameters from plain values, outside any experiment.

    Raises:
        ConfigError: the first of what is wrong with them.
    """
    config, faults = validated(plugin.plugin.config, params)
    if config is None:
        raise refusal(faults)
    return config


def dataset_of(name: str, overrides: Sequence[str]) -> tuple[Resolved, Config]:
    """A data set by its name, and its parameters from `dataset.params.KEY=VALUE`.

    Raises:
        PluginError: there is none that can be used.
        ConfigError: a setting is none of a data set's parameters.
    """
    found = registry.resolve("dataset", name)
    cwd = Path.cwd()
    params = dict[str, Any]()
    for setting in parse_overrides(overrides, cwd):
        *above, key = setting.path
        if above != ["dataset", "params"]:
            raise ConfigError(
                f"{setting.origin}: {name} is a data set, which has dataset.params.KEY=VALUE only"
            )
        params[str(key)] = setting.value
    paths = {(name,) for name in path_fields(found.plugin.config)}
    return found, parameters(found, absolute_paths(params, (), NO_MARKS, cwd, paths))


def components_of(experiment: Experiment) -> list[tuple[KeyPath, Component]]:
    """The plugins that an experiment names, by their places."""
    entries = [(("mixers", number), entry) for number, entry in enumerate(experiment.mixers)]
    return [*(((kind,), getattr(experiment, kind)) for kind in COMPONENTS), *entries]


def with_params(experiment: Experiment, params: Mapping[KeyPath, Mapping[str, Any]]) -> Experiment:
    """The experiment with other parameters of some components, by their places."""
    made = {
        path: component.model_copy(update={"params": params.get(path, component.params)})
        for path, component in components_of(experiment)
    }
    mixers = [made.pop(("mixers", number)) for number in range(len(experiment.mixers))]
    others = {str(kind): component for (kind,), component in made.items()}
    return experiment.model_copy(update={**others, "mixers": tuple(mixers)})


def resolved(path: KeyPath, name: str, marks: Marks, base: Path, resolve: Resolve) -> Resolved:
    """The plugin of the component that stands at a place."""
    return resolve(kind_path(path)[0], name, base=folder_of((*path, "name"), marks, base))


@contextmanager
def told_at(path: KeyPath, marks: Marks) -> Iterator[None]:
    """Raise what is wrong with a plugin again with the line of the setting that led to it."""
    try:
        yield
    except UserError as error:
        origin = origin_of(path, marks)
        if not origin.source or isinstance(error, ConfigError):
            raise
        raise type(error)(f"{origin}: {dotted(path)}: {error}") from error


def checked_parts(
    experiment: Experiment,
    plugins: Mapping[KeyPath, Resolved],
    marks: Marks,
    base: Path,
    resolve: Resolve,
) -> Parts:
    """The plugins with their parameters; everything that is wrong with these or with the experiment
    itself is one refusal.
    """
    parts: dict[KeyPath, Part] = {}
    faults: list[Fault] = []

    def known() -> Known:
        return _keys_of(experiment.model_dump(mode="json"), marks, resolve)

    for place, component in components_of(experiment):
        plugin = plugins[place]
        schema = plugin.plugin.config
        path = (*place, "params")
        paths = {(*kind_path(path), name) for name in path_fields(schema)}
        params = absolute_paths(component.params, path, marks, base, paths)
        label = f"{plugin.found} cannot check its parameters"
        with told_at(path, marks), blamed(label, passing=(ConfigError,)):
            config, wrong = validated(schema, params, path, known)
        faults += wrong
        if config is not None:
            parts[place] = (plugin, config)
    faults += conflicts(experiment)
    if faults:
        raise refusal(faults, marks)
    return parts


def _keys_of(data: Mapping[str, Any], marks: Marks, resolve: Resolve) -> Known:
    """Every key that a file with these plugins may have; plugins that cannot be found add
    nothing.
    """
    known = known_keys(Experiment)
    known[()] += STUDY_KEYS
    entries = [("mixers", number) for number, _ in children(data.get("mixers"))]
    for path in entries:
        known |= known_keys(MixerEntry, path)
    for path in (*COMPONENT_PATHS, *entries):
        name = get(data, (*path, "name"))
        params = (*path, "params")
        with suppress(UserError):
            if isinstance(name, str):
                known |= known_keys(
                    resolved(path, name, marks, Path.cwd(), resolve).plugin.config, params
                )
    return known
