"""`match: parameters`: the width of the backbone's feed-forward part that makes models equal in
size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from subquad.drivers.costs import StudyCosts
from subquad.drivers.executor import Executor
from subquad.errors import ConfigError
from subquad.experiment import Run, Study, load_text
from subquad.experiment.axes import SEED, axis_path
from subquad.experiment.run import by_key, laid
from subquad.experiment.settings import dotted
from subquad.experiment.strict_yaml import parse_yaml, to_yaml
from subquad.experiment.study_file import PARAMETERS, WIDTH

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

    def others(cell: Run) -> dict[str, str]:
        return {key: label for key, label in cell_of(cell).items() if key != "mixer"}

    return next(cell for cell in runs if others(cell) == others(run))


def sized_there(study: Study, executor: Executor) -> Study:
    """`equal_size` with the data where they will be used."""
    if not study.match:
        return study
    return equal_size(study, executor.there(StudyCosts, study.runs[0].experiment.resources))


def equal_size(study: Study, costs: StudyCosts) -> Study:
    """The study with a case for each run whose width has to be another; as it is, unless it asks
    for `match`.

    A run that is within `TOLERANCE` keeps its width, so a study that was matched before stays as it
    is.

    Raises:
        ConfigError: there is one mixer only, or a run cannot have the size, or a case for its mixer
            sets the width.
    """
    if study.match != PARAMETERS:
        return study
    if all(
        reference_of(run, study.runs).labels["mixer"] == run.labels["mixer"] for run in study.runs
    ):
        raise ConfigError(
            "match: parameters: has no effect on one mixer; give several, or match=null"
        )
    data = parse_yaml(study.text, study.source).data
    cases: list[dict[str, Any]] = list(data.get("cases", []))
    conditions = [when for case in study.file.cases if WIDTH_KEY in case.sets for when in case.when]
    taken = {label for when in conditions for label in when.get("mixer", ())}
    chosen: dict[str, dict[str, Any]] = {}
    for run in study.runs:
        try:
            target = costs.parameters(reference_of(run, study.runs))
            width = width_for(target, lambda values, run=run: laid(run, by_key(values)), costs)
            if width and run.labels["mixer"] in taken:
                raise ConfigError(
                    f"{WIDTH_KEY} is set by a case; leave it out there, or give match=null"
                )
        except ConfigError as error:
            raise ConfigError(f"match: parameters: {error} (run {run.label})") from error
        if width:
            chosen[repr(cell_of(run))] = {"when": cell_of(run), "set": width}
    if chosen:
        return load_text(to_yaml(data | {"cases": [*cases, *chosen.values()]}))
    return study


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
    return {
        WIDTH_KEY: nearest_width(target, lambda width: costs.parameters(lay({WIDTH_KEY: width})))
    }


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
        high = 8 * high
    while high - low > 1 and count(low) < target:
        # where parameters are linear in it, this is the one
        share = (target - count(low)) / (count(high) - count(low))
        middle = min(max(low + int(share * (high - low)), low + 1), high - 1)
        low, high = (middle, high) if count(middle) < target else (low, middle)
    width = min((low, high), key=lambda width: abs(count(width) - target))
    if (off := abs(count(width) - target) / target) > TOLERANCE:
        advice = (
            f"give a larger mixer first, or a larger {WIDTH_KEY}"
            if count(1) > target
            else "use a wider model"
        )
        raise ConfigError(
            f"no {WIDTH_KEY} gives {target:,} parameters within {TOLERANCE:.0%}: "
            f"the nearest, {width}, has "
            f"{count(width):,}, which is {off:.0%} off; {advice}, or leave this mixer out"
        )
    return width
