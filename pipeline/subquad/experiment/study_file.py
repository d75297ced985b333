"""Read a study file: `matrix`, `vary`, `cases` and `exclude`, with the overrides that concern them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from subquad.experiment.axes import MATRIX_WORDS, MAX_CELLS, Axis, axis_path, parse_axes
from subquad.experiment.choice_params import choice_params
from subquad.experiment.refusals import allowed, known_keys, refusal, shown, suggest_key, validated
from subquad.experiment.schema import Component, Experiment
from subquad.experiment.settings import (
    COMPONENTS,
    KeyPath,
    Marks,
    Origin,
    Setting,
    Tree,
    dotted,
    mark_all,
    origin_of,
    overlay,
    problem,
    shown_key,
    single,
)
from subquad.experiment.study import Case, Study, When, combinations
from subquad.experiment.vary import VARY, parse_vary
from subquad.experiment.vary import WORDS as VARY_WORDS

STUDY_KEYS = ("matrix", VARY, "cases", "exclude", "scales")
_REPLACEABLE = ("matrix", VARY)
"""Study keys that the command line may give."""
MAX_CASES = 1_000


def parse_study(tree: Tree, overrides: Sequence[Setting], scale_axes: Sequence[Setting] = ()) -> Study:
    """Read `matrix`, `vary`, `cases` and `exclude`, and the overrides that belong to them.

    Args:
        tree: the file at its scale.
        overrides: from the command line.
        scale_axes: axes that the scale gives anew, over those of the file.

    Raises:
        ConfigError: what is wrong, with file, line and key.
    """
    base = Tree({key: value for key, value in tree.data.items() if key not in STUDY_KEYS}, tree.marks)
    declared = parse_axes(tree.data["matrix"], tree.marks) if "matrix" in tree.data else ()
    scaled = _matrix(tree, scale_axes)
    if scale_axes:
        declared = _together(declared, parse_axes(scaled.data["matrix"], scaled.marks))
    replaced = _matrix(scaled, [setting for setting in overrides if setting.path[0] == "matrix"])
    varied_tree = _vary(tree, [setting for setting in overrides if setting.path[0] == VARY])
    if "matrix" not in replaced.data and VARY not in varied_tree.data:
        raise problem(("matrix",), f"missing, must be {MATRIX_WORDS}", tree.marks)
    axes = parse_axes(replaced.data["matrix"], replaced.marks) if "matrix" in replaced.data else ()
    varied = parse_vary(varied_tree.data[VARY], axes, varied_tree.marks) if VARY in varied_tree.data else ()
    _refuse_many(axes, varied, replaced.marks)
    known = _together(declared, axes)
    exclude = _whens(tree, known)
    cases = _cases(tree, known)
    _refuse_file_keys(overrides)
    own = [setting for setting in single(overrides) if setting.path[0] not in _REPLACEABLE]
    for setting in own:
        _refuse_owned(setting, axes, None)
    _refuse_malformed(base)
    base = overlay(base, [setting for setting in own if setting.path[0] in ("name", "format")])
    last = tuple(setting for setting in own if setting.path[0] not in ("name", "format"))
    _refuse_idle(tree, known if declared else axes, exclude, cases)
    marks = {**replaced.marks, **{path: one for path, one in varied_tree.marks.items() if path[:1] == (VARY,)}}
    return Study(base, axes, cases, exclude, last, marks, varied)


def _refuse_many(axes: Sequence[Axis], varied: Sequence[Axis], marks: Marks) -> None:
    variations = sum(len(axis.choices) for axis in varied)
    count = math.prod(len(axis.choices) for axis in axes) * (1 + variations)
    if count > MAX_CELLS:
        sizes = [f"{len(axis.choices)} {axis.key}" for axis in axes]
        sizes += [f"{1 + variations} vary"] if varied else []
        message = f"{' x '.join(sizes)} makes {count:,} cells, must be at most {MAX_CELLS:,}"
        raise problem(("matrix",), message, marks)


def _refuse_malformed(base: Tree) -> None:
    """Refuse a component that is none, though an axis stands above it."""
    for kind in COMPONENTS:
        if kind in base.data:
            value = base.data[kind]
            if not isinstance(value, dict):
                raise problem((kind,), f"got {shown(value)}, must be {allowed(Experiment, (kind,))}", base.marks)
            _, faults = validated(Component, value, (kind,), base.marks, lambda: known_keys(Experiment))
            if faults:
                raise refusal(faults, base.marks)


def _refuse_file_keys(overrides: Sequence[Setting]) -> None:
    for setting in overrides:
        if setting.path[0] in STUDY_KEYS and setting.path[0] not in _REPLACEABLE:
            raise problem(setting.path, "can only be given in a file", {(): setting.origin})


def _matrix(tree: Tree, overrides: Sequence[Setting]) -> Tree:
    """The tree with the axes that the command line gives."""
    data: dict[str, Any] = {"matrix": dict(tree.data["matrix"])} if "matrix" in tree.data else {}
    marks = dict(tree.marks)
    for setting in overrides:
        path: KeyPath = setting.path
        if len(path) == 1:
            if not isinstance(setting.value, dict):
                raise problem(path, f"got {shown(setting.value)}, must be {MATRIX_WORDS}", {(): setting.origin})
            data["matrix"] = dict(setting.value)
        elif one := choice_params(setting, data.get("matrix", {}), marks):
            setting, path = one, one.path
            values = list(data["matrix"][path[1]])
            values[int(path[2])] = setting.value
            data["matrix"][path[1]] = values
        else:
            matrix = data.setdefault("matrix", {})
            path = ("matrix", _same_axis(str(path[1]), matrix))
            matrix[path[1]] = setting.value
        marks = {key: origin for key, origin in marks.items() if key[: len(path)] != path}
        marks |= mark_all(setting.value, path, setting.origin)
    return Tree(data, marks)


def _vary(tree: Tree, overrides: Sequence[Setting]) -> Tree:
    """The varied settings with those that the command line gives."""
    data: dict[str, Any] = {VARY: tree.data[VARY]} if VARY in tree.data else {}
    marks = dict(tree.marks)
    for setting in overrides:
        path: KeyPath = setting.path
        if len(path) > 1:
            before = data.get(VARY, {})
            data[VARY] = {**(before if isinstance(before, dict) else {}), str(path[1]): setting.value}
        elif isinstance(setting.value, dict):
            data[VARY] = setting.value
        else:
            raise problem(path, f"got {shown(setting.value)}, must be {VARY_WORDS}", {(): setting.origin})
        marks = {key: origin for key, origin in marks.items() if key[: len(path)] != path}
        marks |= mark_all(setting.value, path, setting.origin)
    return Tree(data, marks)


def _same_axis(key: str, matrix: dict[str, Any]) -> str:
    """The axis in the file that sets the same as `key`, in the file's spelling."""
    return next((other for other in matrix if axis_path(other) == axis_path(key)), key)


def _together(declared: Sequence[Axis], axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """Axes with the choices of the file and of the command line, which a `when` may mean."""
    before = {axis.key: axis for axis in declared}
    merged = []
    for axis in axes:
        old = before[axis.key].choices if axis.key in before else ()
        labels = {choice.label for choice in axis.choices}
        merged.append(Axis(axis.key, axis.path, (*axis.choices, *(one for one in old if one.label not in labels))))
    return tuple(merged)


def _whens(tree: Tree, axes: Sequence[Axis]) -> tuple[When, ...]:
    items = _items(tree, "exclude", "seed: 0")
    found = tuple(_when(item, axes, ("exclude", number), tree.marks) for number, item in enumerate(items))
    for when in found:
        if not when.labels:
            raise problem(when.path, "is empty and leaves no cell; name an axis", tree.marks)
    return found


def _cases(tree: Tree, axes: Sequence[Axis]) -> tuple[Case, ...]:
    items = _items(tree, "cases", "when: {seed: 0}, set: {train.lr: 0.1}")
    return tuple(_case(item, axes, ("cases", number), tree.marks) for number, item in enumerate(items))


def _items(tree: Tree, key: str, example: str) -> list[Any]:
    items = tree.data.get(key, [])
    if not isinstance(items, list):
        raise problem((key,), f"got {shown(items)}, must be a list, as in [{{{example}}}]", tree.marks)
    if len(items) > MAX_CASES:
        raise problem((key,), f"has {len(items):,} entries, must be at most {MAX_CASES:,}", tree.marks)
    return items


def _case(item: Any, axes: Sequence[Axis], path: KeyPath, marks: Marks) -> Case:
    if not isinstance(item, dict):
        raise problem(path, f"got {shown(item)}, must be a mapping with when and set", marks)
    for key in item:
        if key not in ("when", "set"):
            raise problem((*path, key), f"unknown key{suggest_key((*path, key), {path: ('when', 'set')})}", marks)
    settings = item.get("set")
    if not isinstance(settings, dict) or not settings:
        example = "must be a mapping of settings, as in {train.lr: 0.1}"
        raise problem((*path, "set"), f"got {shown(settings)}, {example}", marks)
    when = _when(item.get("when", {}), axes, (*path, "when"), marks)
    written = [_setting(key, value, (*path, "set", key), marks) for key, value in settings.items()]
    for setting in single(written):
        _refuse_owned(setting, axes, marks)
    return Case(when, tuple(single(written)))


def _setting(key: str, value: Any, path: KeyPath, marks: Marks) -> Setting:
    target: KeyPath = tuple(key.split("."))
    if not all(target) or target[0] in ("name", "format", *STUDY_KEYS):
        raise problem(path, "cannot be set for some cells", marks)
    return Setting(target, value, origin_of(path, marks) or Origin("study"))


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
        wanted = given if isinstance(given, list) and not any(one.answers(given) for one in axis.choices) else [given]
        found = [_labels(axis, value, (*path, key), marks) for value in wanted]
        labels[axis.key] = tuple(label for some in found for label in some)
        if not wanted:
            raise problem((*path, key), "is empty and means no cell; give a value", marks)
    return When(labels, path)


def _labels(axis: Axis, value: Any, path: KeyPath, marks: Marks) -> list[str]:
    found = [choice.label for choice in axis.choices if choice.answers(value)]
    if not found:
        there = ", ".join(shown_key(choice.label) for choice in axis.choices[:10])
        raise problem(path, f"got {shown(value)}, matches no cell; there is {there}", marks)
    return found


def _refuse_idle(tree: Tree, axes: Sequence[Axis], exclude: Sequence[When], cases: Sequence[Case]) -> None:
    """Refuse a study without cells, and a case for cells that are all excluded."""
    left = list(combinations(axes, exclude))
    if not left:
        raise problem(("exclude",), "leaves no cell", tree.marks)
    for case in cases:
        if not any(case.when.holds(axes, combination) for combination in left):
            raise problem(
                case.when.path, f"matches no cell, as exclude leaves out all of {_said(case.when)}", tree.marks
            )


def _said(when: When) -> str:
    return ", ".join(f"{dotted((key,))} {' or '.join(labels)}" for key, labels in when.labels.items())
