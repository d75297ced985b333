"""`match: parameters`: the width of the backbone's feed-forward part that makes models equal in
size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from subquad.errors import ConfigError
from subquad.experiment import Run, Study
from subquad.experiment.axes import SEED, axis_path
from subquad.experiment.run import laid
from subquad.experiment.settings import dotted
from subquad.experiment.study_file import PARAMETERS, WIDTH
from subquad.preparation.costs import StudyCosts

TOLERANCE = 0.02
"""Largest difference in parameters that still counts as equal."""

WIDTH_KEY = dotted(WIDTH)
_WIDEST = 2**20


def cell_of(run: Run) -> dict[str, str]:
    """The label of its choice on each axis but that of the seed."""
    return {key: label for key, label in run.labels.items() if axis_path(key) != SEED}


def reference_of(run: Run, runs: Sequence[Run]) -> Run:
    """The run whose size it gets: of the first mixer that has the same value on every other
    axis.
    """
    wanted = cell_of(run) | {"mixer": ""}
    return next(other for other in runs if cell_of(other) | {"mixer": ""} == wanted)


def equal_size(study: Study, costs: StudyCosts) -> Study:
    """The study with the width of each run that has to be another; as it is, unless it asks for
    `match`.

    A run that is within `TOLERANCE` keeps its width, so a study that was matched before stays as it
    is.

    Raises:
        ConfigError: there is one mixer only, or a run cannot have the size.
    """
    if study.match != PARAMETERS:
        return study
    pairs = list(
        zip(study.runs, [reference_of(run, study.runs) for run in study.runs], strict=True)
    )
    if all(run.labels["mixer"] == reference.labels["mixer"] for run, reference in pairs):
        raise ConfigError(
            "match: parameters: has no effect on one mixer; give several, or match=null"
        )
    sized: list[Run] = []
    for run, reference in pairs:
        try:
            width = width_for(costs.parameters(reference), partial(laid, run), costs)
        except ConfigError as error:
            raise ConfigError(f"match: parameters: {error} (run {run.label})") from error
        sized.append(laid(run, width) if width else run)
    return replace(study, runs=tuple(sized))


def width_for(
    target: int, lay: Callable[[Mapping[str, Any]], Run], costs: StudyCosts
) -> dict[str, int]:
    """The setting with which a model comes nearest to `target` parameters; none where it is near
    already.

    Args:
        lay: the run with settings laid over it, by dotted key.

    Raises:
        ConfigError: the backbone has no such width, or none comes within `TOLERANCE`.
    """
    run = lay({})
    if WIDTH[-1] not in type(run.backbone_config).model_fields:
        raise ConfigError(
            f"backbone {run.backbone.found.name!r} has no {WIDTH[-1]} that could be chosen"
        )
    if abs(costs.parameters(run) - target) <= TOLERANCE * target:
        return {}
    width = nearest_width(target, lambda width: costs.parameters(lay({WIDTH_KEY: width})))
    return {WIDTH_KEY: width}


def nearest_width(target: int, count: Callable[[int], int]) -> int:
    """The width with the number of parameters nearest to `target`.

    Args:
        count: parameters at a width; it grows with the width, and each is asked a few times.

    Raises:
        ConfigError: none comes within `TOLERANCE`.
    """
    low = 1
    high = 2
    while count(high) < target and high < _WIDEST:
        low = high
        high *= 8
    while high - low > 1 and count(low) < target:
        # where parameters are linear in it, this is the one
        share = (target - count(low)) / (count(high) - count(low))
        middle = min(max(low + int(share * (high - low)), low + 1), high - 1)
        if count(middle) < target:
            low = middle
        else:
            high = middle
    off, width = min((abs(count(width) - target) / target, width) for width in (low, high))
    if off > TOLERANCE:
        advice = "use a wider model"
        if count(1) > target:
            advice = f"give a larger mixer first, or a larger {WIDTH_KEY}"
        raise ConfigError(
            f"no {WIDTH_KEY} gives {target:,} parameters within {TOLERANCE:.0%}: the nearest, "
            f"{width}, has {count(width):,}, which is {off:.0%} off; {advice}, or leave this mixer "
            "out"
        )
    return width
