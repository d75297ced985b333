"""The plugins that an experiment names: which they are, and whether their parameters fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from subquad import registry
from subquad.errors import ConfigError, PluginError, UserError
from subquad.experiment.key_names import Known, known_keys
from subquad.experiment.refusals import Fault, refusal, validated
from subquad.experiment.rules import conflicts
from subquad.experiment.schema import Component, Experiment, MixerEntry
from subquad.experiment.settings import (
    COMPONENTS,
    STUDY_KEYS,
    KeyPath,
    Marks,
    absolute_paths,
    dotted,
    folder_of,
    get,
    origin_of,
    path_fields,
)
from subquad.experiment.sources import parse_overrides
from subquad.plugin import Config
from subquad.registry import Kind, Resolved, SourceFile, load_source
from subquad.registry.faults import blamed
from subquad.registry.loaded import read_only
from subquad.trust import is_named, refuse_strange_file

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
    """As `resolve_given`, for commands that only look: no file of code runs that this command line
    does not name.

    Such a plugin takes all parameters as they are written, and nothing can be built of it.

    Raises:
        PluginError: it cannot be read.
    """
    if ".py:" not in name:
        return registry.resolve(kind, name, base=base)
    source = SourceFile.read(kind, name, base)
    named = is_named((base or Path.cwd()) / source.path)
    if named:
        return load_source(source)
    return read_only(source)


def parse(
    data: Mapping[str, Any], marks: Marks | None = None, *, resolve: Resolve | None = None
) -> Experiment:
    """An experiment from plain data, checked by the schema alone.

    Args:
        data: mappings, lists and scalars, with components as mappings.
        marks: where each setting was given, for messages.
        resolve: finds plugins, so that a suggestion may name their parameters.

    Raises:
        ConfigError: the first of what is wrong, with file, line and key.
    """
    experiment, faults = validated(
        Experiment, data, (), lambda: keys_of(data, marks, resolve or resolve_given)
    )
    if experiment is None:
        raise refusal(faults, marks)
    return experiment


def parameters(plugin: Resolved, params: Mapping[str, Any]) -> Config:
    """A plugin's parameters from plain values, outside any experiment.

    Raises:
        ConfigError: the first of what is wrong with them.
    """
    schema = plugin.plugin.config
    config, faults = validated(schema, params, (), lambda: known_keys(schema))
    if config is None:
        raise refusal(faults, None)
    return config


def dataset_of(name: str, overrides: Sequence[str]) -> tuple[Resolved, Config]:
    """A data set by its name, and its parameters from `dataset.params.KEY=VALUE`.

    Raises:
        PluginError: there is none that can be used.
        ConfigError: a setting is none of a data set's parameters.
    """
    found = registry.resolve("dataset", name)
    params = dict[str, Any]()
    for setting in parse_overrides(overrides, Path.cwd()):
        if setting.path[:2] != ("dataset", "params") or len(setting.path) != 3:
            raise ConfigError(
                f"{setting.origin}: {name} is a data set, which has dataset.params.KEY=VALUE only"
            )
        params[str(setting.path[2])] = setting.value
    is_path = path_fields(found.plugin.config)
    given = absolute_paths(params, (), None, Path.cwd(), lambda path: path[-1] in is_path)
    return found, parameters(found, given)


def components_of(experiment: Experiment) -> list[tuple[KeyPath, Component]]:
    """The plugins that an experiment names, by their places."""
    entries = ((("mixers", number), entry) for number, entry in enumerate(experiment.mixers))
    return [*(((kind,), getattr(experiment, kind)) for kind in COMPONENTS), *entries]


def with_components(
    experiment: Experiment, changes: Mapping[KeyPath, Mapping[str, Any]]
) -> Experiment:
    """The experiment with some fields of its components changed."""
    update: dict[Any, Any] = {"mixers": ()}
    for path, component in components_of(experiment):
        made = component.model_copy(update=changes.get(path, {}))
        if path[0] == "mixers":
            update["mixers"] += (made,)
        else:
            update[path[0]] = made
    return experiment.model_copy(update=update)


def resolved(
    path: KeyPath, name: str, marks: Marks | None, base: Path, resolve: Resolve
) -> Resolved:
    kind = "mixer" if path[0] == "mixers" else path[0]
    return resolve(kind, name, base=folder_of((*path, "name"), marks, base))


def place_error(error: UserError, path: KeyPath, marks: Marks | None) -> NoReturn:
    """Raise `error` again with the line of the setting that led to it."""
    origin = origin_of(path, marks)
    if not origin.source:
        raise error
    raise type(error)(f"{origin}: {dotted(path)}: {error}") from error


def configs_of(
    experiment: Experiment,
    plugins: Mapping[KeyPath, Resolved],
    marks: Marks | None,
    base: Path,
    resolve: Resolve,
) -> dict[KeyPath, Config]:
    """The plugins' parameters; everything that is wrong with them or with the experiment itself
    is one refusal.
    """
    found: dict[KeyPath, Config] = {}
    faults: list[Fault] = []
    for place, component in components_of(experiment):
        path = (*place, "params")
        schema = plugins[place].plugin.config
        is_path = {(*path, name) for name in path_fields(schema)}
        params = absolute_paths(component.params, path, marks, base, is_path.__contains__)
        try:
            with blamed(
                f"{plugins[place].found} cannot check its parameters", passing=(ConfigError,)
            ):
                config, wrong = validated(
                    schema,
                    params,
                    path,
                    lambda: keys_of(experiment.model_dump(mode="json"), marks, resolve),
                )
        except PluginError as error:
            place_error(error, path, marks)
        faults += wrong
        if config is not None:
            found[place] = config
    faults += conflicts(experiment)
    if faults:
        raise refusal(faults, marks)
    return found


def keys_of(data: Mapping[str, Any], marks: Marks | None, resolve: Resolve) -> Known:
    """Every key that a file with these plugins may have; plugins that cannot be found add
    nothing.
    """
    known = known_keys(Experiment)
    entries = data.get("mixers")
    known[()] += STUDY_KEYS
    numbers = range(len(entries)) if isinstance(entries, list) else ()
    for path in (*((kind,) for kind in COMPONENTS), *(("mixers", number) for number in numbers)):
        known |= known_keys(MixerEntry, path) if path[0] == "mixers" else {}
        name = get(data, (*path, "name"))
        with suppress(UserError):
            if isinstance(name, str):
                plugin = resolved(path, name, marks, Path.cwd(), resolve).plugin
                known |= known_keys(plugin.config, (*path, "params"))
    return known
