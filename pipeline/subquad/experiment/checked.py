"""Check an experiment against its plugins, before anything heavy is imported or started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from subquad import registry
from subquad.errors import ConfigError, PluginError, UserError
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
from subquad.plugin import Config
from subquad.registry import Resolved
from subquad.registry.foreign import blamed

Resolve = Callable[..., Resolved]
"""`subquad.registry.resolve`, or something with its signature."""


@dataclass(frozen=True)
class Checked:
    """An experiment that can run.

    Attributes:
        experiment: with every plugin parameter filled in and every path absolute.
        mixer, backbone, task, dataset: its plugins.
        mixer_config, backbone_config, task_config, dataset_config: their parameters.
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
) -> Checked:
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
    return Checked(
        experiment=_filled(experiment, configs),
        mixer=plugins["mixer"],
        backbone=plugins["backbone"],
        task=plugins["task"],
        dataset=plugins["dataset"],
        mixer_config=configs["mixer"],
        backbone_config=configs["backbone"],
        task_config=configs["task"],
        dataset_config=configs["dataset"],
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
