"""Everything that can be refused before a search starts, what its trials are made with, and what
it would cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice

from optuna.storages import InMemoryStorage

from subquad.errors import ConfigError, UserError
from subquad.execution.executor import Executor
from subquad.experiment import Run
from subquad.preparation.size import reference_of
from subquad.search.candidates import Candidate
from subquad.search.fitting import Fitted, Fitter
from subquad.search.journal import Trials
from subquad.search.narrow import narrowed
from subquad.search.search import Search
from subquad.search.timing import SearchCosts, Timing
from subquad.search.trial import Trial, Values

MAX_FRUITLESS = 50
"""Infeasible points and failed trials in a row, after which a candidate's search ends."""

FIRST, DRAWN = 5, 20
"""Points that a dry run shows, and that it looks at."""


@dataclass(frozen=True)
class Prepared:
    """A search that can start.

    Attributes:
        search: with what was measured for it.
        fitter: makes the experiments of its points.
    """

    search: Search
    fitter: Fitter

    def own_trial(self, candidate: Candidate) -> Fitted:
        """The trial of the candidate's own settings, matched as all are.

        Raises:
            ConfigError: it cannot be matched.
        """
        try:
            return self.fitter.matched(candidate, {})
        except UserError as error:
            if self.fitter.match != "none":
                setting = f"trial.match={self.fitter.match}"
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
                self.fitter.fit(candidate, point)
            except UserError as error:
                trial = replace(trial, state="infeasible", reason=str(error))
            trials.record(trial)
            yield trial


def prepare(
    search: Search, executor: Executor, *, measure: bool = False, fresh: bool = True
) -> Prepared:
    """Look at data, models, sampler, pruner and budget.

    Args:
        executor: will train the trials.
        measure: time a few steps even where no setting of the search needs it.
        fresh: before a start; a search that goes on has passed its checks, and keeps what was
            measured.

    Raises:
        UserError: what cannot work, in one line.
    """
    runs: list[Run] = []
    for candidate in search.candidates:
        search.sampler(candidate)
        search.pruner(candidate)
        runs.append(replace(candidate.run, label=candidate.label, axes=candidate.axes))
    executor.preflight(replace(search.study, runs=tuple(runs)), writes=not measure)
    costs = executor.there(SearchCosts, runs[0].experiment.resources)
    if fresh:
        search = _looked_at(
            search, costs, measure=measure or search.settings.limit.unit == "seconds"
        )
    prepared = Prepared(search, _fitter(search, executor.freed(costs), runs))
    if fresh:
        for candidate in search.candidates:
            _refuse_unfit(prepared, candidate)
    return prepared


def _looked_at(search: Search, costs: SearchCosts, *, measure: bool) -> Search:
    """The search with what its candidates' data and models tell: timings, and values that fit."""
    for candidate in search.candidates:
        costs.check_metric(candidate.run)
    timings: Mapping[str, Timing] = {}
    if measure:
        timings = costs.timings({candidate.label: candidate.run for candidate in search.candidates})
    candidates = [
        narrowed(replace(candidate, timing=timings.get(candidate.label)), costs)
        for candidate in search.candidates
    ]
    return replace(search, candidates=tuple(candidates))


def _fitter(search: Search, costs: SearchCosts, runs: Sequence[Run]) -> Fitter:
    settings = search.settings
    amount = 0.0
    if settings.match == "flops":
        # what the reference candidate, the first one, has of what is matched, as it stands
        first = search.candidates[0]
        steps, _ = costs.steps(first.run)
        amount = float(steps * _counted(first, costs, "trial.match=flops"))
    sizes: dict[str, int] = {}
    if search.study.match:
        for candidate in search.candidates:
            sizes[candidate.label] = costs.parameters(reference_of(candidate.run, runs))
    return Fitter(costs, settings.match, amount, settings.limit.unit == "flops", sizes)


def _refuse_unfit(prepared: Prepared, candidate: Candidate) -> None:
    settings = prepared.search.settings
    fitted = prepared.own_trial(candidate)
    if settings.cost == "flops":
        _counted(candidate, prepared.fitter.costs, "--cost flops")
    _refuse_small_budget(prepared, candidate, fitted)
    _refuse_idle_pruner(settings.pruner, candidate, fitted)
    _refuse_hopeless(prepared, candidate)


def _counted(candidate: Candidate, costs: SearchCosts, option: str) -> int:
    cost = costs.cost(candidate.run)
    if not cost.flops_per_step:
        why = "; ".join(cost.uncounted)
        raise ConfigError(f"{option}: the FLOPs of {candidate.label} cannot be counted ({why})")
    return cost.flops_per_step


def _refuse_small_budget(prepared: Prepared, candidate: Candidate, fitted: Fitted) -> None:
    settings = prepared.search.settings
    option = f"--budget {settings.budget}"
    budget = settings.limit
    if budget.unit == "flops":
        _counted(candidate, prepared.fitter.costs, option)
    needed = prepared.charge(fitted)
    if needed > budget.amount:
        raise ConfigError(
            f"{option}: too small for one trial of {candidate.label}, which takes "
            f"about {needed:.3g} {budget.unit_words}; "
            "give more, or shorten it with train.steps"
        )


def _refuse_idle_pruner(pruner: str, candidate: Candidate, fitted: Fitted) -> None:
    every = fitted.every
    if pruner == "none" or (every and every < fitted.steps):
        return
    why = "train.eval_every_epochs and train.eval_every_steps are null; give one of them, or"
    if every:
        why = (
            f"{candidate.label} is evaluated every {every:,} steps and has "
            f"{fitted.steps:,}; lower train.eval_every_epochs or train.eval_every_steps, or use"
        )
    raise ConfigError(
        f"--pruner {pruner}: never sees an evaluation before a trial's last step, as "
        f"{why} --pruner none"
    )


def _refuse_hopeless(prepared: Prepared, candidate: Candidate) -> None:
    """Refuse a search whose first points, as many as would end it, cannot run."""
    reasons = []
    for trial in islice(prepared.first_points(candidate), MAX_FRUITLESS):
        if trial.state != "infeasible":
            return
        reasons.append(trial.reason)
    which = "the first" if len(reasons) == MAX_FRUITLESS else "all"
    space = prepared.search.settings.space
    raise ConfigError(
        f"space {space}: {which} {len(reasons)} points of {candidate.label} are infeasible, "
        f"such as: {reasons[0]}"
    )


def estimate(prepared: Prepared) -> Values:
    """What a search would do, as plain values; seconds are of training, by a few timed steps on
    this machine.

    `at_least`: a pruner ends trials early, which leaves room for more of them than are counted.
    """
    search = prepared.search
    settings = search.settings
    rows = [_estimated(prepared, candidate) for candidate in search.candidates]
    seconds = sum(row["seconds"] for row in rows)
    resources = search.candidates[0].run.experiment.resources
    gpus = resources.most * resources.gpus_per_worker
    return {
        "name": search.study.name,
        "settings": settings.values(),
        "candidates": rows,
        "trials": sum(row["trials"] for row in rows),
        "at_least": settings.pruner != "none" and settings.limit.unit != "trials",
        "seconds": seconds,
        "final_runs": settings.final_seeds * len(rows),
        "gpus": gpus,
        "gpu_hours": gpus * seconds / 3600,
    }


def _estimated(prepared: Prepared, candidate: Candidate) -> Values:
    """A candidate's row: as many trials of its own cost as fit, and no more than there are
    points.
    """
    settings = prepared.search.settings
    own = prepared.own_trial(candidate)
    trials = int(settings.limit.amount / prepared.charge(own) + 1e-9)
    size = candidate.space.size()
    if size is not None:
        trials = min(trials, size)
    drawn = list(islice(prepared.first_points(candidate), DRAWN))
    points = [
        {"number": trial.number, "point": trial.point, "infeasible": trial.reason}
        for trial in drawn[: min(FIRST, trials)]
    ]
    trial_seconds = settings.seeds_per_trial * own.seconds
    return {
        "label": candidate.label,
        "trials": trials,
        "dimensions": candidate.space.dimensions,
        "grid": size,
        "parameters": own.cost.parameters if own.cost else None,
        "steps": own.steps,
        "flops": None if own.flops is None else settings.seeds_per_trial * own.flops,
        "trial_seconds": trial_seconds,
        "seconds": trials * trial_seconds + settings.final_seeds * own.seconds,
        "timing": candidate.timing,
        "drawn": len(drawn),
        "infeasible": sum(trial.state == "infeasible" for trial in drawn),
        "points": points,
    }
