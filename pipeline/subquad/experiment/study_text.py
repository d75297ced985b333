"""A study as canonical YAML, which loads again to the same runs with the same labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from subquad.errors import ConfigError
from subquad.experiment.axes import Axis, Case, plain_label
from subquad.experiment.run import Run
from subquad.experiment.schema import Experiment, Resources, Tracking, Train
from subquad.experiment.settings import (
    COMPONENTS,
    KeyPath,
    Marks,
    Tree,
    absolute_paths,
    overlay,
    path_fields,
)
from subquad.experiment.strict_yaml import MAX_BYTES, MAX_NODES, parse_yaml, to_yaml
from subquad.experiment.study_file import StudyFile

_SURELY_READABLE = 4 * MAX_NODES
"""Characters; each key and value takes at least four in the canonical form."""


def study_text(study: StudyFile, runs: Sequence[Run], cwd: Path) -> str:
    """The study with defaults filled in and paths absolute; files that it extends and overrides are
    part of it.

    The checked runs know the plugins; `cwd` is for values whose origin has no folder.

    Raises:
        ConfigError: with its defaults it is larger than what `load_study` reads.
    """
    writer = _Writer(study, _configs(runs), cwd)
    parts = {
        "matrix": {axis.key: writer.values(axis) for axis in study.axes},
        "cases": writer.cases(),
        "baseline": study.baseline,
        "match": study.match,
    }
    text = to_yaml(writer.base() | {key: value for key, value in parts.items() if value})
    _refuse_unreadable(text, study)
    return text


def _refuse_unreadable(text: str, study: StudyFile) -> None:
    """A study that could not be resumed must not start."""
    if len(text) < _SURELY_READABLE:
        return
    try:
        parse_yaml(text, "study.yaml")
        readable = len(text.encode()) <= MAX_BYTES
    except ConfigError:
        readable = False
    if not readable:
        message = (
            f"with every default written out has {len(text):,} characters, more than "
            "can be read back; use less"
        )
        raise study.wrong(message)


def _configs(runs: Sequence[Run]) -> dict[tuple[str, str], Any]:
    """Parameter schemas by kind and name, as the runs write the names."""
    return {
        (kind, getattr(run.experiment, kind).name): type(getattr(run, f"{kind}_config"))
        for run in runs
        for kind in COMPONENTS
    } | {
        ("mixer", entry.name): type(config)
        for run in runs
        for entry, (_, config) in zip(run.experiment.mixers, run.mixers, strict=True)
    }


class _Writer:
    """Writes the parts of one study as plain data."""

    def __init__(self, study: StudyFile, configs: Mapping[tuple[str, str], Any], cwd: Path):
        self.study = study
        self.configs = configs
        self.cwd = cwd
        self.paths: frozenset[KeyPath] = frozenset(
            (kind, "params", name)
            for (kind, _), config in configs.items()
            for name in path_fields(config)
        )

    def base(self) -> dict[str, Any]:
        """The base, in the schema's order, with the defaults of its sections and plugins."""
        tree = self.study.base
        given = self.value((), tree.data, tree.marks)
        given |= {kind: self.component(tree, kind) for kind in COMPONENTS if kind in given}
        given |= {key: _filled(given.get(key, {}), section) for key, section in _SECTIONS.items()}
        optional = {"mixers", "init"} - given.keys()
        return {
            key: value for key, value in _filled(given, Experiment).items() if key not in optional
        }

    def values(self, axis: Axis) -> list[Any]:
        """The values that a run has."""
        trained = {combination[axis.key].label for combination in self.study.combinations}
        return [self.axis_value(axis, value) for value in axis.values if value.label in trained]

    def axis_value(self, axis: Axis, value: Case) -> Any:
        if not axis.path:
            return {"label": value.label, "set": self.sets(value)} | self.when(value)
        setting = value.settings[0]
        if axis.is_component:
            component = self.component(overlay(self.study.base, [setting]), axis.key)
            return component | {"label": value.label} | self.when(value)
        plain = self.value(axis.path, setting.value, {(): setting.origin})
        label = plain_label(axis.key, plain)
        if not isinstance(plain, dict) and label == value.label and not value.when:
            return plain
        return {"value": plain, "label": value.label} | self.when(value)

    def component(self, tree: Tree, kind: str) -> dict[str, Any]:
        """A component with its plugin's defaults."""
        data = self.value((kind,), tree.data[kind], tree.marks)
        params = data.get("params", {})
        config = self.configs.get((kind, data["name"]))
        return {"name": data["name"], "params": _filled(params, config) if config else params}

    def cases(self) -> list[dict[str, Any]]:
        """The cases that are for a run, and the command line's."""
        return [
            self.when(case) | {"set": self.sets(case)}
            for case in (*self.study.cases, *self.study.last)
            if case.settings and any(map(case.holds, self.study.combinations))
        ]

    def sets(self, case: Case) -> dict[str, Any]:
        return {
            ".".join(map(str, setting.path)): self.value(
                setting.path, setting.value, {(): setting.origin}
            )
            for setting in case.settings
        }

    def when(self, case: Case) -> dict[str, Any]:
        """A `when` by labels, those that the command line took away left out."""
        axes = {axis.key: axis for axis in self.study.axes}
        possible = []
        for when in case.when:
            condition = {key: _left(axes[key], labels) for key, labels in when.items()}
            if all(condition.values()):
                possible.append(condition)
        if not possible:
            return {}
        return {"when": possible[0] if len(possible) == 1 else possible}

    def value(self, path: KeyPath, value: Any, marks: Marks) -> Any:
        """A value with the paths in it absolute."""
        return absolute_paths(value, path, marks, self.cwd, self.is_path)

    def is_path(self, path: KeyPath) -> bool:
        """Whether it is a parameter that a plugin declares as a path."""
        return (("mixer", *path[2:]) if path[0] == "mixers" else path) in self.paths


def _left(axis: Axis, labels: Sequence[str]) -> list[str]:
    """Those that the axis still has."""
    known = {value.label for value in axis.values}
    return [label for label in labels if label in known]


def _filled(given: Mapping[str, Any], config: type[BaseModel]) -> dict[str, Any]:
    """Settings with the defaults of their schema, in its order."""
    fields = {name: field for name, field in config.model_fields.items() if not field.is_required()}
    values = {
        name: field.get_default(call_default_factory=True, validated_data={})
        for name, field in fields.items()
    }
    data = {
        **config.model_construct(**values).model_dump(mode="json", include=set(fields)),
        **given,
    }
    return {name: data[name] for name in (*config.model_fields, *data) if name in data}


_SECTIONS: dict[str, type[BaseModel]] = {
    "train": Train,
    "resources": Resources,
    "tracking": Tracking,
}
