"""An Optuna study made of trials, to be drawn: with the metric's own values and readable names.

What the searcher tpe makes of trials (`searchers/optuna_trials.py`) is another thing: there values are ranks, lists are
indices, and failed trials count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from subquad.search.pictures import NotDrawn, Pictured
from subquad.search.pictures.names import cut, short_names
from subquad.search.searchers.optuna_trials import distribution, fits
from subquad.search.trial import Trial, best_of
from subquad.space import Dimension, Space
from subquad.space.dimension import is_number, same

if TYPE_CHECKING:
    import optuna

NUMBER = "number"
"""Attribute of a study's trial: its number in the search."""


def numbers_of(study: optuna.Study) -> list[int]:
    """The numbers that a study's trials have in the search."""
    return [trial.user_attrs[NUMBER] for trial in study.trials]


def value_of(trial: Trial, subject: Pictured) -> float | None:
    """A finished trial's best value; None where it has none that is finite."""
    best = best_of(trial.curve, subject.goal.mode) if trial.state == "finished" else None
    return best.value if best and math.isfinite(best.value) else None


def study_of(subject: Pictured, *, numbers: bool = False) -> optuna.Study:
    """The finished trials of a subject, those whose points are of its space.

    Args:
        numbers: whether lists of numbers stay numbers; else the values of lists become text.

    Raises:
        NotDrawn: there are fewer than two.
    """
    import optuna

    valued = [(one, value) for one in subject.trials if (value := value_of(one, subject)) is not None]
    usable = [(one, value) for one, value in valued if fits(subject.space, one.point)]
    if len(usable) < 2:
        raise NotDrawn(f"{len(usable)} finished trial{'' if len(usable) == 1 else 's'} with a value, 2 are needed")
    names = short_names([dim.path for dim in subject.space.dims])
    direction = "maximize" if subject.goal.mode == "max" else "minimize"
    study = optuna.create_study(direction=direction, sampler=optuna.samplers.RandomSampler())
    choices = {dim.path: _choices(dim, numbers=numbers) for dim in subject.space.dims if dim.is_listed}
    study.add_trials([_told(one, value, subject.space, names, choices) for one, value in usable])
    return study


def _told(
    trial: Trial, value: float, space: Space, names: Mapping[str, str], choices: Mapping[str, Sequence[Any]]
) -> optuna.trial.FrozenTrial:
    import optuna
    from optuna.distributions import CategoricalDistribution

    dims = [dim for dim in space.dims if dim.path in trial.point]
    return optuna.create_trial(
        state=optuna.trial.TrialState.COMPLETE,
        value=value,
        user_attrs={NUMBER: trial.number},
        params={names[dim.path]: _shown(dim, trial.point[dim.path], choices) for dim in dims},
        distributions={
            names[dim.path]: CategoricalDistribution(choices[dim.path]) if dim.is_listed else distribution(dim)
            for dim in dims
        },
    )


def _shown(dim: Dimension, value: Any, choices: Mapping[str, Sequence[Any]]) -> Any:
    if dim.is_listed:
        return choices[dim.path][next(index for index, one in enumerate(dim.values) if same(one, value))]
    return int(value) if dim.kind == "int" else float(value)


def _choices(dim: Dimension, *, numbers: bool) -> list[Any]:
    """The values of a list, or a text for each; where two are cut to the same, each has its place in front."""
    if numbers and all(is_number(value) for value in dim.values):
        return list(dim.values)
    short = [cut(_text(value)) for value in dim.values]
    return short if len(set(short)) == len(short) else [f"{index}: {text}" for index, text in enumerate(short)]


def _text(value: Any) -> str:
    """As YAML would write it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)
