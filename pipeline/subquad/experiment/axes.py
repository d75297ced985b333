"""The axes of a study, and cases: labelled settings, settings for some runs.

An axis is a list of labelled settings. Every run takes one of each axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from subquad.experiment.components import Resolve
from subquad.experiment.key_names import suggest_key
from subquad.experiment.labels import (
    checked_label,
    dataset_label,
    listed,
    plain_label,
    plugin_label,
    unknown_label,
)
from subquad.experiment.refusals import Given, shown
from subquad.experiment.schema import Experiment
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
from subquad.plugin.effect import same
from subquad.record.files import flatten
from subquad.suggest import did_you_mean

ALL = "all"
"""In place of an axis' values: every one that it has had, also in files below."""

SEED: KeyPath = ("train", "seed")
MATRIX_WORDS = "a mapping of keys to lists, as in seed: [0, 1]"

When = Mapping[str, tuple[str, ...]]
"""Labels by axis key."""


@dataclass(frozen=True)
class Case:
    """Settings for some runs: a value of an axis, by its label, or an entry of `cases`.

    Attributes:
        settings: what it sets.
        place: where it is written.
        label: its part of a run's label; "" for an entry of `cases`.
        when: labels by axis key. All axes of a mapping must have one of theirs, and of several
            mappings one must hold. Without any it is for every run.
        named_by: parameters given that a data set's own label is made of.
    """

    settings: tuple[Setting, ...]
    place: Given
    label: str = ""
    when: tuple[When, ...] = ()
    named_by: tuple[str, ...] = ()

    @property
    def sets(self) -> dict[str, Any]:
        """What it sets, flat: `{"mixer.params.order": 3}`."""
        return flatten({dotted(setting.path): setting.value for setting in self.settings})

    def holds(self, combination: Combination) -> bool:
        """Whether it is for the run that has these values of the axes."""
        for labels in self.when:
            if all(combination[key].label in wanted for key, wanted in labels.items()):
                return True
        return not self.when


Combination = Mapping[str, Case]
"""One value of each axis, by its key."""


@dataclass(frozen=True)
class Axis:
    """One dimension of a study.

    Attributes:
        key: as it is written: `mixer`, `seed`, `train.lr`.
        path: what its values set; () where each says what it sets.
        values: in order.
        former: values that it had in a file below, or before the command line gave others: they
            are known by their labels.
    """

    key: str
    path: KeyPath
    values: tuple[Case, ...] = ()
    former: tuple[Case, ...] = ()

    @property
    def is_component(self) -> bool:
        return self.path in COMPONENT_PATHS

    @property
    def form(self) -> str:
        """What a value is where it is written without a mapping: a key of one."""
        if self.is_component:
            return "name"
        if self.path:
            return "value"
        return "label"

    @property
    def known(self) -> tuple[Case, ...]:
        return (*self.values, *self.former)

    def coordinate(self, value: Case) -> Any:
        """A value as a run's coordinates have it: a component's label, a plain value, or what it
        sets.
        """
        if not self.path:
            return value.sets
        if self.is_component:
            return value.label
        return value.settings[0].value

    def meant(self, given: Any) -> list[str]:
        """Labels of the values that a `when` means: the one with this label, else those with this
        plain value.
        """
        if given in [value.label for value in self.known]:
            return [given]
        if self.form != "value":
            return []
        return [value.label for value in self.known if same(value.settings[0].value, given)]

    def owns(self, path: KeyPath) -> bool:
        """Whether setting `path` would make this axis' labels say something untrue."""
        if not self.is_component:
            shared = min(len(path), len(self.path))
            is_same = path[:shared] == self.path[:shared]
            return shared > 0 and is_same
        name = (*self.path, "name")
        params = (*self.path, "params")
        if path in (self.path, name):
            return True
        if path[:-1] != params:
            return False
        return any(path[-1] in value.named_by for value in self.values)

    def clashes(self, other: Axis) -> bool:
        """Whether another axis would make this one's labels say something untrue; an axis over a
        parameter lies over that of its component.
        """
        params = (*other.path, "params")
        lies_over = other.is_component and self.path[:2] == params != self.path
        return not lies_over and self.owns(other.path)


def axis_path(key: str) -> KeyPath:
    """What an axis sets; `seed` is short for `train.seed`."""
    if key == "seed":
        return SEED
    return key_path(key)


def read_axes(matrix: Given, before: Sequence[Axis], resolve: Resolve) -> tuple[Axis, ...]:
    """The axes in the order written, those of `before` first and that of the seed last; an axis
    that is given again has other values.

    `resolve` finds the data sets' plugins, which may have labels for their parameters.

    Raises:
        ConfigError: not a mapping of keys to lists, or two axes set the same thing.
    """
    matrix.expect_filled(dict, MATRIX_WORDS)
    axes = {axis_path(axis.key): axis for axis in before}
    anew: set[KeyPath] = set()
    for key, given in matrix.items():
        path = axis_path(key)
        axis = _axis(axes.get(path) or _new_axis(key, given), given, resolve)
        for place, other in axes.items():
            if place == path and path not in anew:
                continue
            if axis.clashes(other) or other.clashes(axis):
                message = f"sets the same as the axis {other.key}"
                raise given.wrong(f"{message}; keep one of them")
        axes[path] = axis
        anew.add(path)
    if SEED in axes:
        axes[SEED] = axes.pop(SEED)
    return tuple(axes.values())


_OF_THE_STUDY = ("name", "format", *STUDY_KEYS)


def _cannot_be_set(path: KeyPath) -> bool:
    """Whether it is no key, or one that all runs have alike."""
    if "" in path:
        return True
    return path[0] in _OF_THE_STUDY


def _new_axis(key: str, place: Given) -> Axis:
    path = axis_path(key)
    if _cannot_be_set(path):
        message = "cannot be an axis; axes are components, seed, or settings such as train.lr"
        raise place.wrong(message)
    if path[0] not in Experiment.model_fields:
        for _, value in children(place.value):
            if isinstance(value, dict) and "set" in value:
                return Axis(key, ())
    return Axis(key, path)


def _axis(axis: Axis, place: Given, resolve: Resolve) -> Axis:
    """The axis with the values that are given at a place."""
    given = place.value
    if given == ALL and axis.known:
        return replace(axis, values=axis.known, former=())
    example = "0, 1"
    if given not in (None, [], {}):
        example = shown(given).strip("'")
    place.expect_filled(list, f"a list of values, as in [{example}]")
    values: list[Case] = []
    places: dict[str, KeyPath] = {}
    for entry in place.entries():
        value = _known_value(axis, entry)
        if value is None:
            value = _value(axis, entry, resolve)
        # folders of some file systems do not tell capitals apart
        first = places.setdefault(value.label.lower(), entry.path)
        if first != entry.path:
            message = f"has the label {value.label!r}, as {dotted(first)} has"
            raise entry.wrong(f"{message}; give one of them another label")
        values.append(value)
    labels = [value.label for value in values]
    former = [value for value in axis.known if value.label not in labels]
    return replace(axis, values=tuple(values), former=tuple(former))


def _known_value(axis: Axis, entry: Given) -> Case | None:
    """The value that the axis has had, where its label is given; None where it is a new one."""
    if isinstance(entry.value, dict):
        return None
    known = {value.label: value for value in axis.known}
    if isinstance(entry.value, str) and entry.value in known:
        return known[entry.value]
    if known and not axis.path:
        raise entry.wrong(unknown_label(entry.value, list(known)))
    return None


_FORMS = {
    "label": ("label", "set", "when"),
    "name": ("name", "params", "label", "when"),
    "value": ("value", "label", "when"),
}
"""The keys of a value, by what it is where no mapping is written."""


def _value(axis: Axis, place: Given, resolve: Resolve) -> Case:
    given = place.value
    if not isinstance(given, dict):
        given = {axis.form: given}
    label: Any = None
    named_by: tuple[str, ...] = ()
    settings: tuple[Setting, ...] = ()
    if axis.form == "name":
        component = _component(axis.key, given, place)
        label = plugin_label(component["name"])
        if axis.key == "dataset":
            label, named_by = dataset_label(component, label, resolve)
        settings = (Setting(axis.path, component, place.origin),)
    elif axis.form == "value":
        if "value" not in given:
            raise place.wrong("a mapping here must have a value, as in {value: 0.1, label: high}")
        value = given["value"]
        label = plain_label(axis.key, value)
        settings = (Setting(axis.path, value, place.origin),)
    elif given.get("set", {}) != {}:
        settings = read_settings(place.at("set"))
    place.refuse_unknown(*_FORMS[axis.form])
    label = checked_label(given.get("label", label), place)
    return Case(settings, place, label, named_by=named_by)


def _component(kind: str, given: Mapping[str, Any], place: Given) -> dict[str, Any]:
    place.expect(isinstance(given.get("name"), str), f"a {kind}'s name, or a mapping with its name")
    component = {"name": given["name"]}
    if "params" in given:
        params = place.at("params")
        params.expect_type(dict, "a mapping")
        component["params"] = params.value
    return component


def read_settings(place: Given) -> tuple[Setting, ...]:
    """What a case sets, each section (`train: {lr: 1}`) as settings of its keys."""
    place.expect_filled(dict, "a mapping of settings, as in {train.lr: 0.1}")
    settings: list[Setting] = []
    for key, given in place.items():
        path = key_path(key)
        if _cannot_be_set(path):
            raise given.wrong("cannot be set for some runs")
        settings.append(Setting(path, given.value, given.origin))
    return tuple(single(settings))


def refuse_owned(settings: Iterable[Setting], axes: Sequence[Axis], *, in_file: bool) -> None:
    """Refuse settings that an axis decides.

    Raises:
        ConfigError: the first of them.
    """
    for setting in settings:
        for axis in axes:
            if axis.owns(setting.path):
                message = f"cannot be set, as {axis.key} is an axis of this study"
                instead = f"give the axis, as in matrix.{axis.key}=[...]"
                if in_file:
                    instead = "leave it out here"
                raise setting.wrong(f"{message}; {instead}")


def read_when(place: Given, axes: Sequence[Axis]) -> tuple[When, ...]:
    """The conditions of a `when`: a mapping, or a list of them; none where nothing is given."""
    if isinstance(place.value, list):
        return tuple(_condition(entry, axes) for entry in place.entries())
    if place.value in (None, {}):
        return ()
    return (_condition(place, axes),)


def _condition(place: Given, axes: Sequence[Axis]) -> When:
    place.expect_type(dict, "a mapping of axes to values, as in {seed: 0}")
    by_path = {axis_path(axis.key): axis for axis in axes}
    found: dict[str, tuple[str, ...]] = {}
    for key, given in place.items():
        path = axis_path(key)
        if path not in by_path:
            hint = suggest_key(given.path, {place.path: tuple(axis.key for axis in axes)})
            raise given.wrong(f"no such axis{hint}")
        axis = by_path[path]
        found[axis.key] = _meant(axis, given)
    return found


def _meant(axis: Axis, given: Given) -> tuple[str, ...]:
    """The labels that one value, or a list of values, means."""
    wanted = [given.value]
    if isinstance(given.value, list) and not axis.meant(given.value):
        wanted = given.value
    if not wanted:
        raise given.wrong("is empty and means no run; give a value")
    labels: list[str] = []
    for value in wanted:
        meant = axis.meant(value)
        if not meant:
            known = [value.label for value in axis.known]
            hint = did_you_mean(str(value), known)
            message = f"got {shown(value)}, matches no run; there is {listed(known)}"
            raise given.wrong(f"{message}{hint}")
        labels += meant
    return tuple(labels)


def with_conditions(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """The axes, the `when` of each value read: it may name axes that are given later."""

    def conditioned(value: Case) -> Case:
        return replace(value, when=read_when(value.place.at("when"), axes))

    return tuple(
        replace(
            axis,
            values=tuple(map(conditioned, axis.values)),
            former=tuple(map(conditioned, axis.former)),
        )
        for axis in axes
    )
