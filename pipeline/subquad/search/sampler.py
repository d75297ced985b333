"""Which point to try next: Optuna's samplers on the study of a candidate's trials.

Points depend on the trials that are known and on nothing else. Optuna's sampler is made for each of
them, with a seed that follows from the search's seed, the candidate and the trial's number. So a
search that was killed goes on with the points that would have come anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler, GPSampler, TPESampler
from optuna.trial import TrialState

from subquad.search.settings import SamplerName
from subquad.search.trial import Trial, identity
from subquad.space import Dimension, Point, Space, seed_of

MODELS: Mapping[str, Callable[..., BaseSampler]] = {
    "tpe": partial(
        TPESampler, n_startup_trials=3, multivariate=True, group=True, constant_liar=True
    ),
    "gp": partial(GPSampler, n_startup_trials=4),
}
"""Samplers that learn. TPE models dimensions with a `when` in groups, and takes trials that run for
bad ones, so that several differ. The others, "random" and "grid", draw from the space.
"""

Worst = Callable[[], Sequence[float] | None]

POINT = "point"
"""Attribute of a trial in Optuna's study: its point. One that was refused has none."""
MAX_SUGGESTED = 20
"""Points that a model is asked for before a random one is taken."""
MAX_DRAWS = 100
"""Random points for one number before those that are left are listed."""


class Sampler:
    """Suggests points of one candidate: a function of its arguments and of the trials there are.

    Points that were tried, or break a constraint, are asked for again; then a random one is taken.

    Args:
        name: "random", "grid", or one of `MODELS`.
        space: what is searched.
        seed: of the search.
        candidate: its label.
        first: points to begin with; settings that they leave out are drawn.

    Raises:
        ConfigError: the space is none for it.
    """

    def __init__(
        self,
        name: SamplerName,
        space: Space,
        seed: int,
        *,
        candidate: str = "",
        first: Sequence[Point] = (),
    ):
        self._name = name
        self._space = space
        self._seed = seed
        self._candidate = candidate
        self._first = first
        if name == "grid":
            space.grid()  # refuses continuous dimensions

    def suggest(self, study: optuna.Study, known: Sequence[Trial], worst: Worst) -> bool:
        """Add the next point to a study, as a trial that runs.

        Points that are refused are added before it: one that breaks a constraint with the worst
        value, so that a model leaves that part of the space; one that was tried as failed, which no
        model looks at.

        Args:
            study: of the trials that are known.
            known: those that were begun, by number; some may still run.
            worst: gives the worst value of each objective so far; None where there is none.

        Returns:
            whether there is one; a finite space may have no point left.

        Raises:
            ConfigError: the constraints leave hardly a point.
        """
        number = len(known)
        tried = {trial.identity for trial in known}
        if number < len(self._first):
            point = self._space.draw(self._seed, number, self._first[number])
        elif self._name in MODELS and self._learned(study, number, tried, worst):
            return True
        else:
            point = self._untried(number, tried)
        if point is None:
            return False
        study.add_trial(
            optuna.create_trial(
                state=TrialState.RUNNING, user_attrs={POINT: point}, **as_optuna(self._space, point)
            )
        )
        return True

    def _learned(
        self,
        study: optuna.Study,
        number: int,
        tried: Collection[str],
        worst: Worst,
    ) -> bool:
        study.sampler = MODELS[self._name](seed=seed_of(self._seed, self._candidate, number))
        for _ in range(MAX_SUGGESTED):
            suggested = study.ask()
            point = self._space.compose(partial(_value_of, suggested))
            is_possible = self._space.keeps(point)
            if is_possible and identity(point) not in tried:
                suggested.set_user_attr(POINT, point)
                return True
            if is_possible or not (values := worst()):
                study.tell(suggested, state=TrialState.FAIL)
            else:
                study.tell(suggested, values)
        return False

    def _untried(self, number: int, tried: Collection[str]) -> Point | None:
        """A random point that was not tried. A space with a continuous dimension always has one."""
        seed = self._seed
        for attempt in range(1, MAX_DRAWS + 1):
            point = self._space.draw(seed, number)
            if identity(point) not in tried:
                return point
            seed = seed_of(self._seed, attempt)
        if not self._space.is_finite:
            return self._space.draw(self._seed, number)
        left = [point for point in self._space.grid() if identity(point) not in tried]
        return left[seed_of(self._seed, number, "left") % len(left)] if left else None


def as_optuna(space: Space, point: Point) -> dict[str, Any]:
    """A point in Optuna's words: `params` and `distributions`."""
    params: dict[str, Any] = {}
    distributions: dict[str, Any] = {}
    for dim in space.ordered:
        if dim.path in point:
            value = point[dim.path]
            distribution = dim.distribution
            if isinstance(distribution, CategoricalDistribution):
                value = distribution.to_internal_repr(value)
                distribution = CategoricalDistribution(range(len(distribution.choices)))
            params[dim.path] = value
            distributions[dim.path] = distribution
    return {"params": params, "distributions": distributions}


def _value_of(trial: optuna.Trial, dim: Dimension) -> Any:
    values = dim.distribution
    if isinstance(values, CategoricalDistribution):
        # their places, as a sampler keys its trials by values, and a list is no key
        return values.choices[trial.suggest_categorical(dim.path, range(len(values.choices)))]
    if isinstance(values, IntDistribution):
        step = values.step
        return trial.suggest_int(dim.path, values.low, values.high, log=values.log, step=step)
    return trial.suggest_float(dim.path, values.low, values.high, log=values.log)
