"""A study as canonical YAML, which loads again to the same runs with the same labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from subquad.errors import ConfigError
from subquad.experiment.axes import CASE, Axis, Choice, plain_label
from subquad.experiment.run import Run
from subquad.experiment.schema import Experiment, Resources, Tracking, Train
from subquad.experiment.settings import (
    COMPONENTS,
    KeyPath,
    Origin,
    Setting,
    absolute,
    absolute_mixer,
    get,
    path_fields,
    problem,
)
from subquad.experiment.strict_yaml import MAX_BYTES, MAX_NODES, parse_yaml, to_yaml
from subquad.experiment.study_file import StudyCase, StudyFile, When

_SURELY_READABLE = 4 * MAX_NODES
"""Characters; each key and value takes at least four in the canonical form."""


def study_text(study: StudyFile, runs: Sequence[Run], cwd: Path) -> str:
    """The study with defaults filled in and paths absolute; files that it extends and overrides are part of it.

    Args:
        study: what was read.
        runs: its checked runs, which know the plugins.
        cwd: for values whose origin has no folder.

    Raises:
        ConfigError: with its defaults it is larger than what `load_study` reads.
    """
    writer = _Writer(study, _configs(runs), cwd)
    matrix = {axis.key: writer.choices(axis) for axis in study.axes if writer.is_written(axis)}
    exclude = [when for when in map(writer.when, study.exclude) if all(when.values())]
    rest = {"matrix": matrix, "cases": writer.cases(), "exclude": exclude, "baseline": study.baseline}
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
        given = self.study.base.data
        data: dict[str, Any] = {}
        for key, field in Experiment.model_fields.items():
            if key in COMPONENTS and key in given:
                data[key] = self.component((key,), given[key], {})
            elif key in _SECTIONS:
                data[key] = {**_SECTIONS[key], **given.get(key, {})}
            elif key in ("mixers", "init") and key in given:
                data[key] = self.value((key,), given[key], self.origin((key,)))
            elif key not in (*COMPONENTS, "mixers", "init"):
                data[key] = given.get(key, field.default)
        return data

    def choices(self, axis: Axis) -> list[Any]:
        if axis.key == CASE:
            return [choice.label for choice in axis.choices]
        if axis.is_component:
            before = get(self.study.base.data, axis.path) or {}
            return [
                self.component(axis.path, one.value, before, one.origin) | {"label": one.label} for one in axis.choices
            ]
        return [self.choice(axis, choice) for choice in axis.choices]

    def choice(self, axis: Axis, choice: Choice) -> Any:
        value = self.value(axis.path, choice.value, choice.origin)
        return value if plain_label(axis.key, value) == choice.label else {"value": value, "label": choice.label}

    def component(
        self, path: KeyPath, given: Mapping[str, Any], before: Mapping[str, Any], origin: Origin | None = None
    ) -> dict[str, Any]:
        """A component with its plugin's defaults; parameters of the same plugin in the base stand above them."""
        kind = str(path[0])
        name = self.name(kind, given["name"], origin or self.origin((kind, "name")))
        kept = before.get("params", {}) if before.get("name") == given["name"] else {}
        params = {
            key: self.value((kind, "params", key), value, origin or self.origin((kind, "params", key)))
            for key, value in {**kept, **given.get("params", {})}.items()
        }
        return {"name": name, "params": _filled(params, self.configs.get((kind, name)))}

    def is_written(self, axis: Axis) -> bool:
        """Whether an axis is told: the labelled cases are in `cases`, and need to be chosen only without their base."""
        return axis.key != CASE or all(choice.value is not None for choice in axis.choices)

    def cases(self) -> list[dict[str, Any]]:
        """The cases that mean a run, the command line's, and the labelled ones."""
        chosen = [choice.value for axis in self.study.axes if axis.key == CASE for choice in axis.choices]
        cases = [*self.study.cases, *self.study.last, *(case for case in chosen if case)]
        return [self.case(one) for one in cases if any(map(one.when.holds, self.study.combinations))]

    def case(self, case: StudyCase) -> dict[str, Any]:
        parts = {"label": case.label, "when": self.when(case.when)}
        return {key: part for key, part in parts.items() if part} | {"set": self.settings(case.settings)}

    def settings(self, settings: Sequence[Setting]) -> dict[str, Any]:
        return {
            ".".join(map(str, setting.path)): self.value(setting.path, setting.value, setting.origin)
            for setting in settings
        }

    def when(self, when: When) -> dict[str, list[str]]:
        """A `when` by labels, those that the command line took away left out."""
        return {key: [label for label in labels if label in self.labels(key)] for key, labels in when.labels.items()}

    def labels(self, key: str) -> set[str]:
        return {choice.label for axis in self.study.axes if axis.key == key for choice in axis.choices}

    def value(self, path: KeyPath, value: Any, origin: Origin | None) -> Any:
        """A value with the paths in it absolute."""
        if isinstance(value, dict):
            return {key: self.value((*path, key), one, origin) for key, one in value.items()}
        if isinstance(value, list) and path[0] == "mixers":
            return [self.value((*path, number), one, origin) for number, one in enumerate(value)]
        if not isinstance(value, str):
            return value
        if path[0] == "mixers":
            path = ("mixer", *path[2:])
        if path in self.paths or path == ("init", "from"):
            return absolute(value, origin.folder if origin and origin.folder else self.cwd)
        return self.name("mixer", value, origin) if path in (("mixer",), ("mixer", "name")) else value

    def name(self, kind: str, name: str, origin: Origin | None) -> str:
        marks = {(): origin} if origin else None
        return absolute_mixer(name, (kind,), marks, self.cwd) if kind == "mixer" else name

    def origin(self, path: KeyPath) -> Origin | None:
        return self.study.base.marks.get(path)


def _filled(params: Mapping[str, Any], config: Any) -> dict[str, Any]:
    """Parameters with the defaults of their schema, in its order."""
    if config is None:
        return dict(params)
    fields = {name: field for name, field in config.model_fields.items() if not field.is_required()}
    values = {name: field.get_default(call_default_factory=True, validated_data={}) for name, field in fields.items()}
    data = {**config.model_construct(**values).model_dump(mode="json", include=set(fields)), **params}
    return {name: data[name] for name in (*config.model_fields, *data) if name in data}


_SECTIONS = {
    "train": Train().model_dump(mode="json"),
    "resources": Resources().model_dump(mode="json"),
    "tracking": Tracking().model_dump(mode="json"),
}
