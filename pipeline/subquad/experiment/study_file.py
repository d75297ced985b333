"""What a study says: `extends`, `matrix`, `runs`, `baseline` and `match`, of files and the command
line.

A run's settings are laid over each other in this order: the files, its values of the axes, what
these set, what they set beside each other, the command line, and last what the values of axes with
a name of the user's set.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field

from subquad.errors import ConfigError
from subquad.experiment.axes import (
    MATRIX_WORDS,
    Axis,
    Label,
    Value,
    axis_path,
    read_axes,
    read_model,
    read_settings,
    refuse_unknown_label,
)
from subquad.experiment.components import Resolve
from subquad.experiment.labels import plain_label, plugin_label
from subquad.experiment.refusals import Given, top_of
from subquad.experiment.schema import Component
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
    key_path,
    mark_all,
    origin_of,
    overlay,
    problem,
    single,
)
from subquad.plugin import Config
from subquad.record.files import flatten

PARAMETERS = "parameters"
"""What `match` can ask for: as many parameters for every mixer as the first one has."""

WIDTH: KeyPath = ("backbone", "params", "ffn_dim")
"""What is chosen for that."""

MAX_LABEL = 200
MAX_RUNS = 10_000


class _Listed(Config):
    """An entry of `runs`: one run, or the runs below it that have this alike."""

    labels: dict[str, Label] = Field(min_length=1)
    axes: dict[str, Any] = Field(default_factory=dict)
    set: dict[str, Any] = Field(default_factory=dict)
    runs: tuple[dict[str, Any], ...] = ()


class _Each(Config):
    """An entry of `runs`: one for each value of an axis, which differ in nothing else."""

    each: dict[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Cell:
    """One run, before it is checked.

    Attributes:
        labels: of its value of each axis, by the axis' key.
        axes: the values: a component's label, a plain value, or what it sets, flat.
        tree: its experiment.
    """

    labels: dict[str, str]
    axes: dict[str, Any]
    tree: Tree

    @property
    def label(self) -> str:
        return "-".join(self.labels.values())


@dataclass(frozen=True)
class StudyFile:
    """What a file or recipe says with its overrides, before any of its runs is checked.

    Attributes:
        base: the experiment without the study's own keys.
        axes: its axes; those of a list of runs without values.
        runs: its list of runs, in place of axes with values.
        last: what the command line sets.
        of_values: what it sets for one value of an axis, by the axis' key and the label.
        baseline: label of the control's mixer; "" where none is named.
        match: what all mixers have alike, `PARAMETERS` or "".
        origin: where the axes were given.
    """

    base: Tree
    axes: tuple[Axis, ...]
    runs: tuple[Given, ...]
    last: tuple[Setting, ...]
    of_values: tuple[tuple[str, str, Setting], ...]
    baseline: str
    match: str
    origin: Origin

    def wrong(self, message: str) -> ConfigError:
        """The refusal of the study as a whole."""
        return problem(("matrix",), message, self.origin)

    def cells(self) -> Iterator[Cell]:
        """The runs, in order, those that repeat another one among them; of a single experiment
        one without a label.

        Raises:
            ConfigError: two have one label, or it is too long for a folder's name; what is set
                cannot be.
        """
        labels = set[str]()
        keys = [axis.key for axis in self.axes]
        for cell in (
            self._listed(self.runs, Cell({}, {}, self.base)) if self.runs else self._product()
        ):
            if keys and [*cell.labels] != keys:
                raise self.wrong(
                    f"run {cell.label} has the axes {', '.join(cell.labels)}, the first run has "
                    f"{', '.join(keys)}"
                )
            if len(cell.label) > MAX_LABEL:
                raise self.wrong(
                    f"a run's label has {len(cell.label)} characters, must be at most {MAX_LABEL}; "
                    "give labels"
                )
            if cell.label.lower() in labels:
                raise self.wrong(
                    f"two runs have the label {cell.label}; give their values other labels"
                )
            labels.add(cell.label.lower())
            yield cell
        if not labels:
            raise self.wrong("has no run: no values stand beside each other, by their own `only`")

    def _listed(self, entries: Sequence[Given], above: Cell) -> Iterator[Cell]:
        for place in entries:
            if place.at("each").value is not None:
                read_model(_Each, place)
                for key, values in place.at("each").items():
                    yield from self._each(key, values.entries(), above)
                continue
            listed = read_model(_Listed, place)
            tree = overlay(above.tree, read_settings(place.at("set")))
            cell = Cell(
                above.labels | listed.labels, above.axes | listed.labels | listed.axes, tree
            )
            if listed.runs:
                yield from self._listed(place.at("runs").entries(), cell)
            else:
                yield replace(cell, tree=overlay(tree, self.last))

    def _each(self, key: str, values: Sequence[Given], above: Cell) -> Iterator[Cell]:
        for place in values:
            path = axis_path(key) or key_path(key)
            tree = overlay(above.tree, [Setting(path, place.value, place.origin)])
            labels = above.labels | {key: plain_label(key, place.value)}
            yield Cell(labels, above.axes | {key: place.value}, overlay(tree, self.last))

    def _product(self) -> Iterator[Cell]:
        """The first axis slowest, as far as the `only` of every value holds."""
        for values in itertools.product(*(axis.values for axis in self.axes)):
            present = {value.label for value in values}
            for value, axis in itertools.product(values, self.axes):
                wanted = axis.known.keys() & value.only
                if wanted and not wanted & present:
                    break
            else:
                yield self._cell(values)

    def _cell(self, values: Sequence[Value]) -> Cell:
        """Raises:
        ConfigError: an axis decides what is set, or a value drops what the command line gives.
        """
        labels = {axis.key: value.label for axis, value in zip(self.axes, values, strict=True)}
        axes: dict[str, Any] = {}
        own: list[Setting] = []
        belonging: list[Sequence[Setting]] = []
        varied: list[Sequence[Setting]] = []
        for axis, value in zip(self.axes, values, strict=True):
            own += value.own
            sets = [value.sets]
            sets += [value.beside[label] for label in value.beside if label in labels.values()]
            for settings in sets:
                self.refuse_owned(settings, "leave it out here")
            (belonging if axis.path else varied).extend(sets)
            if axis.is_component:
                axes[axis.key] = value.label
            elif axis.path:
                axes[axis.key] = value.own[0].value
            else:
                axes[axis.key] = flatten(
                    {dotted(setting.path): setting.value for setting in itertools.chain(*sets)}
                )
        last = [*self.last]
        last += [setting for key, label, setting in self.of_values if labels[key] == label]
        tree = self.base
        for layer in (own, *belonging, last, *varied):
            tree = overlay(tree, layer)
        for setting in last:
            if not is_given(tree.data, setting.path):
                raise setting.wrong(
                    "is dropped by a value that replaces what is above it; leave one of them out"
                )
        return Cell(labels, axes, tree)

    def refuse_owned(self, settings: Sequence[Setting], instead: str) -> None:
        """Refuse settings that an axis decides."""
        for setting in settings:
            for axis in self.axes:
                if axis.owns(setting.path):
                    message = f"cannot be set, as {axis.key} is an axis of this study; "
                    raise setting.wrong(message + instead.format(axis.key))


def read_study(layers: Sequence[Tree], overrides: Sequence[Setting], resolve: Resolve) -> StudyFile:
    """Read a study's own keys (`STUDY_KEYS`) of a file, after those that it extends, and of the
    command line.

    Raises:
        ConfigError: what is wrong, with file, line and key.
    """
    layer, last, of_values = _given_on_the_command_line(overrides)
    base = Tree({}, {})
    axes = tuple[Axis, ...]()
    keys = dict.fromkeys(("runs", "baseline", "match"), _NOTHING)
    for tree in (*layers, layer):
        base = _extended(base, tree)
        for key in keys.keys() & tree.data.keys():
            keys[key] = top_of(tree).at(key)
        if "matrix" in tree.data:
            matrix = top_of(tree).at("matrix")
            if keys["runs"].value is not None:
                raise matrix.wrong("has no effect beside a list of runs; leave one of them out")
            axes = read_axes(matrix, axes, resolve)
    _refuse_labels(axes, of_values)
    if keys["runs"].value is not None:
        keys["runs"].expect_filled(list, "a list of runs")
    study = StudyFile(
        base=base,
        axes=axes,
        runs=tuple(keys["runs"].entries()),
        last=tuple(single(last)),
        of_values=tuple(of_values),
        baseline="",
        match="",
        origin=origin_of(("matrix",), {**layers[-1].marks, **layer.marks}),
    )
    if study.runs:
        axes = tuple(Axis(key, axis_path(key)) for key in next(study.cells()).labels)
    study = replace(study, axes=axes, match=_match(keys["match"], axes))
    if axes or any(place.value is not None for place in keys.values()):
        _refuse(study)
    return replace(study, baseline=_baseline(keys["baseline"], study))


_NOTHING = Given(None, (), {})


def _extended(below: Tree, above: Tree) -> Tree:
    """The settings of a file over those of the file that it extends; each keeps the line where
    it was given.
    """
    own = [given for key, given in top_of(above).items() if key not in STUDY_KEYS]
    tree = overlay(below, [Setting(given.path, given.value, given.origin) for given in own])
    kept = {path: origin for path, origin in above.marks.items() if is_given(tree.data, path)}
    return Tree(tree.data, {**tree.marks, **kept})


_OF_ONE_VALUE = re.compile(rf"({'|'.join(COMPONENTS)})\.(.+)\.params(?:\.(.+))?")
"""`dataset.LABEL.params.NAME`: a parameter of one value of an axis; without a NAME all of them."""


def _given_on_the_command_line(
    overrides: Sequence[Setting],
) -> tuple[Tree, list[Setting], list[tuple[str, str, Setting]]]:
    """What the command line says: a layer over the files, settings of every run, and those of one
    value of an axis by its key and label.
    """
    data: dict[str, Any] = {}
    marks: dict[KeyPath, Origin] = {}
    settings: list[Setting] = []
    of_values: list[tuple[str, str, Setting]] = []
    for setting in overrides:
        head, *rest = setting.path
        if head in ("extends", "runs"):
            raise setting.wrong("can only be given in a file")
        if head not in ("name", "format", *STUDY_KEYS):
            settings.append(setting)
        elif rest and (found := _OF_ONE_VALUE.fullmatch(str(rest[0]))):
            kind, label, name = found.groups()
            path = (kind, "params", *(name.split(".") if name else ()))
            of_values.append((kind, label, Setting(path, setting.value, setting.origin)))
        else:
            marks |= mark_all(setting.value, setting.path, setting.origin)
            value = setting.value
            if rest:
                value = {**data.get("matrix", {}), rest[0]: value}
            data[str(head)] = value
    return Tree(data, marks), settings, of_values


def _refuse_labels(axes: Sequence[Axis], of_values: Sequence[tuple[str, str, Setting]]) -> None:
    """Refuse labels that no value has."""
    for key, label, setting in of_values:
        known = [value.label for axis in axes if axis.key == key for value in axis.values]
        place = Given(label, ("matrix", key), {(): setting.origin})
        refuse_unknown_label(place, label, known)
    for axis in axes:
        others = [other.known for other in axes if other is not axis]
        known = list(itertools.chain(*others))
        for value in axis.known.values():
            for label in value.only:
                refuse_unknown_label(value.place.at("only"), label, known)
            for label in value.beside:
                place = value.place.at("beside").at(label)
                refuse_unknown_label(place, label, known)
                for labels in others:
                    wanted = labels.keys() & value.only
                    if label in labels and wanted and label not in wanted:
                        raise place.wrong("means no run, as `only` names others")


def _match(place: Given, axes: Sequence[Axis]) -> str:
    if place.value is None:
        return ""
    words = f"{PARAMETERS} or null"
    if place.value == "flops":
        words += "; with subquad tune there is also trial.match=flops"
    place.expect(place.value == PARAMETERS, words)
    if all(axis.key != "mixer" for axis in axes):
        raise place.wrong("needs mixers that are compared, as in matrix.mixer=[ONE, OTHER]")
    for axis in axes:
        sets: list[Setting] = []
        for value in axis.values if axis.key == "mixer" or not axis.path else ():
            sets += itertools.chain(value.sets, *value.beside.values())
        is_set = WIDTH in [setting.path for setting in sets]
        if axis.owns(WIDTH) or is_set or (sets and not axis.path):
            raise place.wrong(
                f"chooses {dotted(WIDTH)}, and the axis {axis.key} sets more than a mixer; leave "
                "one of them out"
            )
    return PARAMETERS


def _baseline(place: Given, study: StudyFile) -> str:
    """The label of the control's mixer; "" where none is named, or the command line took its
    runs away.
    """
    if place.value is None:
        return ""
    trained: dict[str, bool] = {}
    for axis in study.axes:
        if axis.key == "mixer":
            trained = {label: value in axis.values for label, value in axis.known.items()}
    for cell in () if trained else study.cells():
        name = get(cell.tree.data, ("mixer", "name"))
        trained[cell.labels.get("mixer") or plugin_label(str(name))] = True
    refuse_unknown_label(place, place.value, trained)
    return place.value if trained[place.value] else ""


def _refuse(study: StudyFile) -> None:
    """Refuse a study without runs, with too many, and settings that have no effect in it."""
    if not study.axes:
        raise study.wrong(f"missing, must be {MATRIX_WORDS}")
    count = math.prod(len(axis.values) for axis in study.axes)
    if count > MAX_RUNS:
        sizes = " x ".join(f"{len(axis.values)} {axis.key}" for axis in study.axes)
        raise study.wrong(f"{sizes} makes {count:,} runs, must be at most {MAX_RUNS:,}")
    given = [*study.last, *(setting for *_, setting in study.of_values)]
    study.refuse_owned(given, "give the axis, as in matrix.{}=[...]")
    # a component is one also where an axis stands above it
    for kind in study.base.data.keys() & COMPONENTS:
        read_model(Component, top_of(study.base).at(kind))
