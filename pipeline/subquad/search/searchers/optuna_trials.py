"""Our trials and dimensions as Optuna's.

Everything is minimised. With one objective a trial's value is its rank, which is all that the estimator looks at: so
ties of the metric are broken by loss.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from subquad.search.objective import cost_of, falling, merit
from subquad.search.searcher import Goal
from subquad.search.trial import Trial, best_of
from subquad.space import Dimension, Space
from subquad.space.dimension import same
from subquad.space.draw import tidy

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

Values = list[float]


def fits(space: Space, point: Mapping[str, Any]) -> bool:
    """Whether a point has a possible value for each dimension that is active in it, and nothing else."""
    active = [dim for dim in space.dims if space.is_active(dim, point)]
    return point.keys() == {dim.path for dim in active} and all(dim.can_be(point[dim.path]) for dim in active)


def frozen(space: Space, goal: Goal, trials: Sequence[Trial]) -> list[FrozenTrial]:
    """Trials for a study.

    Failed and infeasible ones, and those without a value, are told as pruned before their first evaluation: Optuna
    would ignore what failed, and suggest it again; of pruned ones these are the worst.
    """
    values = _values(goal, trials)
    return [_frozen(space, goal, trial, values.get(trial.number)) for trial in trials]


def _frozen(space: Space, goal: Goal, trial: Trial, values: Values | None) -> FrozenTrial:
    import optuna

    state = optuna.trial.TrialState
    dims = [dim for dim in space.dims if dim.path in trial.point]
    told: dict[str, Any] = {
        "params": {dim.path: encoded(dim, trial.point[dim.path]) for dim in dims},
        "distributions": {dim.path: distribution(dim) for dim in dims},
    }
    if not trial.ended:
        return optuna.create_trial(state=state.RUNNING, **told)
    if values is not None:
        return optuna.create_trial(state=state.COMPLETE, values=values, **told)
    return optuna.create_trial(state=state.PRUNED, intermediate_values=_intermediate(goal, trial), **told)


def _values(goal: Goal, trials: Sequence[Trial]) -> dict[int, Values]:
    """The values of finished trials by number."""
    finished = [trial for trial in trials if trial.state == "finished"]
    best = {trial.number: found for trial in finished if (found := best_of(trial.curve, goal.mode))}
    if goal.cost != "none":
        return {
            trial.number: [falling(best[trial.number].value, goal.mode), cost_of(trial, goal)]
            for trial in finished
            if trial.number in best and cost_of(trial, goal) > 0
        }
    order = sorted(merit(one, goal.mode) for one in best.values())
    return {number: [float(bisect_left(order, merit(one, goal.mode)))] for number, one in best.items()}


def _intermediate(goal: Goal, trial: Trial) -> dict[int, float]:
    """The curve of a pruned trial; none with two objectives, as part of a trial has no cost to compare."""
    if trial.state != "pruned" or goal.cost != "none":
        return {}
    return {one.step: falling(one.value, goal.mode) for one in trial.curve}


def distribution(dim: Dimension) -> BaseDistribution:
    """A list as a categorical of its indices, ranges as floats and whole numbers."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if dim.is_listed:
        return CategoricalDistribution(range(len(dim.values)))
    if dim.kind == "int":
        return IntDistribution(int(dim.low), int(dim.high), log=dim.log, step=dim.step)
    return FloatDistribution(dim.low, dim.high, log=dim.log)


def encoded(dim: Dimension, value: Any) -> Any:
    if dim.is_listed:
        return next(index for index, one in enumerate(dim.values) if same(one, value))
    return int(value) if dim.kind == "int" else float(value)


def suggested(trial: optuna.Trial, dim: Dimension) -> Any:
    """What Optuna suggests for a dimension, as a value of it."""
    if dim.is_listed:
        return dim.values[trial.suggest_categorical(dim.path, range(len(dim.values)))]
    if dim.kind == "int":
        return trial.suggest_int(dim.path, int(dim.low), int(dim.high), log=dim.log, step=dim.step)
    return tidy(dim, trial.suggest_float(dim.path, dim.low, dim.high, log=dim.log))
