"""Gaussian process, by Optuna: a smooth model of the metric over the whole space, made anew for each suggestion.

Reference: Snoek et al., "Practical Bayesian optimization of machine learning algorithms", NIPS 2012; Optuna's
`GPSampler` (Matern 5/2 kernel, expected improvement). Departures: see `modelled.py`; and of lists of numbers the model
knows the order. It needs fewer trials than the tree-structured estimator, and grows dearer with their number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from subquad.errors import ConfigError
from subquad.plugin import Config, param
from subquad.search.objective import falling
from subquad.search.searcher import Goal
from subquad.search.searchers import optuna_trials
from subquad.search.searchers.modelled import Modelled
from subquad.search.trial import Evaluation, Trial, best_of
from subquad.space import Dimension, Space
from subquad.space.dimension import is_number
from subquad.space.draw import word

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution


class GPSettings(Config):
    startup: int = param(4, ge=1, meaning="trials with a value before the model decides; until then points are random")


class GP(Modelled):
    """Suggests where the expected improvement over the best trial is largest.

    A dimension that a point does not have, for its `when` does not hold, stands at its middle there: the model would
    leave out dimensions that only some trials have. Pruned trials count by where they would have got, had they learned
    as much more as the finished ones did in the median, and never as better than the median of these; trials that run,
    failed or are infeasible as the worst there is.

    Raises:
        ConfigError: the goal has two objectives.
        UserError: Optuna is not installed.
    """

    name = "gp"
    schema = GPSettings

    def __init__(self, space: Space, goal: Goal, seed: int, settings: GPSettings | None = None):
        if goal.cost != "none":
            raise ConfigError("searcher: gp has one objective; with --cost use tpe")
        self.settings = settings or GPSettings()
        super().__init__(space, goal, seed, self.settings.startup)

    def study(self, number: int, known: Sequence[Trial]) -> optuna.Study:
        import optuna

        sampler = optuna.samplers.GPSampler(
            seed=word(self.seed, number, "gp", 0) % 2**32,
            n_startup_trials=0,
            deterministic_objective=False,
        )
        study = optuna.create_study(sampler=sampler, direction="minimize")
        values = expected(known, self.goal)
        worst = max(values.values(), default=0.0)
        distributions = self._distributions()
        for trial in known:
            params = {dim.path: _encoded(dim, trial.point) for dim in self.space.dims}
            study.add_trial(
                optuna.create_trial(params=params, distributions=distributions, value=values.get(trial.number, worst))
            )
        return study

    def ask(self, study: optuna.Study) -> optuna.Trial:
        """A new trial that has every dimension: the model leaves out those that some trials do not have."""
        return study.ask(self._distributions())

    def _distributions(self) -> dict[str, BaseDistribution]:
        return {dim.path: _distribution(dim) for dim in self.space.dims}

    def value(self, asked: optuna.Trial, dim: Dimension) -> Any:
        if _is_ordered(dim):
            return sorted(dim.values)[asked.suggest_int(dim.path, 0, len(dim.values) - 1)]
        return optuna_trials.suggested(asked, dim)

    def turned_down(self, study: optuna.Study, asked: optuna.Trial) -> None:
        """Tell what is known of the point once more, which leaves less to expect there; else the worst there is."""
        complete = [one for one in study.get_trials(deepcopy=False) if one.value is not None]
        values = [one.value or 0.0 for one in complete]
        there = [value for one, value in zip(complete, values, strict=True) if one.params == asked.params]
        study.tell(asked, (there or [max(values)])[0])


def expected(known: Sequence[Trial], goal: Goal) -> dict[int, float]:
    """What trials came to or would have come to, by number; less is better. Trials without a value are left out.

    Args:
        known: any trials.
        goal: one objective.
    """
    finished = {one.number: falling(best.value, goal.mode) for one, best in _valued(known, goal, "finished")}
    middle = median(finished.values()) if finished else -math.inf
    found = dict(finished)
    for trial, best in _valued(known, goal, "pruned"):
        share = trial.steps / trial.total_steps if trial.total_steps else 1.0
        more = [finished[one.number] - there for one, there in _at(known, share, goal) if one.number in finished]
        found[trial.number] = max(falling(best.value, goal.mode) + (median(more) if more else 0.0), middle)
    return found


def _valued(known: Sequence[Trial], goal: Goal, state: str) -> list[tuple[Trial, Evaluation]]:
    trials = [trial for trial in known if trial.state == state]
    return [
        (trial, best) for trial in trials if (best := best_of(trial.curve, goal.mode)) and math.isfinite(best.value)
    ]


def _at(known: Sequence[Trial], share: float, goal: Goal) -> list[tuple[Trial, float]]:
    """The best value of each trial up to a fraction of its steps; less is better."""
    upto = [(trial, tuple(one for one in trial.curve if one.step <= share * trial.total_steps)) for trial in known]
    return [(trial, falling(best.value, goal.mode)) for trial, curve in upto if (best := best_of(curve, goal.mode))]


def _is_ordered(dim: Dimension) -> bool:
    return dim.is_listed and all(is_number(value) for value in dim.values)


def _distribution(dim: Dimension) -> BaseDistribution:
    from optuna.distributions import IntDistribution

    return IntDistribution(0, len(dim.values) - 1) if _is_ordered(dim) else optuna_trials.distribution(dim)


def _encoded(dim: Dimension, point: Mapping[str, Any]) -> Any:
    if dim.path not in point:
        return _middle(dim)
    if _is_ordered(dim):
        return sorted(dim.values).index(point[dim.path])
    return optuna_trials.encoded(dim, point[dim.path])


def _middle(dim: Dimension) -> Any:
    if dim.is_listed:
        return (len(dim.values) - 1) // 2 if _is_ordered(dim) else 0
    low, high = dim.low, dim.high
    middle = math.sqrt(low * high) if dim.log else (low + high) / 2
    if dim.kind != "int":
        return middle
    return int(low) + round((middle - low) / (dim.step or 1)) * (dim.step or 1)
