"""A study as canonical YAML, which loads again to the same runs with the same labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from subquad.errors import ConfigError
from subquad.experiment.axes import CASE, Axis, Choice, plain_label
from subquad.experiment.run import Run
from subquad.experiment.schema import Experiment, Resources, Tracking, Train
from subquad.experiment.settings import (
    COMPONENTS,
    KeyPath,
    Marks,
    Setting,
    Tree,
    absolute,
    absolute_file,
    folder_of,
    overlay,
    path_fields,
    problem,
)
from subquad.experiment.strict_yaml import MAX_BYTES, MAX_NODES, parse_yaml, to_yaml
from subquad.experiment.study_file import StudyCase, StudyFile, When

_SURELY_READABLE = 4 * MAX_NODES
"""Characters; each key and value takes at least four in the canonical form."""


def study_text(study: StudyFile, runs: Sequence[Run], cwd: Path) -> str:
    """The study with defaults filled in and paths absolute; files that it extends and overrides are part of it.

    The checked runs know the plugins; `cwd` is for values whose origin has no folder.

    Raises:
        ConfigError: with its defaults it is larger than what `load_study` reads.
    """
    writer = _Writer(study, _configs(runs), cwd)
    # The labelled cases are in `cases`, and told as an axis only where their base is left out.
    axes = [axis for axis in study.axes if axis.key != CASE or None not in [one.value for one in axis.choices]]
    matrix = {axis.key: writer.choices(axis) for axis in axes}
    exclude = [when for when in map(writer.when, study.exclude) if all(when.values())]
    rest = {"matrix": matrix, "cases": writer.cases(), "exclude": exclude, "baseline": study.baseline}
    rest["match"] = study.match
    text = to_yaml(writer.base() | {key: value for key, value in rest.items() if value})
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
        message = f"with every default written out has {len(text):,} characters, more than can be read back; use less"
        raise problem(("matrix",), message, study.marks)


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
        self.study, self.configs, self.cwd = study, configs, cwd
        self.paths: frozenset[KeyPath] = frozenset(
            (kind, "params", name) for (kind, _), config in configs.items() for name in path_fields(config)
        )

    def base(self) -> dict[str, Any]:
        """The base, in the schema's order, with the defaults of its sections and plugins."""
        tree = self.study.base
        given = self.value((), tree.data, tree.marks)
        given |= {kind: self.component(tree, kind) for kind in COMPONENTS if kind in given}
        given |= {key: _filled(given.get(key, {}), section) for key, section in _SECTIONS.items()}
        optional = {"mixers", "init"} - given.keys()
        return {key: value for key, value in _filled(given, Experiment).items() if key not in optional}

    def choices(self, axis: Axis) -> list[Any]:
        if axis.key == CASE:
            return [choice.label for choice in axis.choices]
        return [(self.plugin if axis.is_component else self.choice)(axis, choice) for choice in axis.choices]

    def choice(self, axis: Axis, choice: Choice) -> Any:
        value = self.value(axis.path, choice.value, {(): choice.origin})
        return value if plain_label(axis.key, value) == choice.label else {"value": value, "label": choice.label}

    def plugin(self, axis: Axis, choice: Choice) -> Any:
        tree = overlay(self.study.base, [Setting(axis.path, choice.value, choice.origin)])
        return self.component(tree, axis.key) | {"label": choice.label}

    def component(self, tree: Tree, kind: str) -> dict[str, Any]:
        """A component with its plugin's defaults."""
        data = self.value((kind,), tree.data[kind], tree.marks)
        params, config = data.get("params", {}), self.configs.get((kind, data["name"]))
        return {"name": data["name"], "params": _filled(params, config) if config else params}

    def cases(self) -> list[dict[str, Any]]:
        """The cases that mean a run, the command line's, and the labelled ones."""
        chosen = [choice.value for axis in self.study.axes if axis.key == CASE for choice in axis.choices]
        cases = [*self.study.cases, *self.study.last, *(case for case in chosen if case)]
        return [self.case(one) for one in cases if any(map(one.when.holds, self.study.combinations))]

    def case(self, case: StudyCase) -> dict[str, Any]:
        parts = {"label": case.label, "when": self.when(case.when)}
        settings = {
            ".".join(map(str, one.path)): self.value(one.path, one.value, {(): one.origin}) for one in case.settings
        }
        return {key: part for key, part in parts.items() if part} | {"set": settings}

    def when(self, when: When) -> dict[str, list[str]]:
        """A `when` by labels, those that the command line took away left out."""
        left = {axis.key: {choice.label for choice in axis.choices} for axis in self.study.axes}
        return {key: [label for label in labels if label in left[key]] for key, labels in when.labels.items()}

    def value(self, path: KeyPath, value: Any, marks: Marks) -> Any:
        """A value with the paths in it absolute."""
        if isinstance(value, dict):
            return {key: self.value((*path, key), one, marks) for key, one in value.items()}
        if isinstance(value, list) and path == ("mixers",):
            return [self.value((*path, number), one, marks) for number, one in enumerate(value)]
        if not isinstance(value, str):
            return value
        folder = folder_of(path, marks, self.cwd)
        place = ("mixer", *path[2:]) if path[0] == "mixers" else path
        if place in self.paths or place == ("init", "from"):
            return absolute(value, folder)
        is_name = place[0] in COMPONENTS and place[1:] in ((), ("name",))
        return absolute_file(value, folder) if is_name else value


def _filled(given: Mapping[str, Any], config: type[BaseModel]) -> dict[str, Any]:
    """Settings with the defaults of their schema, in its order."""
    fields = {name: field for name, field in config.model_fields.items() if not field.is_required()}
    values = {name: field.get_default(call_default_factory=True, validated_data={}) for name, field in fields.items()}
    data = {**config.model_construct(**values).model_dump(mode="json", include=set(fields)), **given}
    return {name: data[name] for name in (*config.model_fields, *data) if name in data}


_SECTIONS: dict[str, type[BaseModel]] = {"train": Train, "resources": Resources, "tracking": Tracking}
