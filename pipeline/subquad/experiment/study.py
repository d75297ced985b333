"""A study: one experiment, varied along axes, with cases and exclusions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from subquad.errors import ConfigError
from subquad.experiment.axes import Axis, Choice
from subquad.experiment.origins import KeyPath
from subquad.experiment.tree import Setting, Tree, overlay

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
    """

    base: Tree
    axes: tuple[Axis, ...]
    cases: tuple[Case, ...]
    exclude: tuple[When, ...]
    last: tuple[Setting, ...] = ()


def combinations(axes: Sequence[Axis], exclude: Sequence[When]) -> Iterator[Combination]:
    """The product of the axes, the first slowest, without what is excluded."""
    for combination in itertools.product(*(axis.choices for axis in axes)):
        if not any(when.holds(axes, combination) for when in exclude):
            yield combination


def label_of(combination: Combination) -> str:
    """A cell's label: `agf-JapaneseVowels-seed0`.

    Raises:
        ConfigError: it is too long for a folder's name.
    """
    label = "-".join(choice.label for choice in combination)
    if len(label) > MAX_LABEL:
        raise ConfigError(
            f"matrix: a cell's label has {len(label)} characters, must be at most {MAX_LABEL}; give labels"
        )
    return label


def experiment_of(study: Study, combination: Combination) -> Tree:
    """One cell's experiment: the base, the axes, the cases that apply, the command line."""
    chosen = zip(study.axes, combination, strict=True)
    tree = overlay(study.base, [Setting(axis.path, choice.value, choice.origin) for axis, choice in chosen])
    for case in study.cases:
        if case.when.holds(study.axes, combination):
            tree = overlay(tree, case.settings)
    return overlay(tree, study.last) if study.last else tree
