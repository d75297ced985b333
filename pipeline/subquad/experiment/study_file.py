"""What a study says: `matrix`, `select`, `cases`, `exclude`, `baseline` and `match`, of files and the command line.

A run's settings are laid over each other in this order: the files, the axes, the cases that apply, the command line,
and the labelled case that the run is of.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from subquad.experiment.axes import (
    CASE,
    MATRIX_WORDS,
    Axis,
    Choice,
    axis_path,
    checked_label,
    parse_axes,
    plugin_label,
)
from subquad.experiment.refusals import allowed, known_keys, refusal, shown, suggest_key, validated
from subquad.experiment.run import Resolve
from subquad.experiment.schema import Component, Experiment
from subquad.experiment.settings import (
    COMPONENTS,
    DEFAULT,
    STUDY_KEYS,
    KeyPath,
    Marks,
    Origin,
    Setting,
    Tree,
    dotted,
    get,
    key_path,
    mark_all,
    origin_of,
    overlay,
    problem,
    shown_key,
    single,
)
from subquad.runs import flatten
from subquad.suggest import did_you_mean

BASE = "base"
"""Label of a run of none of the labelled cases."""

PARAMETERS = "parameters"
"""What `match` can ask for: as many parameters for every mixer as the first one has."""

WIDTH: KeyPath = ("backbone", "params", "ffn_dim")
"""What is chosen for that."""

MAX_CASES = 1_000
MAX_LABEL = 200
MAX_RUNS = 10_000
_SEED: KeyPath = ("train", "seed")
_CASE_KEYS = ("label", "when", "set")

Combination = Mapping[str, Choice]
"""One choice of each axis, by its key."""


@dataclass(frozen=True)
class When:
    """Which runs are meant: all whose label on each of these axes is among the given ones.

    Attributes:
        labels: labels by axis key; an axis that is not named does not matter.
        path: where it is written.
        marks: the file's.
    """

    labels: dict[str, tuple[str, ...]]
    path: KeyPath
    marks: Marks

    def holds(self, combination: Combination) -> bool:
        return all(combination[key].label in labels for key, labels in self.labels.items())


@dataclass(frozen=True)
class StudyCase:
    """Settings for some runs; with a label, runs of their own beside them."""

    when: When
    settings: tuple[Setting, ...]
    label: str = ""

    @property
    def told(self) -> dict[str, Any]:
        """`{"mixer.params.order": 3}`, as a run's coordinates have it."""
        return flatten({dotted(one.path): one.value for one in self.settings})


@dataclass(frozen=True)
class StudyFile:
    """What a file or recipe says with its overrides, before any of its runs is checked.

    Attributes:
        base: the experiment without the study's own keys.
        axes: its axes; that of its labelled cases is among them.
        cases: settings laid over some runs, in order.
        exclude: runs that are left out.
        last: what the command line sets.
        baseline: label of the control's mixer; "" where none is named.
        match: what all mixers have alike, `PARAMETERS` or "".
        marks: where the axes were given.
    """

    base: Tree
    axes: tuple[Axis, ...]
    cases: tuple[StudyCase, ...]
    exclude: tuple[When, ...]
    last: tuple[StudyCase, ...]
    baseline: str
    match: str
    marks: Marks

    @cached_property
    def combinations(self) -> tuple[Combination, ...]:
        """The runs, in order; cases that change nothing are among them."""
        return tuple(_combinations(self.axes, self.exclude))

    def labels(self) -> list[str]:
        """The label of each run: `agf-JapaneseVowels-seed0`.

        Raises:
            ConfigError: one is too long for a folder's name, or names two runs.
        """
        labels = [_label_of(combination) for combination in self.combinations]
        seen: set[str] = set()
        for label in labels:
            if len(label) > MAX_LABEL:
                message = f"a run's label has {len(label)} characters, must be at most {MAX_LABEL}; give labels"
                raise problem(("matrix",), message, self.marks)
            if label.lower() in seen:
                message = f"two runs have the label {label}; give their values other labels"
                raise problem(("matrix",), message, self.marks)
            seen.add(label.lower())
        return labels

    def coordinates(self, combination: Combination) -> dict[str, Any]:
        """A run's choice on each axis: a component's label, else the value; under `case` what its case changes."""
        told: dict[str, Any] = {}
        for axis in self.axes:
            choice = combination[axis.key]
            told[axis.key] = choice.label if axis.is_component else choice.value
            if axis.key == CASE:
                told[CASE] = choice.value.told if choice.value else {}
        return told

    def base_label(self, combination: Combination) -> str | None:
        """Label of the run that one of a labelled case stands beside; None where there is none, or it is left out."""
        cases = _axis(self.axes, CASE)
        base = next((one for one in cases.choices if one.value is None), None) if cases else None
        return _label_of({**combination, CASE: base}) if base and combination[CASE].value is not None else None

    def experiment_of(self, combination: Combination) -> Tree:
        """One run's experiment.

        Raises:
            ConfigError: its case would drop what the command line gives.
        """
        chosen = [(axis, combination[axis.key]) for axis in self.axes if axis.key != CASE]
        tree = overlay(self.base, [Setting(axis.path, one.value, one.origin) for axis, one in chosen])
        for case in (*self.cases, *self.last):
            if case.when.holds(combination):
                tree = overlay(tree, case.settings)
        labelled = combination[CASE].value if CASE in combination else None
        if labelled is None:
            return tree
        tree = overlay(tree, labelled.settings)
        _refuse_dropped(tree, labelled, [case for case in self.last if case.when.holds(combination)])
        return tree


def _axis(axes: Sequence[Axis], key: str) -> Axis | None:
    return next((axis for axis in axes if axis.key == key), None)


def _label_of(combination: Combination) -> str:
    return "-".join(choice.label for choice in combination.values())


def read_study(layers: Sequence[Tree], overrides: Sequence[Setting], resolve: Resolve) -> StudyFile:
    """Read a study's own keys (`STUDY_KEYS`) of a file, after those that it extends, and of the command line.

    Raises:
        ConfigError: what is wrong, with file, line and key.
    """
    base, axes = Tree({}, {}), tuple[Axis, ...]()
    for tree in layers:
        below = {key: value for key, value in base.data.items() if key != "name"}
        above = {key: value for key, value in tree.data.items() if key not in STUDY_KEYS}
        base = _extended(Tree(below, base.marks), Tree(above, tree.marks))
        if "matrix" in tree.data:
            axes = parse_axes(tree.data["matrix"], tree.marks, axes, resolve=resolve)
        axes = _selected(axes, tree.data.get("select", {}), tree.marks)
    own, axes, scoped, marks = _overridden(overrides, axes, layers[-1].marks, resolve)
    example = "when: {seed: 0}, set: {train.lr: 0.1}"
    cases = [_case(item, axes, path, tree.marks) for tree, path, item in _items(layers, "cases", example)]
    _refuse_same_labels(cases)
    axes = _with_cases(axes, [case for case in cases if case.label], marks)
    exclude = [_when(item, axes, path, tree.marks) for tree, path, item in _items(layers, "exclude", "seed: 0")]
    axes, exclude = _without_idle_cases(axes, exclude)
    everywhere = tuple(one for one in own if one.path[0] not in ("name", "format"))
    study = StudyFile(
        base=overlay(base, [one for one in own if one not in everywhere]),
        axes=axes,
        cases=tuple(case for case in cases if not case.label),
        exclude=tuple(exclude),
        last=(*([StudyCase(When({}, (), {}), everywhere)] if everywhere else []), *scoped),
        baseline=_baseline(_given_last("baseline", layers, overrides), axes, base),
        match=_match(_given_last("match", layers, overrides), axes),
        marks=marks,
    )
    if axes or any(key in tree.data for tree in layers for key in STUDY_KEYS[1:]):
        _refuse(study, cases, own)
    return study


def _extended(below: Tree, above: Tree) -> Tree:
    """The settings of a file over those of the file that it extends; each keeps the line where it was given."""
    tree = overlay(below, [Setting((key,), one, origin_of((key,), above.marks)) for key, one in above.data.items()])
    marks = {
        **tree.marks,
        **{path: origin for path, origin in above.marks.items() if get(tree.data, path, DEFAULT) is not DEFAULT},
    }
    return Tree(tree.data, marks)


def _overridden(
    overrides: Sequence[Setting], axes: tuple[Axis, ...], marks: Marks, resolve: Resolve
) -> tuple[list[Setting], tuple[Axis, ...], list[StudyCase], Marks]:
    """The overrides that are settings, the axes with those that the command line gives, and settings of one choice."""
    own, deferred = list[Setting](), list[Setting]()
    for setting in overrides:
        head = setting.path[0]
        if head in ("extends", "select", "cases", "exclude"):
            raise problem(setting.path, "can only be given in a file", {(): setting.origin})
        if head == "matrix" and _choice_of(setting, axes):
            deferred.append(setting)
        elif head == "matrix":
            given = {setting.path[1]: setting.value} if len(setting.path) > 1 else setting.value
            layer = mark_all(setting.value, setting.path, setting.origin)
            axes = parse_axes(given, layer, axes, resolve=resolve)
            marks = {path: one for path, one in marks.items() if path[:2] not in layer} | layer
        elif head not in ("baseline", "match"):
            own.append(setting)
    return single(own), axes, [_scoped(setting, axes) for setting in deferred], marks


def _choice_of(setting: Setting, axes: Sequence[Axis]) -> tuple[Axis, str, str] | None:
    """The axis, label and parameter of `matrix.dataset.LABEL.params.NAME`; None where the setting is something else.

    Without a NAME all parameters are meant.
    """
    kind, _, rest = str(setting.path[-1]).partition(".")
    label, params, name = f"{rest}.".rpartition(".params.")
    axis = _axis(axes, kind)
    return (axis, label, name) if axis and axis.is_component and params and len(setting.path) == 2 else None


def _scoped(setting: Setting, axes: Sequence[Axis]) -> StudyCase:
    """A parameter of one choice, as a case for its runs: it comes after the file's cases, which may not undo it."""
    found = _choice_of(setting, axes)
    assert found
    axis, label, name = found
    labels = [choice.label for choice in axis.choices]
    if label not in labels:
        hint = did_you_mean(label, labels) or f"; there is {', '.join(map(shown_key, labels[:10]))}"
        raise problem(("matrix", axis.key, label), f"no value of the axis has this label{hint}", {(): setting.origin})
    one = Setting((axis.key, "params", *name.split(".")[:-1]), setting.value, setting.origin)
    _refuse_owned(one, axes, None)
    return StudyCase(When({axis.key: (label,)}, setting.path, {(): setting.origin}), (one,))


def _with_cases(axes: Sequence[Axis], cases: Sequence[StudyCase], marks: Marks) -> tuple[Axis, ...]:
    """The axes with that of the labelled cases, the base first; before the seed's where that is the last one."""
    asked = _axis(axes, CASE)
    others = [axis for axis in axes if axis.key != CASE]
    if not cases:
        if asked:
            raise problem(("matrix", CASE), "no case of this study has a label", marks)
        return tuple(others)
    base = Choice(None, BASE, Origin(""))
    choices = {
        BASE: base,
        **{case.label: Choice(case, case.label, origin_of(case.when.path[:2], case.when.marks)) for case in cases},
    }
    for number, choice in enumerate(asked.choices if asked else ()):
        if choice.label not in choices or choice.value != choice.label:
            hint = did_you_mean(choice.label, choices) or f"; there is {', '.join(list(choices)[:10])}"
            raise problem(("matrix", CASE, number), f"no case has the label {shown(choice.value)}{hint}", marks)
    labels = {one.label for one in asked.choices} if asked else set(choices)
    chosen = [choice for label, choice in choices.items() if label in labels]
    former = [one for one in choices.values() if one not in chosen]
    place = len(others) - (1 if others and others[-1].path == _SEED else 0)
    return (*others[:place], Axis(CASE, (CASE,), tuple(chosen), tuple(former)), *others[place:])


def _without_idle_cases(axes: tuple[Axis, ...], exclude: list[When]) -> tuple[tuple[Axis, ...], list[When]]:
    """Without the axis of labelled cases, where none of them is asked for: the study is as if it had none."""
    cases = _axis(axes, CASE)
    if cases is None or [choice.label for choice in cases.choices] != [BASE]:
        return axes, exclude
    others = list[When]()
    for when in exclude:
        labels = dict(when.labels)
        if BASE in labels.pop(CASE, (BASE,)):
            others.append(replace(when, labels=labels))
    return tuple(axis for axis in axes if axis is not cases), others


def _items(layers: Sequence[Tree], key: str, example: str) -> list[tuple[Tree, KeyPath, Any]]:
    """The entries of a list of all files, with the file and the place of each."""
    found: list[tuple[Tree, KeyPath, Any]] = []
    for tree in layers:
        items = tree.data.get(key, [])
        if not isinstance(items, list):
            raise problem((key,), f"got {shown(items)}, must be a list, as in [{{{example}}}]", tree.marks)
        found += [(tree, (key, number), item) for number, item in enumerate(items)]
        if len(found) > MAX_CASES:
            raise problem((key,), f"has {len(found):,} entries, must be at most {MAX_CASES:,}", tree.marks)
    return found


def _case(item: Any, axes: Sequence[Axis], path: KeyPath, marks: Marks) -> StudyCase:
    if not isinstance(item, dict):
        raise problem(path, f"got {shown(item)}, must be a mapping with when and set", marks)
    for key in item:
        if key not in _CASE_KEYS:
            raise problem((*path, key), f"unknown key{suggest_key((*path, key), {path: _CASE_KEYS})}", marks)
    settings = item.get("set")
    if not isinstance(settings, dict) or not settings:
        example = "must be a mapping of settings, as in {train.lr: 0.1}"
        raise problem((*path, "set"), f"got {shown(settings)}, {example}", marks)
    others = [axis for axis in axes if axis.key != CASE]
    when = _when(item.get("when", {}), others, (*path, "when"), marks)
    written = single([_setting(key, value, (*path, "set", key), marks) for key, value in settings.items()])
    for setting in written:
        _refuse_owned(setting, others, marks)
    return StudyCase(when, tuple(written), checked_label(item["label"], path, marks) if "label" in item else "")


def _refuse_same_labels(cases: Sequence[StudyCase]) -> None:
    seen = {BASE}
    for case in cases:
        if case.label and case.label.lower() in seen:
            message = f"got {case.label!r}, which another case has, or the runs of none; give another one"
            raise problem((*case.when.path[:2], "label"), message, case.when.marks)
        seen.add(case.label.lower())


def _setting(key: str, value: Any, path: KeyPath, marks: Marks) -> Setting:
    target = key_path(key)
    if "" in target or target[0] in ("name", "format", *STUDY_KEYS):
        raise problem(path, "cannot be set for some runs", marks)
    return Setting(target, value, origin_of(path, marks))


def _refuse_owned(setting: Setting, axes: Sequence[Axis], marks: Marks | None) -> None:
    for axis in axes:
        if axis.owns(setting.path):
            advice = "leave it out here" if marks else f"give the axis, as in matrix.{axis.key}=[...]"
            message = f"cannot be set, as {axis.key} is an axis of this study; {advice}"
            raise problem(setting.path, message, {(): setting.origin})


def _when(item: Any, axes: Sequence[Axis], path: KeyPath, marks: Marks) -> When:
    if not isinstance(item, dict):
        raise problem(path, f"got {shown(item)}, must be a mapping of axes to values, as in {{seed: 0}}", marks)
    labels: dict[str, tuple[str, ...]] = {}
    for key, given in item.items():
        axis = next((axis for axis in axes if axis.path == axis_path(key)), None)
        if axis is None:
            hint = suggest_key((*path, key), {path: tuple(axis.key for axis in axes)})
            raise problem((*path, key), f"no such axis{hint}", marks)
        wanted = given if isinstance(given, list) and not axis.meant(given) else [given]
        found = [_labels(axis, value, (*path, key), marks) for value in wanted]
        labels[axis.key] = tuple(label for some in found for label in some)
        if not wanted:
            raise problem((*path, key), "is empty and means no run; give a value", marks)
    return When(labels, path, marks)


def _labels(axis: Axis, value: Any, path: KeyPath, marks: Marks) -> list[str]:
    found = axis.meant(value)
    if not found:
        there = ", ".join(shown_key(choice.label) for choice in axis.known[:10])
        raise problem(path, f"got {shown(value)}, matches no run; there is {there}", marks)
    return found


def _selected(axes: tuple[Axis, ...], select: Any, marks: Marks) -> tuple[Axis, ...]:
    """The axes with the values that a file trains unless others are asked for."""
    path: KeyPath = ("select",)
    if not isinstance(select, dict):
        raise problem(path, f"got {shown(select)}, must be a mapping of axes to labels, as in mixer: [LABEL]", marks)
    when = _when(select, axes, path, marks) if select else When({}, path, marks)
    found = list[Axis]()
    for axis in axes:
        labels = when.labels.get(axis.key, tuple(one.label for one in axis.choices))
        chosen = tuple(one for label in dict.fromkeys(labels) for one in axis.known if one.label == label)
        found.append(replace(axis, choices=chosen, former=tuple(one for one in axis.known if one not in chosen)))
    return tuple(found)


def _given_last(key: str, layers: Sequence[Tree], overrides: Sequence[Setting]) -> tuple[Any, Marks]:
    """What the command line, else the last file that names it, says of a key; None where nobody does."""
    said = [(tree.data[key], tree.marks) for tree in layers if key in tree.data]
    said += [(one.value, {(): one.origin}) for one in overrides if one.path == (key,)]
    value, marks = said[-1] if said else (None, {})
    return (None if value == DEFAULT else value), marks


def _match(given: tuple[Any, Marks], axes: Sequence[Axis]) -> str:
    value, marks = given
    if value is None:
        return ""
    if value != PARAMETERS:
        also = f"; with subquad tune there is also --match {value}" if value in ("flops", "time") else ""
        raise problem(("match",), f"got {shown(value)}, must be {PARAMETERS} or null{also}", marks)
    if _axis(axes, "mixer") is None:
        raise problem(("match",), "needs mixers that are compared, as in matrix.mixer=[ONE, OTHER]", marks)
    if owner := next((axis for axis in axes if axis.owns(WIDTH)), None):
        message = f"chooses {dotted(WIDTH)}, and {owner.key} is an axis of this study; leave one of them out"
        raise problem(("match",), message, marks)
    if (cases := _axis(axes, CASE)) and any(one.value is not None for one in cases.choices):
        message = "would change more than a case with a label says; use matrix.case=[base], or null here"
        raise problem(("match",), message, marks)
    return PARAMETERS


def _baseline(given: tuple[Any, Marks], axes: Sequence[Axis], base: Tree) -> str:
    """The label of the control's mixer; "" where none is named, or the command line took its runs away."""
    label, marks = given
    if label is None:
        return ""
    axis, only = _axis(axes, "mixer"), get(base.data, ("mixer", "name"))
    known = [plugin_label(only)] if isinstance(only, str) else []
    known = [choice.label for choice in axis.known] if axis else known
    if label not in known:
        there = f"there is {', '.join(map(shown_key, known[:10]))}" if known else "there is none"
        raise problem(("baseline",), f"got {shown(label)}, must be the label of a run's mixer; {there}", marks)
    return label if axis is None or any(choice.label == label for choice in axis.choices) else ""


def _combinations(axes: Sequence[Axis], exclude: Sequence[When]) -> Iterator[Combination]:
    """The product of the axes, the first slowest, without what is excluded and what a labelled case does not mean."""
    keys = [axis.key for axis in axes]
    for choices in itertools.product(*(axis.choices for axis in axes)):
        combination = dict(zip(keys, choices, strict=True))
        case = combination[CASE].value if CASE in combination else None
        if (case is None or case.when.holds(combination)) and not any(when.holds(combination) for when in exclude):
            yield combination


def _refuse(study: StudyFile, cases: Sequence[StudyCase], own: Sequence[Setting]) -> None:
    """Refuse a study without runs, with too many, and settings or cases that have no effect in it."""
    if not study.axes:
        raise problem(("matrix",), f"missing, must be {MATRIX_WORDS}", study.marks)
    count = math.prod(len(axis.choices) for axis in study.axes)
    if count > MAX_RUNS:
        sizes = " x ".join(f"{len(axis.choices)} {axis.key}" for axis in study.axes)
        raise problem(("matrix",), f"{sizes} makes {count:,} runs, must be at most {MAX_RUNS:,}", study.marks)
    for when in study.exclude:
        if not when.labels:
            raise problem(when.path, "is empty and leaves no run; name an axis", when.marks)
    for setting in own:
        _refuse_owned(setting, [axis for axis in study.axes if axis.key != CASE], None)
    for kind in COMPONENTS:
        if kind in study.base.data:
            _refuse_malformed(kind, study.base)
    _refuse_idle(study, cases)


def _refuse_malformed(kind: str, base: Tree) -> None:
    """Refuse a component that is none, though an axis stands above it."""
    value = base.data[kind]
    if not isinstance(value, dict):
        raise problem((kind,), f"got {shown(value)}, must be {allowed(Experiment, (kind,))}", base.marks)
    _, faults = validated(Component, value, (kind,), base.marks, lambda: known_keys(Experiment))
    if faults:
        raise refusal(faults, base.marks)


def _refuse_idle(study: StudyFile, cases: Sequence[StudyCase]) -> None:
    """Refuse a study without runs, and a case for runs that are all excluded."""
    known = [replace(axis, choices=axis.known) for axis in study.axes]
    left = list(_combinations(known, study.exclude))
    if not study.combinations or not left:
        marks = study.exclude[-1].marks if study.exclude else study.marks
        raise problem(("exclude",), "leaves no run", marks)
    for case in cases:
        if not any(case.when.holds(combination) for combination in left):
            names = (f"{dotted((key,))} {' or '.join(labels)}" for key, labels in case.when.labels.items())
            message = f"matches no run, as exclude leaves out all of {', '.join(names)}"
            raise problem(case.when.path, message, case.when.marks)


def _refuse_dropped(tree: Tree, case: StudyCase, last: Sequence[StudyCase]) -> None:
    """Refuse a labelled case that takes away what the command line gave."""
    for setting in (one for given in last for one in given.settings):
        if get(tree.data, setting.path, DEFAULT) is DEFAULT and setting.value != DEFAULT:
            message = f"is dropped by the case {case.label}, which replaces what is above it; leave one of them out"
            raise problem(setting.path, message, {(): setting.origin})
