"""The axes of a study: `matrix:` and the labels of its values."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from subquad.errors import ConfigError, UserError
from subquad.experiment.refusals import shown, suggest_key
from subquad.experiment.run import Resolve, parameters
from subquad.experiment.settings import (
    COMPONENTS,
    STUDY_KEYS,
    KeyPath,
    Marks,
    Origin,
    dotted,
    key_path,
    origin_of,
    problem,
)
from subquad.plugin import Config, DatasetPlugin
from subquad.registry.foreign import blamed

CASE = "case"
"""The axis of a study's labelled cases."""

ALL = "all"
"""In place of an axis' values: every one that it has had, also those that `select` leaves out."""

MATRIX_WORDS = "a mapping of keys to lists, as in seed: [0, 1]"
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LABEL_WORDS = "letters, digits, '.', '_' and '-', beginning with a letter or digit"


@dataclass(frozen=True)
class Choice:
    """One value of an axis.

    Attributes:
        value: what is set; for a component its name and params.
        label: its part of a run's label.
        origin: where it was given.
        named_by: the component's parameters that its plugin's label is made of.
    """

    value: Any
    label: str
    origin: Origin
    named_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Axis:
    """One dimension of a study.

    Attributes:
        key: as it is written: `mixer`, `seed`, `train.lr`.
        path: what it sets.
        choices: its values in order.
        former: values that it had in a file below, or before the command line gave others: a `when` may mean them.
    """

    key: str
    path: KeyPath
    choices: tuple[Choice, ...]
    former: tuple[Choice, ...] = ()

    @property
    def is_component(self) -> bool:
        return self.path[0] in COMPONENTS and len(self.path) == 1

    @property
    def known(self) -> tuple[Choice, ...]:
        return (*self.choices, *self.former)

    def meant(self, given: Any) -> list[str]:
        """Labels of the choices that a `when` means: the one with this label, else those with this plain value."""
        named = [choice.label for choice in self.known if choice.label == given]
        if named or self.is_component:
            return named
        return [choice.label for choice in self.known if _same(choice.value, given)]

    def owns(self, path: KeyPath) -> bool:
        """Whether setting `path` would make this axis' labels say something untrue."""
        if not self.is_component:
            shared = min(len(path), len(self.path))
            return path[:shared] == self.path[:shared]
        named_by = {(*self.path, "params", name) for one in self.choices for name in one.named_by}
        return path in (self.path, (*self.path, "name"), *named_by)


def _same(value: Any, given: Any) -> bool:
    """Whether two plain values are the same: 1 and 1.0 are, 1 and true are not."""
    numbers = all(type(number) in (int, float) for number in (value, given))
    return value == given and (numbers or type(value) is type(given))


def axis_path(key: str) -> KeyPath:
    """What an axis sets; `seed` is short for `train.seed`."""
    return ("train", "seed") if key == "seed" else key_path(key)


def parse_axes(matrix: Any, marks: Marks, before: Sequence[Axis] = (), *, resolve: Resolve) -> tuple[Axis, ...]:
    """The axes in the order written, those of `before` first; an axis that is given again has other values.

    `resolve` finds the data sets' plugins, which may have labels for their parameters.

    Raises:
        ConfigError: not a mapping of keys to lists, or two axes set the same thing.
    """
    path: KeyPath = ("matrix",)
    if not isinstance(matrix, dict) or not matrix:
        raise problem(path, f"got {shown(matrix)}, must be {MATRIX_WORDS}", marks)
    axes = list(before)
    given: list[Axis] = []
    for key, values in matrix.items():
        place = next((number for number, axis in enumerate(before) if axis.path == axis_path(key)), None)
        axis = _parse_axis(key, values, (*path, key), marks, None if place is None else before[place], resolve)
        others = given if place is not None else [*axes, *given]
        if twin := next((other for other in others if axis.owns(other.path) or other.owns(axis.path)), None):
            raise problem((*path, key), f"sets the same as the axis {twin.key}; keep one of them", marks)
        given.append(axis)
        if place is None:
            axes.append(axis)
        else:
            axes[place] = axis
    return tuple(axes)


def _parse_axis(key: str, values: Any, path: KeyPath, marks: Marks, before: Axis | None, resolve: Resolve) -> Axis:
    target = axis_path(key)
    if not all(part != "" for part in target) or target[0] in ("name", "format", *STUDY_KEYS):
        raise problem(path, "cannot be an axis; axes are components, seed, or settings such as train.lr", marks)
    known = {choice.label: choice for choice in before.known} if before else {}
    if values == ALL and before:
        values = list(known)
    if not isinstance(values, list) or not values:
        example = "0, 1" if values in (None, [], {}) else shown(values).strip("'")
        raise problem(path, f"got {shown(values)}, must be a list of values, as in [{example}]", marks)
    parse = partial(_component, resolve=resolve) if len(target) == 1 and key in COMPONENTS else _plain
    choices = tuple(
        known[value] if isinstance(value, str) and value in known else parse(key, value, (*path, number), marks)
        for number, value in enumerate(values)
    )
    _refuse_twins(choices, path, marks)
    labels = {choice.label for choice in choices}
    former = tuple(choice for label, choice in known.items() if label not in labels)
    return Axis(before.key if before else key, target, choices, former)


def _refuse_twins(choices: Sequence[Choice], path: KeyPath, marks: Marks) -> None:
    seen: dict[str, int] = {}
    for number, choice in enumerate(choices):
        if (first := seen.setdefault(choice.label.lower(), number)) != number:
            message = f"has the label {choice.label!r}, as {dotted((*path, first))} has"
            raise problem((*path, number), f"{message}; give one of them another label", marks)


def _component(key: str, value: Any, path: KeyPath, marks: Marks, *, resolve: Resolve) -> Choice:
    given = {"name": value} if isinstance(value, str) else value
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise problem(path, f"got {shown(value)}, must be a {key}'s name, or a mapping with its name", marks)
    _refuse_unknown(given, ("name", "params", "label"), path, marks)
    if not isinstance(given.get("params", {}), dict):
        raise problem((*path, "params"), f"got {shown(given['params'])}, must be a mapping", marks)
    component = {name: given[name] for name in ("name", "params") if name in given}
    own, named_by = _dataset_label(component, resolve) if key == "dataset" else ("", ())
    label = given.get("label", _safe(own) if own else plugin_label(component["name"]))
    return Choice(component, checked_label(label, path, marks), origin_of(path, marks), named_by)


def plugin_label(name: str) -> str:
    """What tables call a component that neither the user nor its plugin gave a label."""
    return _safe(name.rpartition(":")[2])


def _dataset_label(component: Mapping[str, Any], resolve: Resolve) -> tuple[str, tuple[str, ...]]:
    """What a plugin calls its data set ("" for the plugin's name), and the parameters given that this is made of.

    A plugin or parameters that cannot be used are refused later, when a run of them is checked.
    """
    params = component.get("params", {})
    try:
        resolved = resolve("dataset", component["name"])
        with blamed(f"{resolved.found} cannot check its parameters", passing=(ConfigError,)):
            config = parameters(resolved, params)
    except UserError:
        return "", ()
    assert isinstance(resolved.plugin, DatasetPlugin)
    with blamed(f"{resolved.found} cannot say its label"):
        label = resolved.plugin.label(config)
    return label, tuple(name for name in params if _changes(label, resolved.plugin, config, name))


def _changes(label: str, plugin: DatasetPlugin, config: Config, name: str) -> bool:
    """Whether a label is made of one of the parameters: with anything else in its place, it is another one or fails."""
    try:
        return plugin.label(config.model_copy(update={name: object()})) != label
    except Exception:
        return True


def _plain(key: str, value: Any, path: KeyPath, marks: Marks) -> Choice:
    label = None
    if isinstance(value, dict):
        _refuse_unknown(value, ("value", "label"), path, marks)
        if "value" not in value:
            raise problem(path, "a mapping here must have a value, as in {value: 0.1, label: high}", marks)
        value, label = value["value"], value.get("label")
    label = plain_label(key, value) if label is None else label
    return Choice(value, checked_label(label, path, marks), origin_of(path, marks))


def plain_label(key: str, value: Any) -> str:
    """The label of a value that is no component: `lr0.001`, `cosine`."""
    if isinstance(value, str):
        return _safe(value)
    last = key.rpartition(".")[2]
    return _safe(f"{last}-null" if value is None else f"{last}{json.dumps(value)}")


def _safe(text: str) -> str:
    """A label made of any text: only what every file system takes."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip("._-") or "value"


def checked_label(label: Any, path: KeyPath, marks: Marks) -> str:
    """The label, if it can be part of a folder's name."""
    if not isinstance(label, str) or not _LABEL.fullmatch(label):
        raise problem((*path, "label"), f"got {shown(label)}, must be text of {_LABEL_WORDS}", marks)
    return label


def _refuse_unknown(given: Mapping[str, Any], known: tuple[str, ...], path: KeyPath, marks: Marks) -> None:
    for key in given:
        if key not in known:
            raise problem((*path, key), f"unknown key{suggest_key((*path, key), {path: known})}", marks)
