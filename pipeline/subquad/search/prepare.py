"""Everything that can be refused before a search starts, what its trials are made with, and what
it would cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

from subquad.drivers.executor import Executor
from subquad.drivers.size import reference_of
from subquad.errors import ConfigError, UserError
from subquad.experiment import Run
from subquad.search.candidates import Candidate
from subquad.search.final import check_final
from subquad.search.fitting import Fitted, Fitter
from subquad.search.narrow import narrowed
from subquad.search.search import Search
from subquad.search.timing import SearchCosts
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
            match, size = self.fitter.match, self.search.study.match
            if match == "none" and not size:
                raise
            setting = f"trial.match={match}" if match != "none" else f"match: {size}"
            raise ConfigError(f"{setting}: {candidate.label}: {error}") from error

    def charge(self, fitted: Fitted) -> float:
        """What a trial is expected to use of its candidate's budget."""
        unit, runs = self.search.settings.limit.unit, self.search.settings.seeds_per_trial
        if unit == "trials":
            return 1.0
        used = fitted.flops if unit == "flops" else fitted.seconds
        assert used is not None, "refused where FLOPs cannot be counted"
        return runs * used

    def first_points(self, candidate: Candidate) -> Iterator[Trial]:
        """Trials as they would be given out, by number: waiting, or infeasible with the reason."""
        sampler = self.search.sampler(candidate)
        known: list[Trial] = []
        while (point := sampler.suggest(len(known), known)) is not None:
            number = len(known)
            trial = Trial(candidate=candidate.label, number=number, point=point, state="waiting")
            try:
                self.fitter.fit(candidate, point)
            except UserError as error:
                trial = replace(trial, state="infeasible", reason=str(error))
            known.append(trial)
            yield trial


def _unstored(run: Run) -> Run:
    """The run, kept in its folder alone."""
    resources = run.experiment.resources.model_copy(update={"storage": None})
    return replace(run, experiment=run.experiment.model_copy(update={"resources": resources}))


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
    settings, study = search.settings, search.study
    check_final(search)
    runs: list[Run] = []
    for option in search.candidates:
        search.sampler(option)
        search.pruner(option)
        runs.append(replace(option.run, label=option.label, axes=option.axes))
    places = map(_unstored, runs) if measure else runs  # a dry run writes no probe either
    executor.preflight(replace(study, runs=tuple(places)))
    costs = executor.there(SearchCosts, runs[0].experiment.resources)
    if fresh:
        for option in search.candidates:
            costs.check_metric(option.run)
        if measure or settings.limit.unit == "seconds":
            search = _timed(search, costs)
        candidates = tuple(narrowed(option, costs) for option in search.candidates)
        search = replace(search, candidates=candidates)
    costs = executor.freed(costs)
    first = search.candidates[0]
    amount = 0.0
    if settings.match == "flops":
        # what the reference candidate, the first one, has of what is matched, as it stands
        steps, _ = costs.steps(first.run)
        amount = float(steps * _counted(first, costs, "trial.match=flops"))
    sizes: dict[str, int] = {}
    for option in search.candidates if study.match else ():
        sizes[option.label] = costs.parameters(reference_of(option.run, runs))
    fitter = Fitter(costs, settings.match, amount, settings.limit.unit == "flops", sizes)
    prepared = Prepared(search, fitter)
    for option in search.candidates if fresh else ():
        fitted = prepared.own_trial(option)
        if settings.cost == "flops":
            _counted(option, costs, "--cost flops")
        _refuse_small_budget(prepared, option, fitted)
        _refuse_idle_pruner(settings.pruner, option, fitted)
        _refuse_hopeless(prepared, option)
    return prepared


def _timed(search: Search, costs: SearchCosts) -> Search:
    timings = costs.timings({candidate.label: candidate.run for candidate in search.candidates})
    candidates = [
        replace(candidate, timing=timings[candidate.label]) for candidate in search.candidates
    ]
    return replace(search, candidates=tuple(candidates))


def _counted(candidate: Candidate, costs: SearchCosts, option: str) -> int:
    cost = costs.cost(candidate.run)
    if not cost.flops_per_step:
        why = "; ".join(cost.uncounted)
        raise ConfigError(f"{option}: the FLOPs of {candidate.label} cannot be counted ({why})")
    return cost.flops_per_step


def _refuse_small_budget(prepared: Prepared, candidate: Candidate, fitted: Fitted) -> None:
    settings = prepared.search.settings
    option, budget = f"--budget {settings.budget}", settings.limit
    if budget.unit == "flops":
        _counted(candidate, prepared.fitter.costs, option)
    needed = prepared.charge(fitted)
    if needed > budget.amount:
        unit = "FLOPs" if budget.unit == "flops" else "s of training"
        raise ConfigError(
            f"{option}: too small for one trial of {candidate.label}, which takes "
            f"about {needed:.3g} {unit}; "
            "give more, or shorten it with train.steps"
        )


def _refuse_idle_pruner(pruner: str, candidate: Candidate, fitted: Fitted) -> None:
    if pruner == "none" or (fitted.every or fitted.steps) < fitted.steps:
        return
    why = "train.eval_every_epochs and train.eval_every_steps are null; give one of them, or"
    if fitted.every:
        why = (
            f"{candidate.label} is evaluated every {fitted.every:,} steps and has "
            f"{fitted.steps:,}; lower train.eval_every_epochs or train.eval_every_steps, or use"
        )
    message = (
        f"--pruner {pruner}: never sees an evaluation before a trial's last step, as "
        f"{why} --pruner none"
    )
    raise ConfigError(message)


def _refuse_hopeless(prepared: Prepared, candidate: Candidate) -> None:
    """Refuse a search whose first points, as many as would end it, cannot run."""
    reasons = []
    for trial in islice(prepared.first_points(candidate), MAX_FRUITLESS):
        if trial.state != "infeasible":
            return
        reasons.append(trial.reason)
    count = len(reasons)
    which = f"the first {count} points" if count == MAX_FRUITLESS else f"all {count} points"
    space = prepared.search.settings.space
    raise ConfigError(
        f"space {space}: {which} of {candidate.label} are infeasible, such as: {reasons[0]}"
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
    settings, space = prepared.search.settings, candidate.space
    own = prepared.own_trial(candidate)
    trials = int(settings.limit.amount / prepared.charge(own) + 1e-9)
    size = space.size()
    if size is not None:
        trials = min(trials, size)
    drawn = list(islice(prepared.first_points(candidate), DRAWN))
    points = []
    for trial in drawn[: min(FIRST, trials)]:
        points.append({"number": trial.number, "point": trial.point, "infeasible": trial.reason})
    runs = settings.seeds_per_trial
    return {
        "label": candidate.label,
        "trials": trials,
        "dimensions": space.dimensions,
        "grid": size,
        "parameters": own.cost.parameters if own.cost else None,
        "steps": own.steps,
        "flops": None if own.flops is None else runs * own.flops,
        "trial_seconds": runs * own.seconds,
        "seconds": trials * runs * own.seconds + settings.final_seeds * own.seconds,
        "timing": candidate.timing,
        "drawn": len(drawn),
        "infeasible": sum(trial.state == "infeasible" for trial in drawn),
        "points": points,
    }
