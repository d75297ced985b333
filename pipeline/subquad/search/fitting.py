"""From a point of a space to the experiment of a trial: settings laid over the candidate's, and
what matching adds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from math import ceil

from optuna.storages import InMemoryStorage

from subquad.cost import Cost
from subquad.errors import ConfigError, UserError
from subquad.experiment import Run
from subquad.experiment.schema import Train
from subquad.preparation.size import width_for
from subquad.search.candidates import Candidate
from subquad.search.journal import Trials
from subquad.search.search import Search
from subquad.search.timing import SearchCosts
from subquad.search.trial import Trial, Values
from subquad.space import Point

TOLERANCE = 0.05
"""Largest difference in FLOPs that still counts as equal."""


@dataclass(frozen=True)
class Fitted:
    """A trial that can be trained.

    Attributes:
        run: its experiment.
        values: all that is laid over the candidate's experiment, by dotted key.
        steps: of the whole trial.
        every: steps between its evaluations; None where there is one at the end only.
        cost: of a step; None where the model could not be built here, which the trial itself will
            tell.
        seconds: expected; 0 where nothing was measured.
    """

    run: Run
    values: Values
    steps: int
    every: int | None
    cost: Cost | None
    seconds: float = 0.0

    @property
    def flops_per_step(self) -> int | None:
        return self.cost and self.cost.flops_per_step

    @property
    def flops(self) -> float | None:
        """Of the whole trial; None where they cannot be counted."""
        return float(self.steps * self.flops_per_step) if self.flops_per_step else None


@dataclass(frozen=True)
class Prepared:
    """A search that can start: it makes experiments of points.

    Attributes:
        search: with what was measured for it.
        costs: data and costs, shared by all candidates.
        amount: FLOPs of a trial of the reference candidate, where `trial.match` asks for them.
        sizes: parameters of each candidate's models, by label, where the study asks for `match`.
    """

    search: Search
    costs: SearchCosts
    amount: float
    sizes: Mapping[str, int]

    def own_trial(self, candidate: Candidate) -> Fitted:
        """The trial of the candidate's own settings, matched as all are.

        Raises:
            ConfigError: it cannot be matched.
        """
        try:
            return self.matched(candidate, {})
        except UserError as error:
            if self.search.settings.match != "none":
                setting = f"trial.match={self.search.settings.match}"
            elif self.search.study.match:
                setting = f"match: {self.search.study.match}"
            else:
                raise
            raise ConfigError(f"{setting}: {candidate.label}: {error}") from error

    def charge(self, fitted: Fitted) -> float:
        """What a trial is expected to use of its candidate's budget."""
        settings = self.search.settings
        unit = settings.limit.unit
        if unit == "trials":
            return 1.0
        used = fitted.flops if unit == "flops" else fitted.seconds
        assert used is not None, "refused where FLOPs cannot be counted"
        return settings.seeds_per_trial * used

    def first_points(self, candidate: Candidate) -> Iterator[Trial]:
        """Trials as they would be given out, by number: running, or infeasible with the reason."""
        sampler = self.search.sampler(candidate)
        trials = Trials(candidate, InMemoryStorage())
        for number in count():
            point = trials.ask(sampler)
            if point is None:
                return
            trial = Trial(candidate=candidate.label, number=number, point=point, state="running")
            try:
                self.fit(candidate, point)
            except UserError as error:
                trial = replace(trial, state="infeasible", reason=str(error))
            trials.record(trial)
            yield trial

    def fit(self, candidate: Candidate, point: Point) -> Fitted:
        """The trial of a point.

        Raises:
            UserError: plugin or data refuse it, it cannot be matched, or not be charged to the
                budget.
        """
        fitted = self.matched(candidate, candidate.space.settings(point))
        is_counted = self.search.settings.limit.unit == "flops"
        if is_counted and not fitted.flops_per_step:
            raise ConfigError(
                f"its FLOPs cannot be counted{_why(fitted.cost)}, and the budget is one of FLOPs"
            )
        return fitted

    def matched(self, candidate: Candidate, values: Values) -> Fitted:
        """The trial of settings, with what `match` and `trial.match` add to them.

        Raises:
            UserError: plugin or data refuse it, or it cannot be matched.
        """
        target = self.sizes.get(candidate.label)
        if target is not None:
            values |= width_for(
                target, lambda width: candidate.laid({**values, **width}), self.costs
            )
        if self.search.settings.match != "none":
            values |= self._length(candidate, values)
        run = candidate.laid(values)
        steps, per_epoch = self.costs.steps(run)
        every = _evaluated_every(run.experiment.train, per_epoch)
        cost = self._cost(run)
        of_step, of_evaluation = self._seconds(candidate, cost)
        seconds = steps * of_step + _evaluations(steps, every) * of_evaluation
        return Fitted(run, values, steps, every, cost, seconds)

    def _cost(self, run: Run) -> Cost | None:
        try:
            return self.costs.cost(run)
        except UserError:
            raise
        except (Exception, SystemExit):
            # a plugin's own; the trial fails with it, and its traceback is kept
            return None

    def _seconds(self, candidate: Candidate, cost: Cost | None) -> tuple[float, float]:
        """Expected seconds of a step and of an evaluation: the candidate's own, in proportion to
        the counted FLOPs.
        """
        timing = candidate.timing
        if timing is None:
            return 0.0, 0.0
        own = self.costs.cost(candidate.run).flops_per_step
        counted = cost and cost.flops_per_step
        scale = counted / own if counted and own else 1.0
        return timing["step"] * scale, timing["evaluation"] * scale

    def _length(self, candidate: Candidate, values: Values) -> Values:
        run = candidate.laid(values)
        steps, per_epoch = self.costs.steps(run)
        cost = self._cost(run)
        if cost is None or not cost.flops_per_step:
            raise ConfigError(f"its FLOPs cannot be counted{_why(cost)}, so they cannot be matched")
        wanted = _steps_of_flops(self.amount, cost.flops_per_step)
        return _of_length(run.experiment.train, steps, per_epoch, wanted)


def _why(cost: Cost | None) -> str:
    return "" if cost is None else f" ({'; '.join(cost.uncounted)})"


def _evaluated_every(train: Train, steps_per_epoch: int) -> int | None:
    """Steps between evaluations; None where there is one at the end only."""
    if train.eval_every_epochs is None:
        return train.eval_every_steps
    return train.eval_every_epochs * steps_per_epoch


def _evaluations(steps: int, every: int | None) -> int:
    """How often a run of `steps` steps is evaluated; there is always one at its end."""
    return ceil(steps / (every or steps))


def _of_length(train: Train, own_steps: int, steps_per_epoch: int, steps: int) -> Values:
    """Settings for a run of `steps` steps that evaluates as often, and warms up for as large a part
    of it, as before.

    Args:
        train: the run's settings, for `own_steps` steps.
        steps: wanted, at least 1.
    """
    if steps == own_steps:
        return {}
    every = _evaluated_every(train, steps_per_epoch)
    if every is not None:
        every = min(steps, max(1, every * steps // own_steps))
    values: Values = {
        "train.epochs": None,
        "train.steps": steps,
        "train.eval_every_epochs": None,
        "train.eval_every_steps": every,
    }
    if train.warmup_steps:
        values["train.warmup_steps"] = min(steps - 1, round(train.warmup_steps * steps / own_steps))
    if train.checkpoint_every_steps is not None:
        values["train.checkpoint_every_steps"] = min(steps, train.checkpoint_every_steps)
    return values


def _steps_of_flops(whole: float, of_one_step: int) -> int:
    steps = max(1, round(whole / of_one_step))
    off = abs(steps * of_one_step - whole) / whole
    if off > TOLERANCE:
        raise ConfigError(
            f"no number of steps has {whole:.3g} FLOPs within {TOLERANCE:.0%}: the "
            f"nearest, {steps}, is {off:.0%} off; "
            "longer trials come nearer (train.steps, train.epochs)"
        )
    return steps
