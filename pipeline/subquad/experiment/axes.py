"""The axes of a study, and cases: labelled settings, settings for some runs.

An axis is a list of labelled settings. Every run takes one of each axis.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from subquad.effect import same
from subquad.errors import UserError
from subquad.experiment.components import Resolve, parameters
from subquad.experiment.key_names import suggest_key
from subquad.experiment.refusals import Given, shown
from subquad.experiment.schema import Experiment
from subquad.experiment.settings import (
    COMPONENTS,
    STUDY_KEYS,
    KeyPath,
    Setting,
    dotted,
    key_path,
    shown_key,
    single,
)
from subquad.plugin import DatasetPlugin
from subquad.registry.faults import blamed
from subquad.runs import flatten
from subquad.suggest import did_you_mean

ALL = "all"
"""In place of an axis' values: every one that it has had, also in files below."""

SEED: KeyPath = ("train", "seed")
MATRIX_WORDS = "a mapping of keys to lists, as in seed: [0, 1]"
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LABEL_WORDS = "text of letters, digits, '.', '_' and '-', beginning with a letter or digit"


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
    when: tuple[Mapping[str, tuple[str, ...]], ...] = ()
    named_by: tuple[str, ...] = ()

    @property
    def sets(self) -> dict[str, Any]:
        """What it sets, flat: `{"mixer.params.order": 3}`."""
        return flatten({dotted(setting.path): setting.value for setting in self.settings})

    def holds(self, combination: Combination) -> bool:
        """Whether it is for the run that has these values of the axes."""
        return not self.when or any(_all_hold(labels, combination) for labels in self.when)


Combination = Mapping[str, Case]
"""One value of each axis, by its key."""


def _all_hold(labels: Mapping[str, tuple[str, ...]], combination: Combination) -> bool:
    return all(combination[key].label in wanted for key, wanted in labels.items())


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
        return self.path[:1] == self.path and self.key in COMPONENTS

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
        named = [value.label for value in self.known if value.label == given]
        if named or self.is_component or not self.path:
            return named
        return [value.label for value in self.known if same(value.settings[0].value, given)]

    def owns(self, path: KeyPath) -> bool:
        """Whether setting `path` would make this axis' labels say something untrue."""
        if self.is_component:
            named = {name for value in self.values for name in value.named_by}
            is_named = path[:-1] == (*self.path, "params") and path[-1] in named
            return is_named or path in (self.path, (*self.path, "name"))
        shared = min(len(path), len(self.path))
        return shared > 0 and path[:shared] == self.path[:shared]


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
    matrix.expect(isinstance(matrix.value, dict) and matrix.value != {}, MATRIX_WORDS)
    axes = {axis_path(axis.key): axis for axis in before}
    anew: set[KeyPath] = set()
    for key in matrix.value:
        given = matrix.at(key)
        path = axis_path(key)
        axis = _axis(axes.get(path) or _new_axis(key, given), given, resolve)
        for place, other in axes.items():
            is_same = place == path and path not in anew
            if not is_same and (axis.owns(other.path) or other.owns(axis.path)):
                raise given.wrong(f"sets the same as the axis {other.key}; keep one of them")
        axes[path] = axis
        anew.add(path)
    return tuple(sorted(axes.values(), key=lambda axis: axis.path == SEED))


def _new_axis(key: str, place: Given) -> Axis:
    path = axis_path(key)
    if "" in path or path[0] in ("name", "format", *STUDY_KEYS):
        message = "cannot be an axis; axes are components, seed, or settings such as train.lr"
        raise place.wrong(message)
    values = place.value if isinstance(place.value, list) else []
    sets = any(isinstance(value, dict) and "set" in value for value in values)
    return Axis(key, () if sets and path[0] not in Experiment.model_fields else path)


def _axis(axis: Axis, place: Given, resolve: Resolve) -> Axis:
    """The axis with the values that are given at a place."""
    known = {value.label: value for value in axis.known}
    if place.value == ALL and known:
        return replace(axis, values=axis.known, former=())
    if not isinstance(place.value, list) or not place.value:
        example = "0, 1" if place.value in (None, [], {}) else shown(place.value).strip("'")
        place.expect(False, f"a list of values, as in [{example}]")
    values: dict[str, Case] = {}
    for entry in place.entries():
        value = known.get(entry.value) if isinstance(entry.value, str) else None
        if value is None and known and not axis.path and not isinstance(entry.value, dict):
            raise entry.wrong(unknown_label(entry.value, known))
        value = value or _value(axis, entry, resolve)
        twin = next((label for label in values if label.lower() == value.label.lower()), None)
        if twin is not None:
            first = dotted((*place.path, list(values).index(twin)))
            message = f"has the label {value.label!r}, as {first} has"
            raise entry.wrong(f"{message}; give one of them another label")
        values[value.label] = value
    former = tuple(value for label, value in known.items() if label not in values)
    return Axis(axis.key, axis.path, tuple(values.values()), former)


def unknown_label(label: Any, known: Iterable[str]) -> str:
    """What is said of a label that no value of an axis has."""
    labels = list(known)
    hint = did_you_mean(str(label), labels) or f"; there is {listed(labels)}"
    return f"no value of the axis has the label {shown(label)}{hint}"


def listed(labels: Sequence[str]) -> str:
    return ", ".join(map(shown_key, labels[:10]))


_FORMS = {
    "label": ("label", "set", "when"),
    "name": ("name", "params", "label", "when"),
    "value": ("value", "label", "when"),
}
"""The keys of a value, by what it is where no mapping is written."""


def _value(axis: Axis, place: Given, resolve: Resolve) -> Case:
    form = "name" if axis.is_component else "value" if axis.path else "label"
    given = place.value if isinstance(place.value, dict) else {form: place.value}
    label: Any = None
    named_by: tuple[str, ...] = ()
    settings: tuple[Setting, ...] = ()
    if form == "name":
        component = _component(axis.key, given, place)
        label = plugin_label(component["name"])
        if axis.key == "dataset":
            label, named_by = _dataset_label(component, label, resolve)
        settings = (Setting(axis.path, component, place.origin),)
    elif form == "value":
        if "value" not in given:
            message = "a mapping here must have a value, as in {value: 0.1, label: high}"
            raise place.wrong(message)
        label = plain_label(axis.key, given["value"])
        settings = (Setting(axis.path, given["value"], place.origin),)
    elif given.get("set", {}) != {}:
        settings = read_settings(place.at("set"))
    place.refuse_unknown(*_FORMS[form])
    label = given.get("label", label)
    is_label = isinstance(label, str) and _LABEL.fullmatch(label) is not None
    Given(label, (*place.path, "label"), place.marks).expect(is_label, _LABEL_WORDS)
    return Case(settings, place, str(label), named_by=named_by)


def _component(kind: str, given: Mapping[str, Any], place: Given) -> dict[str, Any]:
    place.expect(isinstance(given.get("name"), str), f"a {kind}'s name, or a mapping with its name")
    if "params" in given:
        place.at("params").expect(isinstance(given["params"], dict), "a mapping")
    return {key: given[key] for key in ("name", "params") if key in given}


def _dataset_label(
    component: Mapping[str, Any], default: str, resolve: Resolve
) -> tuple[str, tuple[str, ...]]:
    """What tables call a data set that the user gave no label, and the parameters given that this
    is made of.

    One whose parameters cannot be used is refused later, when a run of it is checked.
    """
    params = component.get("params", {})
    try:
        resolved = resolve("dataset", component["name"])
        with blamed(f"{resolved.found} cannot check its parameters", passing=(UserError,)):
            config = parameters(resolved, params)
    except UserError:
        return default, ()
    assert isinstance(resolved.plugin, DatasetPlugin)
    with blamed(f"{resolved.found} cannot say its label"):
        own = resolved.plugin.label(config)
    named_by = tuple(name for name in resolved.plugin.named_by if name in params)
    return _safe(own) if own else default, named_by


def plugin_label(name: str) -> str:
    """What tables call a component that neither the user nor its plugin gave a label."""
    return _safe(name.rpartition(":")[2])


def plain_label(key: str, value: Any) -> str:
    """The label of a value that is no component: `lr0.001`, `cosine`."""
    if isinstance(value, str):
        return _safe(value)
    last = key.rpartition(".")[2]
    return _safe(f"{last}-null" if value is None else f"{last}{json.dumps(value)}")


def _safe(text: str) -> str:
    """A label made of any text: only what every file system takes."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip("._-") or "value"


def read_settings(place: Given) -> tuple[Setting, ...]:
    """What a case sets, each section (`train: {lr: 1}`) as settings of its keys."""
    is_mapping = isinstance(place.value, dict) and place.value != {}
    place.expect(is_mapping, "a mapping of settings, as in {train.lr: 0.1}")
    settings: list[Setting] = []
    for key, value in place.value.items():
        path = key_path(key)
        if "" in path or path[0] in ("name", "format", *STUDY_KEYS):
            raise place.at(key).wrong("cannot be set for some runs")
        settings.append(Setting(path, value, place.at(key).origin))
    return tuple(single(settings))


def refuse_owned(settings: Iterable[Setting], axes: Sequence[Axis], *, in_file: bool) -> None:
    """Refuse settings that an axis decides.

    Raises:
        ConfigError: the first of them.
    """
    for setting in settings:
        if axis := next((axis for axis in axes if axis.owns(setting.path)), None):
            anew = f"give the axis, as in matrix.{axis.key}=[...]"
            message = f"cannot be set, as {axis.key} is an axis of this study"
            place = Given(setting.value, setting.path, {(): setting.origin})
            raise place.wrong(f"{message}; {'leave it out here' if in_file else anew}")


def read_when(place: Given, axes: Sequence[Axis]) -> tuple[Mapping[str, tuple[str, ...]], ...]:
    """The conditions of a `when`: a mapping, or a list of them; none where nothing is given."""
    if isinstance(place.value, list):
        return tuple(_condition(entry, axes) for entry in place.entries())
    if place.value not in (None, {}):
        return (_condition(place, axes),)
    return ()


def _condition(place: Given, axes: Sequence[Axis]) -> dict[str, tuple[str, ...]]:
    place.expect(isinstance(place.value, dict), "a mapping of axes to values, as in {seed: 0}")
    labels: dict[str, tuple[str, ...]] = {}
    for key, given in place.value.items():
        at = place.at(key)
        axis = next((axis for axis in axes if axis_path(axis.key) == axis_path(key)), None)
        if axis is None:
            hint = suggest_key(at.path, {place.path: tuple(axis.key for axis in axes)})
            raise at.wrong(f"no such axis{hint}")
        wanted = given if isinstance(given, list) and not axis.meant(given) else [given]
        if not wanted:
            raise at.wrong("is empty and means no run; give a value")
        labels[axis.key] = tuple(label for item in wanted for label in _meant(axis, item, at))
    return labels


def _meant(axis: Axis, value: Any, place: Given) -> list[str]:
    found = axis.meant(value)
    if not found:
        labels = [known.label for known in axis.known]
        hint = did_you_mean(str(value), labels)
        raise place.wrong(f"got {shown(value)}, matches no run; there is {listed(labels)}{hint}")
    return found


def with_conditions(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """The axes, the `when` of each value read: it may name axes that are given later."""

    def conditioned(values: tuple[Case, ...]) -> tuple[Case, ...]:
        return tuple(
            replace(value, when=read_when(value.place.at("when"), axes)) for value in values
        )

    return tuple(
        replace(axis, values=conditioned(axis.values), former=conditioned(axis.former))
        for axis in axes
    )
