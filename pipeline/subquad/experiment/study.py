"""A study: one experiment, varied along axes, with cases and exclusions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from subquad.experiment.axes import Axis, Choice
from subquad.experiment.settings import KeyPath, Marks, Setting, Tree, overlay, problem
from subquad.experiment.vary import VARY, varied_setting, with_variations

MAX_LABEL = 200

Combination = tuple[Choice, ...]
"""One choice of each axis, in their order."""


@dataclass(frozen=True)
class When:
    """Which cells are meant: all whose label on each of these axes is among the given ones.

    Attributes:
        labels: labels by axis key; an axis that is not named does not matter.
        path: where it is written.
    """

    labels: dict[str, tuple[str, ...]]
    path: KeyPath

    def holds(self, axes: Sequence[Axis], combination: Combination) -> bool:
        return all(
            choice.label in self.labels[axis.key]
            for axis, choice in zip(axes, combination, strict=True)
            if axis.key in self.labels
        )


@dataclass(frozen=True)
class Case:
    """Settings for some cells."""

    when: When
    settings: tuple[Setting, ...]


@dataclass(frozen=True)
class Study:
    """What a study file says.

    Attributes:
        base: the experiment without the study's own keys.
        axes: its axes.
        cases: settings laid over some cells, in order.
        exclude: cells that are left out.
        last: settings from the command line, laid over all cells.
        marks: where the axes were given.
        varied: settings that are changed one at a time around the base, each with its values.
    """

    base: Tree
    axes: tuple[Axis, ...]
    cases: tuple[Case, ...]
    exclude: tuple[When, ...]
    last: tuple[Setting, ...]
    marks: Marks
    varied: tuple[Axis, ...] = ()

    @cached_property
    def all_axes(self) -> tuple[Axis, ...]:
        """The axes, and one of all variations where settings are varied."""
        return with_variations(self.axes, self.varied)

    @cached_property
    def cells(self) -> tuple[Combination, ...]:
        """The cells, in order; variations that are equal to their base are among them."""
        return tuple(combinations(self.all_axes, self.exclude))


def combinations(axes: Sequence[Axis], exclude: Sequence[When]) -> Iterator[Combination]:
    """The product of the axes, the first slowest, without what is excluded."""
    for combination in itertools.product(*(axis.choices for axis in axes)):
        if not any(when.holds(axes, combination) for when in exclude):
            yield combination


def labels_of(study: Study) -> list[str]:
    """The label of each cell: `agf-JapaneseVowels-seed0`.

    Raises:
        ConfigError: one is too long for a folder's name, or names two cells.
    """
    labels = [label_of(cell) for cell in study.cells]
    seen: set[str] = set()
    for label in labels:
        if len(label) > MAX_LABEL:
            message = f"a cell's label has {len(label)} characters, must be at most {MAX_LABEL}; give labels"
            raise problem(("matrix",), message, study.marks)
        if label.lower() in seen:
            message = f"two cells have the label {label}; give their values other labels"
            raise problem(("matrix",), message, study.marks)
        seen.add(label.lower())
    return labels


def label_of(combination: Combination) -> str:
    """The labels of a cell's choices, joined."""
    return "-".join(choice.label for choice in combination)


def axes_of(study: Study, combination: Combination) -> dict[str, Any]:
    """One cell's choice on each axis: a component's label, else the value; under `vary` what it changes of the base."""
    return {axis.key: _told(axis, choice) for axis, choice in zip(study.all_axes, combination, strict=True)}


def _told(axis: Axis, choice: Choice) -> Any:
    if axis.key == VARY:
        return choice.value.told
    return choice.label if axis.is_component else choice.value


def base_of(study: Study, combination: Combination) -> Combination:
    """The same cell with none of its settings varied."""
    return tuple(
        axis.choices[0] if axis.key == VARY else choice
        for axis, choice in zip(study.all_axes, combination, strict=True)
    )


def experiment_of(study: Study, combination: Combination) -> Tree:
    """One cell's experiment: the base, the axes, the cases that apply, the command line, what is varied."""
    chosen = list(zip(study.all_axes, combination, strict=True))
    axes = [Setting(axis.path, choice.value, choice.origin) for axis, choice in chosen if axis.key != VARY]
    tree = overlay(study.base, axes)
    for case in study.cases:
        if case.when.holds(study.all_axes, combination):
            tree = overlay(tree, case.settings)
    varied = [setting for axis, choice in chosen if axis.key == VARY for setting in varied_setting(choice)]
    for layer in (study.last, varied):
        tree = overlay(tree, layer) if layer else tree
    return tree
