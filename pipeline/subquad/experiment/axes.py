"""The axes of a study: lists of labelled values, each with the settings that it brings along.

Every run takes one value of each axis.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from pydantic import Field

from subquad.experiment.components import Resolve
from subquad.experiment.labels import dataset_label, plain_label, plugin_label
from subquad.experiment.refusals import Given, Model, refusal, shown, validated
from subquad.experiment.schema import Component, Experiment
from subquad.experiment.settings import (
    COMPONENT_PATHS,
    STUDY_KEYS,
    KeyPath,
    Setting,
    children,
    dotted,
    key_path,
    single,
)
from subquad.plugin import Config
from subquad.registry.allowed import NAME_PATTERN
from subquad.suggest import did_you_mean

ALL = "all"
"""In place of an axis' values: every one that it has had, also in files below."""

SEED: KeyPath = ("train", "seed")
MATRIX_WORDS = "a mapping of keys to lists, as in seed: [0, 1]"
Label = Annotated[str, Field(pattern=NAME_PATTERN)]


class Brings(Config):
    """What a value of an axis brings along.

    Attributes:
        set: settings.
        beside: settings in the runs that have a value of another axis with this label.
        only: labels of other axes' values; of an axis with one of them, only these stand beside it.
    """

    set: dict[str, Any] = Field(default_factory=dict)
    beside: dict[str, dict[str, Any]] = Field(default_factory=dict)
    only: tuple[str, ...] = ()


class _LabelEntry(Brings):
    """A value of an axis with a name of the user's."""

    label: Label


class _ComponentEntry(Component, Brings):
    """A value that is a component."""

    label: Label = ""


class _PlainEntry(Brings):
    """A value of a setting."""

    value: Any
    label: Label = ""


@dataclass(frozen=True)
class Value:
    """A value of an axis: its label, and the settings that it brings along.

    Attributes:
        place: where it is written.
        own: the component or plain value that it is; nothing on an axis with a name of the user's.
        named_by: parameters given that a data set's own label is made of.
    """

    label: str
    place: Given
    own: tuple[Setting, ...]
    sets: tuple[Setting, ...]
    beside: Mapping[str, tuple[Setting, ...]]
    only: tuple[str, ...]
    named_by: tuple[str, ...]


@dataclass(frozen=True)
class Axis:
    """One dimension of a study.

    Attributes:
        key: as it is written: `mixer`, `seed`, `train.lr`.
        path: what its values are; () on an axis with a name of the user's.
        values: in order.
        known: by their labels these, and those that it had in a file below, or before the command
            line gave others.
    """

    key: str
    path: KeyPath
    values: tuple[Value, ...] = ()
    known: Mapping[str, Value] = field(default_factory=dict)

    @property
    def is_component(self) -> bool:
        return self.path in COMPONENT_PATHS

    def owns(self, path: KeyPath) -> bool:
        """Whether setting `path` would make this axis' labels say something untrue."""
        if not self.is_component:
            shared = min(len(path), len(self.path))
            return shared > 0 and path[:shared] == self.path[:shared]
        if path[:-1] == (*self.path, "params"):
            return any(path[-1] in value.named_by for value in self.values)
        return path in (self.path, (*self.path, "name"))


def axis_path(key: str) -> KeyPath:
    """What an axis sets, () where it has a name of the user's; `seed` is short for `train.seed`."""
    path = SEED if key == "seed" else key_path(key)
    return path if path[0] in Experiment.model_fields else ()


def read_axes(matrix: Given, before: Sequence[Axis], resolve: Resolve) -> tuple[Axis, ...]:
    """The axes in the order written, those of `before` first and that of the seed last; an axis
    that is given again has other values.

    `resolve` finds the data sets' plugins, which may have labels for their parameters.

    Raises:
        ConfigError: not a mapping of keys to lists, or two axes set the same thing.
    """
    matrix.expect_filled(dict, MATRIX_WORDS)
    axes = {axis_path(axis.key) or axis.key: axis for axis in before}
    anew = set[KeyPath | str]()
    for key, given in matrix.items():
        _refuse_common(given, key_path(key), "be an axis; axes are components, seed, or settings")
        says_settings = any("set" in dict(children(value)) for _, value in children(given.value))
        path = axis_path(key) or (() if says_settings else key_path(key))
        name = axis_path(key) or key
        axis = _axis(axes.get(name) or Axis(key, path), given, resolve)
        for other_name, other in axes.items():
            is_former = other_name == name and name not in anew
            # an axis over a parameter lies over that of its component
            upper, lower = sorted((axis, other), key=lambda axis: len(axis.path))
            if not is_former and upper.owns(lower.path):
                raise given.wrong(f"sets the same as the axis {other.key}; keep one of them")
        axes[name] = axis
        anew.add(name)
    if SEED in axes:
        axes[SEED] = axes.pop(SEED)
    return tuple(axes.values())


def _refuse_common(place: Given, path: KeyPath, what: str) -> None:
    """Refuse what is no key, or what all runs have alike."""
    if "" in path or path[0] in ("name", "format", *STUDY_KEYS):
        raise place.wrong(f"cannot {what} such as train.lr")


def _axis(axis: Axis, place: Given, resolve: Resolve) -> Axis:
    """The axis with the values that are given at a place."""
    if place.value == ALL and axis.known:
        return replace(axis, values=tuple(axis.known.values()))
    example = "0, 1" if place.value in (None, [], {}) else shown(place.value).strip("'")
    place.expect_filled(list, f"a list of values, as in [{example}]")
    values: dict[str, Value] = {}
    places: dict[str, KeyPath] = {}
    for entry in place.entries():
        value = axis.known.get(entry.value) if isinstance(entry.value, str) else None
        if value is None:
            if axis.known and not axis.path and not isinstance(entry.value, dict):
                refuse_unknown_label(entry, entry.value, axis.known)
            value = _value(axis, entry, resolve)
        # folders of some file systems do not tell capitals apart
        first = places.setdefault(value.label.lower(), entry.path)
        if first != entry.path:
            raise entry.wrong(
                f"has the label {value.label!r}, as {dotted(first)} has; give one of them "
                "another label"
            )
        values[value.label] = value
    return replace(axis, values=tuple(values.values()), known={**values, **axis.known, **values})


def _value(axis: Axis, place: Given, resolve: Resolve) -> Value:
    own: Any = None
    named_by: tuple[str, ...] = ()
    if axis.is_component:
        entry = read_model(_ComponentEntry, place, "name")
        own = entry.model_dump(include={"name", "params"}, exclude_unset=True)
        label = plugin_label(entry.name)
        if axis.key == "dataset":
            label, named_by = dataset_label(own, label, resolve)
        label = entry.label or label
    elif axis.path:
        entry = read_model(_PlainEntry, place, "value")
        own = entry.value
        label = entry.label or plain_label(axis.key, own)
    else:
        entry = read_model(_LabelEntry, place, "label")
        label = entry.label
    return Value(
        label=label,
        place=place,
        own=(Setting(axis.path, own, place.origin),) if axis.path else (),
        sets=read_settings(place.at("set")),
        beside={key: read_settings(settings) for key, settings in place.at("beside").items()},
        only=entry.only,
        named_by=named_by,
    )


def read_model(model: type[Model], place: Given, short: str = "") -> Model:
    """What stands at a place; what is no mapping is its key `short`."""
    if short and not isinstance(place.value, dict):
        place = Given({short: place.value}, place.path, place.marks)
    place.expect_type(dict, "a mapping")
    read, faults = validated(model, place.value, place.path)
    if read is None:
        raise refusal(faults, place.marks)
    return read


def read_settings(place: Given) -> tuple[Setting, ...]:
    """What is set at a place, each section (`train: {lr: 1}`) as settings of its keys."""
    settings: list[Setting] = []
    for key, given in place.items():
        _refuse_common(given, key_path(key), "be set for some runs, as settings")
        settings.append(Setting(key_path(key), given.value, given.origin))
    return tuple(single(settings))


def refuse_unknown_label(place: Given, label: Any, known: Collection[str]) -> None:
    """Refuse a label that no value has."""
    if label not in known:
        hint = did_you_mean(str(label), known) or f"; there is {', '.join([*known][:10]) or 'none'}"
        raise place.wrong(f"no value has the label {shown(label)}{hint}")
