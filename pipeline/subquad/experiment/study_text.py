"""A study as canonical YAML, which loads again to the same runs with the same labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from subquad.errors import ConfigError
from subquad.experiment.axes import Axis, Case
from subquad.experiment.components import components_of
from subquad.experiment.labels import plain_label
from subquad.experiment.run import Run
from subquad.experiment.schema import Experiment, Resources, Tracking, Train
from subquad.experiment.settings import (
    COMPONENTS,
    KeyPath,
    Marks,
    Setting,
    Tree,
    absolute_paths,
    flat_key,
    kind_path,
    overlay,
    path_fields,
)
from subquad.experiment.strict_yaml import MAX_BYTES, MAX_NODES, parse_yaml, to_yaml
from subquad.experiment.study_file import StudyFile
from subquad.plugin.effect import default_of

_SURELY_READABLE = 4 * MAX_NODES
"""Characters; each key and value takes at least four in the canonical form."""


def study_text(study: StudyFile, runs: Sequence[Run], cwd: Path) -> str:
    """The study with defaults filled in and paths absolute; files that it extends and overrides are
    part of it.

    The checked runs know the plugins; `cwd` is for values whose origin has no folder.

    Raises:
        ConfigError: with its defaults it is larger than what `load_study` reads.
    """
    writer = _Writer(study, runs, cwd)
    data = writer.base()
    data["matrix"] = {}
    for axis in study.axes:
        data["matrix"][axis.key] = writer.values(axis)
    if cases := writer.cases():
        data["cases"] = cases
    if study.baseline:
        data["baseline"] = study.baseline
    if study.match:
        data["match"] = study.match
    text = to_yaml(data)
    if len(text) < _SURELY_READABLE:
        return text
    try:  # a study that could not be resumed must not start
        parse_yaml(text, "study.yaml")
        readable = len(text.encode()) <= MAX_BYTES
    except ConfigError:
        readable = False
    if not readable:
        size = f"with every default written out has {len(text):,} characters"
        raise study.wrong(f"{size}, more than can be read back; use less")
    return text


class _Writer:
    """Writes the parts of one study as plain data."""

    def __init__(self, study: StudyFile, runs: Sequence[Run], cwd: Path):
        self.study = study
        self.cwd = cwd
        self.configs: dict[tuple[Any, str], type[BaseModel]] = {}
        self.paths: set[KeyPath] = set()
        for run in runs:
            components = dict(components_of(run.experiment))
            for path, (_, config) in run.parts.items():
                kind = kind_path(path)[0]
                schema = type(config)
                self.configs[kind, components[path].name] = schema
                for name in path_fields(schema):
                    self.paths.add((kind, "params", name))

    def base(self) -> dict[str, Any]:
        """The base, in the schema's order, with the defaults of its sections and plugins."""
        tree = self.study.base
        given = self.value((), tree.data, tree.marks)
        for kind in COMPONENTS:
            if kind in given:
                given[kind] = self.component(tree, kind)
        for key, section in _SECTIONS.items():
            given[key] = _filled(given.get(key, {}), section)
        data = _filled(given, Experiment)
        for key in ("mixers", "init"):
            if key not in given:
                del data[key]
        return data

    def values(self, axis: Axis) -> list[Any]:
        """The values that a run has."""
        trained = {combination[axis.key].label for combination in self.study.combinations}
        return [self.axis_value(axis, value) for value in axis.values if value.label in trained]

    def axis_value(self, axis: Axis, value: Case) -> Any:
        when = self.when(value)
        label = {"label": value.label}
        if not axis.path:
            return label | {"set": self.sets(value)} | when
        setting = value.settings[0]
        if axis.is_component:
            return self.component(overlay(self.study.base, [setting]), axis.key) | label | when
        plain = self.plain(setting)
        needs_mapping = isinstance(plain, dict) or value.when
        if value.label == plain_label(axis.key, plain) and not needs_mapping:
            return plain
        return {"value": plain} | label | when

    def component(self, tree: Tree, kind: str) -> dict[str, Any]:
        """A component with its plugin's defaults."""
        data = self.value((kind,), tree.data[kind], tree.marks)
        name = data["name"]
        params = data.get("params", {})
        config = self.configs.get((kind, name))
        if config:
            params = _filled(params, config)
        return {"name": name, "params": params}

    def cases(self) -> list[dict[str, Any]]:
        """The cases that are for a run, and the command line's."""
        cases: list[dict[str, Any]] = []
        for case in (*self.study.cases, *self.study.last):
            if case.settings and self.study.uses(case):
                made = self.when(case)
                made["set"] = self.sets(case)
                cases.append(made)
        return cases

    def sets(self, case: Case) -> dict[str, Any]:
        return {flat_key(setting.path): self.plain(setting) for setting in case.settings}

    def when(self, case: Case) -> dict[str, Any]:
        """A `when` by labels, those that the command line took away left out."""
        left = {(axis.key, value.label) for axis in self.study.axes for value in axis.values}
        possible: list[dict[str, list[str]]] = []
        for when in case.when:
            condition: dict[str, list[str]] = {}
            for key, labels in when.items():
                condition[key] = [label for label in labels if (key, label) in left]
            if all(condition.values()):
                possible.append(condition)
        if not possible:
            return {}
        if len(possible) == 1:
            return {"when": possible[0]}
        return {"when": possible}

    def plain(self, setting: Setting) -> Any:
        """What a setting sets, with the paths in it absolute."""
        return self.value(setting.path, setting.value, {(): setting.origin})

    def value(self, path: KeyPath, value: Any, marks: Marks) -> Any:
        """A value with the paths in it absolute."""
        return absolute_paths(value, path, marks, self.cwd, self.paths)


def _filled(given: dict[str, Any], config: type[BaseModel]) -> dict[str, Any]:
    """Settings with the defaults of their schema, in its order."""
    defaults = {
        name: default_of(field)
        for name, field in config.model_fields.items()
        if not field.is_required()
    }
    data = config.model_construct(**defaults).model_dump(mode="json", include=set(defaults)) | given
    in_order: dict[str, Any] = {}
    for name in (*config.model_fields, *given):
        if name in data:
            in_order[name] = data[name]
    return in_order


_SECTIONS: dict[str, type[BaseModel]] = {
    "train": Train,
    "resources": Resources,
    "tracking": Tracking,
}
