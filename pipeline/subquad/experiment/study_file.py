"""What a study says: `extends`, `matrix`, `cases`, `baseline` and `match`, of files and the command
line.

A run's settings are laid over each other in this order: the files, the axes, the cases that apply,
the command line, and the values that say what they set.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from subquad.errors import ConfigError
from subquad.experiment.allowed import allowed
from subquad.experiment.axes import (
    MATRIX_WORDS,
    Axis,
    Case,
    Combination,
    read_axes,
    read_settings,
    read_when,
    refuse_owned,
    with_conditions,
)
from subquad.experiment.components import Resolve
from subquad.experiment.key_names import Known, known_keys
from subquad.experiment.labels import listed, plugin_label, unknown_label
from subquad.experiment.refusals import Given, refusal, top_of, validated
from subquad.experiment.schema import Component, Experiment
from subquad.experiment.settings import (
    COMPONENTS,
    STUDY_KEYS,
    KeyPath,
    Origin,
    Setting,
    Tree,
    dotted,
    get,
    is_given,
    mark_all,
    origin_of,
    overlay,
    problem,
    single,
)
from subquad.suggest import did_you_mean

PARAMETERS = "parameters"
"""What `match` can ask for: as many parameters for every mixer as the first one has."""

WIDTH: KeyPath = ("backbone", "params", "ffn_dim")
"""What is chosen for that."""

MAX_CASES = 1_000
MAX_LABEL = 200
MAX_RUNS = 10_000


@dataclass(frozen=True)
class StudyFile:
    """What a file or recipe says with its overrides, before any of its runs is checked.

    Attributes:
        base: the experiment without the study's own keys.
        axes: its axes.
        cases: settings laid over some runs, in order.
        last: what the command line sets.
        baseline: label of the control's mixer; "" where none is named.
        match: what all mixers have alike, `PARAMETERS` or "".
        origin: where the axes were given.
    """

    base: Tree
    axes: tuple[Axis, ...]
    cases: tuple[Case, ...]
    last: tuple[Case, ...]
    baseline: str
    match: str
    origin: Origin

    @cached_property
    def combinations(self) -> tuple[Combination, ...]:
        """The runs, in order; those that repeat another one are among them."""
        return tuple(_combinations(self.axes))

    def uses(self, case: Case) -> bool:
        """Whether it is for a run."""
        return any(map(case.holds, self.combinations))

    def labels(self) -> list[str]:
        """The label of each run: `agf-JapaneseVowels-seed0`.

        Raises:
            ConfigError: one is too long for a folder's name, or names two runs.
        """
        labels: dict[str, str] = {}
        for combination in self.combinations:
            label = "-".join(value.label for value in combination.values())
            count = len(label)
            if count > MAX_LABEL:
                message = f"a run's label has {count} characters, must be at most {MAX_LABEL}"
                raise self.wrong(f"{message}; give labels")
            if label.lower() in labels:
                message = f"two runs have the label {label}"
                raise self.wrong(f"{message}; give their values other labels")
            labels[label.lower()] = label
        return list(labels.values())

    def wrong(self, message: str) -> ConfigError:
        """The refusal of the study as a whole."""
        return problem(("matrix",), message, self.origin)

    def experiment_of(self, combination: Combination) -> Tree:
        """One run's experiment.

        Raises:
            ConfigError: a value would drop what the command line gives.
        """
        layer: list[Setting] = []
        for axis in self.axes:
            if axis.path:
                layer += combination[axis.key].settings
        tree = overlay(self.base, layer)
        for case in self.cases:
            if case.holds(combination):
                tree = overlay(tree, case.settings)
        last: list[Setting] = []
        for case in self.last:
            if case.holds(combination):
                tree = overlay(tree, case.settings)
                last += case.settings
        for axis in self.axes:
            if not axis.path:
                value = combination[axis.key]
                tree = overlay(tree, value.settings)
                for setting in last:
                    if not is_given(tree.data, setting.path):
                        why = f"is dropped by {value.label}, which replaces what is above it"
                        raise setting.wrong(f"{why}; leave one of them out")
        return tree


def _combinations(axes: Sequence[Axis]) -> Iterator[Combination]:
    """The product of the axes, the first slowest, as far as the `when` of every value holds."""
    keys = [axis.key for axis in axes]
    for values in itertools.product(*(axis.values for axis in axes)):
        combination = dict(zip(keys, values, strict=True))
        if all(value.holds(combination) for value in values):
            yield combination


def read_study(layers: Sequence[Tree], overrides: Sequence[Setting], resolve: Resolve) -> StudyFile:
    """Read a study's own keys (`STUDY_KEYS`) of a file, after those that it extends, and of the
    command line.

    Raises:
        ConfigError: what is wrong, with file, line and key.
    """
    layer, settings, of_values = _given_on_the_command_line(overrides)
    base = Tree({}, {})
    axes = tuple[Axis, ...]()
    cases: list[Given] = []
    baseline = match = _NOTHING
    for tree in (*layers, layer):
        top = top_of(tree)
        base = _extended(base, tree)
        if "matrix" in tree.data:
            axes = read_axes(top.at("matrix"), axes, resolve)
        if "cases" in tree.data:
            cases += _entries(top.at("cases"))
        if "baseline" in tree.data:
            baseline = top.at("baseline")
        if "match" in tree.data:
            match = top.at("match")
    axes = with_conditions(axes)
    last = [Case(tuple(single(settings)), _NOTHING)]
    last += [_of_value(setting, axes) for setting in of_values]
    study = StudyFile(
        base=base,
        axes=axes,
        cases=tuple(_case(place, axes) for place in cases),
        last=tuple(last),
        baseline=_baseline(baseline, axes, base),
        match=_match(match, axes),
        origin=origin_of(("matrix",), {**layers[-1].marks, **layer.marks}),
    )
    given = set[str]().union(*(tree.data for tree in layers))
    if axes or given.intersection(STUDY_KEYS[1:]):
        _refuse(study)
    return study


_NOTHING = Given(None, (), {})


def _extended(below: Tree, above: Tree) -> Tree:
    """The settings of a file over those of the file that it extends; each keeps the line where
    it was given.
    """
    layer = [
        Setting(given.path, given.value, given.origin)
        for key, given in top_of(above).items()
        if key not in STUDY_KEYS
    ]
    tree = overlay(below, layer)
    kept = {path: origin for path, origin in above.marks.items() if is_given(tree.data, path)}
    return Tree(tree.data, {**tree.marks, **kept})


_OF_ONE_VALUE = re.compile(rf"({'|'.join(COMPONENTS)})\.(.+)\.params(?:\.(.+))?")
"""`dataset.LABEL.params.NAME`: a parameter of one value of an axis; without a NAME all of them."""


def _given_on_the_command_line(
    overrides: Sequence[Setting],
) -> tuple[Tree, list[Setting], list[Setting]]:
    """What the command line says: a layer over the files, settings of every run, and those of one
    value of an axis.
    """
    data: dict[str, Any] = {}
    marks: dict[KeyPath, Origin] = {}
    settings: list[Setting] = []
    of_values: list[Setting] = []
    for setting in overrides:
        head, *rest = setting.path
        if head in ("extends", "cases"):
            raise setting.wrong("can only be given in a file")
        if head == "matrix" and rest and _OF_ONE_VALUE.fullmatch(str(rest[0])):
            of_values.append(setting)
        elif head in ("name", "format", *STUDY_KEYS):
            marks |= mark_all(setting.value, setting.path, setting.origin)
            value = setting.value
            if rest:
                value = {**data.get("matrix", {}), rest[0]: value}
            data[str(head)] = value
        else:
            settings.append(setting)
    return Tree(data, marks), settings, of_values


def _of_value(setting: Setting, axes: Sequence[Axis]) -> Case:
    """A parameter of one value of an axis, as a case for its runs: it comes after the file's
    cases, which may not undo it.
    """
    found = _OF_ONE_VALUE.fullmatch(str(setting.path[1]))
    assert found
    kind, label, name = found.groups()
    labels = [value.label for axis in axes if axis.key == kind for value in axis.values]
    if label not in labels:
        raise problem(("matrix", kind), unknown_label(label, labels), setting.origin)
    path: KeyPath = (kind, "params")
    if name:
        path += tuple(name.split("."))
    laid = Setting(path, setting.value, setting.origin)
    refuse_owned([laid], axes, in_file=False)
    place = Given(setting.value, setting.path, {(): setting.origin})
    return Case((laid,), place, when=({kind: (label,)},))


def _entries(cases: Given) -> list[Given]:
    cases.expect_type(list, "a list, as in [{when: {seed: 0}, set: {train.lr: 0.1}}]")
    count = len(cases.value)
    if count > MAX_CASES:
        raise cases.wrong(f"has {count:,} entries, must be at most {MAX_CASES:,}")
    return cases.entries()


def _case(place: Given, axes: Sequence[Axis]) -> Case:
    place.expect_type(dict, "a mapping with when and set")
    place.refuse_unknown("when", "set")
    return Case(read_settings(place.at("set")), place, when=read_when(place.at("when"), axes))


def _mixers(axes: Sequence[Axis]) -> Axis | None:
    """The axis of the mixers."""
    return next((axis for axis in axes if axis.key == "mixer"), None)


def _match(place: Given, axes: Sequence[Axis]) -> str:
    if place.value is None:
        return ""
    words = f"{PARAMETERS} or null"
    if place.value == "flops":
        words += "; with subquad tune there is also trial.match=flops"
    place.expect(place.value == PARAMETERS, words)
    if _mixers(axes) is None:
        raise place.wrong("needs mixers that are compared, as in matrix.mixer=[ONE, OTHER]")
    for axis in axes:
        if axis.owns(WIDTH):
            message = f"chooses {dotted(WIDTH)}, and {axis.key} is an axis of this study"
            raise place.wrong(f"{message}; leave one of them out")
    for axis in axes:
        changes = any(value.settings for value in axis.values)
        if changes and not axis.path:
            message = f"would change more than a label of the axis {axis.key} says"
            raise place.wrong(f"{message}; leave one of them out")
    return PARAMETERS


def _baseline(place: Given, axes: Sequence[Axis], base: Tree) -> str:
    """The label of the control's mixer; "" where none is named, or the command line took its
    runs away.
    """
    if place.value is None:
        return ""
    known: list[str] = []
    left: list[str] = []
    only = get(base.data, ("mixer", "name"))
    if axis := _mixers(axes):
        known = [value.label for value in axis.known]
        left = [value.label for value in axis.values]
    elif isinstance(only, str):
        known = left = [plugin_label(only)]
    there = f"there is {listed(known)}" if known else "there is none"
    hint = did_you_mean(str(place.value), known)
    place.expect(place.value in known, f"the label of a run's mixer; {there}{hint}")
    if place.value in left:
        return place.value
    return ""


def _refuse(study: StudyFile) -> None:
    """Refuse a study without runs, with too many, and settings or cases that have no effect in
    it.
    """
    if not study.axes:
        raise study.wrong(f"missing, must be {MATRIX_WORDS}")
    count = math.prod(len(axis.values) for axis in study.axes)
    if count > MAX_RUNS:
        sizes = " x ".join(f"{len(axis.values)} {axis.key}" for axis in study.axes)
        raise study.wrong(f"{sizes} makes {count:,} runs, must be at most {MAX_RUNS:,}")
    refuse_owned(study.last[0].settings, study.axes, in_file=False)
    cases: list[Case] = []
    for axis in study.axes:
        if not axis.path:
            cases += axis.known
    cases += filter(study.uses, study.cases)
    for case in cases:
        refuse_owned(case.settings, study.axes, in_file=True)
    base = top_of(study.base)
    # a component is one also where an axis stands above it
    for kind in COMPONENTS:
        if kind in study.base.data:
            component = base.at(kind)
            component.expect_type(dict, allowed(Experiment, component.path))
            _, faults = validated(Component, component.value, component.path, _known)
            if faults:
                raise refusal(faults, component.marks)
    if not study.combinations:
        raise study.wrong("has no run: no values stand beside each other, by their own `when`")
    _refuse_idle(study)


def _known() -> Known:
    return known_keys(Experiment)


def _refuse_idle(study: StudyFile) -> None:
    """Refuse cases that are for no run, also with the values that the command line took away."""
    known = [replace(axis, values=axis.known) for axis in study.axes]
    waiting = [case for case in study.cases if case.when]
    for combination in _combinations(known):
        waiting = [case for case in waiting if not case.holds(combination)]
        if not waiting:
            return
    if waiting:
        message = "matches no run, as values are for other runs by their own when"
        raise waiting[0].place.at("when").wrong(message)
