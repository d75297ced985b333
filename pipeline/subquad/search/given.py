"""What a search is given to begin with: points to try first, and the trials of another search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subquad.errors import ConfigError
from subquad.experiment.refusals import shown
from subquad.experiment.settings import one_line, shown_target
from subquad.experiment.sources import parse_overrides
from subquad.experiment.strict_yaml import parse_yaml, read_text
from subquad.search.trial import Evaluation, Goal, Trial
from subquad.space import Point, Space, plain_space
from subquad.suggest import did_you_mean

if TYPE_CHECKING:
    from subquad.search.search import Search


def parse_points(given: Sequence[str], cwd: Path) -> list[Point]:
    """Points as they are typed: `"train.lr=1e-3 train.batch_size=8"`, or a YAML file with a list of mappings.

    Raises:
        ConfigError: one is neither.
    """
    points: list[Point] = []
    for text in given:
        if "=" in text:
            settings = parse_overrides(text.split(), cwd)
            points.append({".".join(map(str, one.path)): one.value for one in settings})
            continue
        name = shown_target(text)
        data = parse_yaml(read_text(cwd / text, name), name).data
        if not isinstance(data, list) or not all(isinstance(one, dict) and one for one in data):
            raise ConfigError(one_line(f"--points {name}: must be a list of mappings, as in [{{train.lr: 1e-3}}]"))
        points += data
    return points


def first_points_of(points: Sequence[Mapping[str, Any]], space: Space) -> list[Point]:
    """The given points as far as they are of a candidate's space, each once."""
    own = [{dim.path: one[dim.path] for dim in space.dims if dim.path in one} for one in points]
    return [one for place, one in enumerate(own) if one and one not in own[:place]]


def check_points(points: Sequence[Mapping[str, Any]], spaces: Mapping[str, Space]) -> None:
    """Refuse points that no candidate can try.

    Raises:
        ConfigError: the first setting that no space has, or value that its space does not try.
    """
    dims = {dim.path: dim for space in spaces.values() for dim in space.dims}
    for point in points:
        for key, value in point.items():
            if key not in dims:
                raise ConfigError(one_line(f"--points: {key}: is not searched{did_you_mean(key, dims)}"))
            if not dims[key].can_be(value):
                raise ConfigError(one_line(f"--points: {key}: the space does not try {shown(value)}"))


def warm_trials(other: Search, trials: Mapping[str, Sequence[Trial]], search: Search) -> dict[str, list[Trial]]:
    """Trials of another search for each candidate that has its label; of two single experiments for the one there is.

    Args:
        other: the other search.
        trials: its trials, by candidate.
        search: the one that begins.

    Raises:
        ConfigError: no candidate is in both, or one has another space or another metric there.
    """
    labels = {one.label: one.label for one in search.candidates if one.label in other.spaces}
    if len(search.candidates) == len(other.candidates) == 1:
        labels = {search.candidates[0].label: other.candidates[0].label}
    if not labels:
        there = ", ".join(one.label for one in other.candidates)
        raise ConfigError(one_line(f"--warm-start: has none of the candidates of this search; there is {there}"))
    for own, label in labels.items():
        _refuse_other_space(own, search.spaces[own], other.spaces[label])
        _refuse_other_goal(own, search.goals[own], other.goals[label])
    return {own: [one for one in trials[label] if one.ended] for own, label in labels.items()}


def _refuse_other_space(label: str, own: Space, other: Space) -> None:
    ours, theirs = (plain_space(one.dims, one.constraints) for one in (own, other))
    if ours != theirs:
        keys = [*ours["dims"], *theirs["dims"]]
        what = next((key for key in keys if ours["dims"].get(key) != theirs["dims"].get(key)), "constraints")
        raise ConfigError(one_line(f"--warm-start: {label}: searched another space there: {what} differs"))


def _refuse_other_goal(label: str, own: Goal, other: Goal) -> None:
    if (own.metric, own.mode, own.cost) != (other.metric, other.mode, other.cost):
        raise ConfigError(
            one_line(
                f"--warm-start: {label}: searched for {other.metric} (--cost {other.cost}) there, not {own.metric}"
            )
        )


def plain_trial(trial: Trial, goal: Goal) -> dict[str, Any]:
    """What a sampler is told of a trial, as plain values."""
    best = trial.best(goal.mode)
    value = {"step": best.step, "value": best.value, "loss": best.loss} if best else None
    return {
        "point": trial.point,
        "state": trial.state,
        "best": value,
        "flops": trial.flops,
        "seconds": trial.seconds,
    }


def told_trials(label: str, rows: Sequence[Mapping[str, Any]]) -> list[Trial]:
    """Trials of `plain_trial`."""
    return [
        Trial(
            candidate=label,
            number=number,
            point=row["point"],
            state=row["state"],
            curves=((Evaluation(**row["best"]),),) if row["best"] else (),
            flops=row["flops"],
            seconds=row["seconds"],
        )
        for number, row in enumerate(rows)
    ]
