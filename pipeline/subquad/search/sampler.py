"""Which point to try next: Optuna's samplers on a study of the trials in the search's folder.

Points depend on the trials that are known and on nothing else. Optuna's sampler is made for each of
them, with a seed that follows from the search's seed, the candidate and the trial's number. So a
search that was killed goes on with the points that would have come anyway. What is kept between two
points is only what Optuna's study has of each trial.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler, BruteForceSampler, GPSampler, RandomSampler, TPESampler
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState

from subquad.search.optuna_study import KeptTrial, quiet, study_of
from subquad.search.settings import SamplerName
from subquad.search.trial import Goal, Trial, identity, objectives
from subquad.space import Dimension, Point, Space, seed_of

SAMPLERS: Mapping[SamplerName, Callable[..., BaseSampler]] = {
    "random": RandomSampler,
    "grid": BruteForceSampler,
    "tpe": partial(
        TPESampler, n_startup_trials=3, multivariate=True, group=True, constant_liar=True
    ),
    "gp": partial(GPSampler, n_startup_trials=4),
}
"""TPE models dimensions with a `when` in groups, and takes trials that run for bad ones, so that
several differ.
"""

MAX_SUGGESTED = 20
"""Points that a model is asked for before a random one is taken."""
MAX_DRAWS = 100
"""Random points for one number before those that are left are listed."""


@dataclass
class _Facts:
    """What a sampler has to know of a trial, found out once for one that ended.

    Attributes:
        is_usable: its point is one of the space.
        values: the objectives; None where one is not known.
        kept: the trial as Optuna's study has it, None before it is first part of one.
        worst: the worst objectives of all trials when `kept` was made.
    """

    trial: Trial
    identity: str
    is_usable: bool
    values: Sequence[float] | None
    kept: KeptTrial | None = None
    worst: Sequence[float] = ()


class Sampler:
    """Suggests points of one candidate: a function of its arguments and of the trials there are.

    Points that were tried, or break a constraint, are asked for again; then a random one is taken.

    Args:
        name: see `SAMPLERS`.
        space: what is searched.
        goal: what is better.
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
        goal: Goal,
        seed: int,
        *,
        candidate: str = "",
        first: Sequence[Point] = (),
    ):
        self.name: SamplerName = name
        self.space = space
        self.goal = goal
        self._seed = seed
        self._candidate = candidate
        self._first = first
        self._found: dict[int, _Facts] = {}
        if name == "grid":
            space.grid()  # refuses continuous dimensions

    def suggest(self, number: int, known: Sequence[Trial]) -> Point | None:
        """The point of trial `number`; None where a finite space has no point left.

        Args:
            number: 0, 1, 2, ...
            known: trials with smaller numbers, by number; some may still run.

        Raises:
            ConfigError: the constraints leave hardly a point.
        """
        if number < len(self._first):
            return self.space.draw(self._seed, number, self._first[number])
        found = [self._facts(trial) for trial in known]
        tried = {facts.identity for facts in found}
        if self.name == "random":
            return self._untried(number, tried)
        point = self._suggested(number, found, tried)
        if not point:
            point = self._untried(number, tried)
        return point

    def _facts(self, trial: Trial) -> _Facts:
        """What is known of a trial; of one that ended, the same object comes again."""
        facts = self._found.get(trial.number)
        if facts is None or facts.trial is not trial:
            facts = _Facts(
                trial,
                identity=identity(trial.point),
                is_usable=self.space.holds(trial.point),
                values=objectives(trial, self.goal),
            )
            self._found[trial.number] = facts
        return facts

    def _suggested(self, number: int, found: Sequence[_Facts], tried: Set[str]) -> Point | None:
        usable = [facts for facts in found if facts.is_usable]
        worst = _worst(self.goal, [facts.values for facts in usable if facts.values])
        seed = seed_of(self._seed, self._candidate, number)
        with quiet():
            trials = [self._kept(facts, worst) for facts in usable]
            sampler = SAMPLERS[self.name](seed=seed)
            study = study_of(trials, self.goal, InMemoryStorage(), sampler)
            for _ in range(MAX_SUGGESTED):
                suggested = study.ask()
                point = self.space.compose(partial(_value_of, suggested))
                is_tried = identity(point) in tried
                if self.space.keeps(point) and not is_tried:
                    return point
                if worst and self.name != "grid":
                    study.tell(suggested, worst)  # or a model of the values would have it again
        return None

    def _kept(self, facts: _Facts, worst: Sequence[float]) -> KeptTrial:
        if facts.kept is None or facts.worst != worst:
            facts.kept = KeptTrial(self._frozen(facts.trial, facts.values, worst))
            facts.worst = worst
        return facts.kept

    def _frozen(
        self, trial: Trial, values: Sequence[float] | None, worst: Sequence[float]
    ) -> FrozenTrial:
        """A trial as Optuna's study has it.

        Failed and infeasible ones, and those without a value, are told with the worst value there
        is: Optuna ignores what failed, and would suggest it again.
        """
        params: dict[str, Any] = {}
        distributions: dict[str, BaseDistribution] = {}
        for dim in self.space.ordered:
            path = dim.path
            if path in trial.point:
                value = trial.point[path]
                distribution = dim.distribution
                if isinstance(distribution, CategoricalDistribution):
                    value = distribution.to_internal_repr(value)
                    distribution = CategoricalDistribution(range(len(distribution.choices)))
                params[path] = value
                distributions[path] = distribution
        create = partial(
            optuna.create_trial,
            params=params,
            distributions=distributions,
        )
        if not trial.ended:
            return create(state=TrialState.RUNNING)
        learned: dict[int, float] = {}
        if trial.state == "pruned" and self.goal.cost == "none":
            learned = {evaluation.step: evaluation.value for evaluation in trial.curve}
        is_told_worst = bool(worst) and not learned
        if values is None and not is_told_worst:
            return create(state=TrialState.PRUNED, intermediate_values=learned)
        return create(state=TrialState.COMPLETE, values=values or worst)

    def _untried(self, number: int, tried: Set[str]) -> Point | None:
        """A random point that was not tried. A space with a continuous dimension always has one."""
        seed = self._seed
        for attempt in range(1, MAX_DRAWS + 1):
            point = self.space.draw(seed, number)
            if identity(point) not in tried:
                return point
            seed = seed_of(self._seed, attempt)
        if not self.space.is_finite:
            return self.space.draw(self._seed, number)
        grid = self.space.grid()
        left = [point for point in grid if identity(point) not in tried]
        if not left:
            return None
        return left[seed_of(self._seed, number, "left") % len(left)]


def _value_of(trial: optuna.Trial, dim: Dimension) -> Any:
    values = dim.distribution
    if isinstance(values, CategoricalDistribution):
        # their places, as a sampler keys its trials by values, and a list is no key
        return values.choices[trial.suggest_categorical(dim.path, range(len(values.choices)))]
    if isinstance(values, IntDistribution):
        return trial.suggest_int(
            dim.path,
            values.low,
            values.high,
            log=values.log,
            step=values.step,
        )
    return trial.suggest_float(dim.path, values.low, values.high, log=values.log)


def _worst(goal: Goal, values: Sequence[Sequence[float]]) -> list[float]:
    """The worst value of each objective; none where there are no values."""
    columns = zip(*values, strict=True)
    return [
        min(column) if direction == "maximize" else max(column)
        for direction, column in zip(goal.directions, columns, strict=False)
    ]
