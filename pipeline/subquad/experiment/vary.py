"""`vary:` of a study: settings that are changed one at a time around every cell's own settings, its base."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from subquad.experiment.axes import Axis, Choice, is_number, overlap, parse_axis
from subquad.experiment.canonical import WITHOUT_EFFECT
from subquad.experiment.refusals import shown
from subquad.experiment.settings import KeyPath, Marks, Origin, Setting, dotted, problem

VARY = "vary"
BASE = "base"
"""Label of a cell with none of the settings changed."""

WORDS = "a mapping of settings to lists, as in mixer.params.order: [3, 4, 5]"
_SEED: KeyPath = ("train", "seed")
_FIXED = ("format", "name", "resources", "tracking")
_ROUNDING: KeyPath = ("train", "micro_batch")


@dataclass(frozen=True)
class Variation:
    """What an axis' choice of a variation changes; `path` is empty for the base."""

    path: KeyPath = ()
    value: Any = None

    @property
    def told(self) -> dict[str, Any]:
        """`{"mixer.params.order": 3}`, as a cell's coordinates have it; empty for the base."""
        return {".".join(map(str, self.path)): self.value} if self.path else {}


def parse_vary(data: Any, axes: Sequence[Axis], marks: Marks) -> tuple[Axis, ...]:
    """The varied settings in the order written, each with its values.

    Args:
        data: what stands under `vary`.
        axes: the study's own axes.
        marks: where all was given.

    Raises:
        ConfigError: not a mapping of settings to lists of different values, or one sets what an axis or another sets.
    """
    if not isinstance(data, dict) or not data:
        raise problem((VARY,), f"got {shown(data)}, must be {WORDS}", marks)
    varied: list[Axis] = []
    for key, values in data.items():
        path: KeyPath = (VARY, key)
        _refuse_unvaried(key, path, marks)
        one = parse_axis(key, values, path, marks)
        for number in range(len(one.choices)):
            _refuse_value(one, number, path, marks)
        if twin := next((other for other in axes if overlap(one, other)), None):
            raise problem(path, f"sets the same as the axis {twin.key}; keep one of them", marks)
        if twin := next((other for other in varied if overlap(one, other)), None):
            raise problem(path, f"sets the same as {dotted((VARY, twin.key))}; keep one of them", marks)
        varied.append(one)
    return tuple(varied)


def _refuse_unvaried(key: str, path: KeyPath, marks: Marks) -> None:
    target = tuple(key.split("."))
    if key == "seed" or target == _SEED:
        raise problem(path, "cannot be varied, as every value is trained with all seeds; give matrix.seed", marks)
    if target[0] in _FIXED or target in (*WITHOUT_EFFECT, _ROUNDING):
        raise problem(
            path, f"cannot be varied, as it does not decide the numbers; make it an axis, matrix.{key}", marks
        )
    if len(target) == 1:
        raise problem(
            path, f"cannot be varied, must be a setting such as mixer.params.order; or give matrix.{key}", marks
        )


def _refuse_value(axis: Axis, number: int, path: KeyPath, marks: Marks) -> None:
    value = axis.choices[number].value
    if isinstance(value, dict):
        raise problem((*path, number), "a mapping, must be a number, text, true, false, null or a list", marks)
    twin = next((place for place in range(number) if _same(axis.choices[place].value, value)), None)
    if twin is not None:
        message = f"got {shown(value)}, the same as {dotted((*path, twin))}; keep one of them"
        raise problem((*path, number), message, marks)


def _same(one: Any, other: Any) -> bool:
    if is_number(one) and is_number(other):
        return one == other
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def with_variations(axes: Sequence[Axis], varied: Sequence[Axis]) -> tuple[Axis, ...]:
    """The axes with one of all variations, the base first; before the seed's where that is the last one."""
    if not varied:
        return tuple(axes)
    choices = [Choice(Variation(), BASE, Origin("study"))]
    choices += [
        Choice(Variation(axis.path, one.value), one.label, one.origin) for axis in varied for one in axis.choices
    ]
    place = len(axes) - (1 if axes and axes[-1].path == _SEED else 0)
    return (*axes[:place], Axis(VARY, (VARY,), tuple(choices)), *axes[place:])


def varied_setting(choice: Choice) -> list[Setting]:
    """What a choice among the variations lays over a cell: nothing for the base."""
    found = choice.value
    assert isinstance(found, Variation)
    return [Setting(found.path, found.value, choice.origin)] if found.path else []
