"""Everything that can be refused before a search starts, and what its trials are made with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

from subquad.drivers.executor import Executor
from subquad.drivers.preflight import preflight
from subquad.errors import ConfigError, UserError
from subquad.experiment.settings import one_line
from subquad.search.candidates import Candidate, base_study
from subquad.search.fitting import Fitted, Fitter, Target
from subquad.search.loop import MAX_FRUITLESS
from subquad.search.matching import evaluated_every
from subquad.search.materials import Materials
from subquad.search.measure import check_metric, timings
from subquad.search.sampler import Sampler
from subquad.search.search import Search, pruner_of, sampler_of
from subquad.search.trial import Trial


@dataclass(frozen=True)
class Prepared:
    """A search that can start.

    Attributes:
        search: with what was measured for it.
        materials: data and costs.
        fitters: of each candidate, by label.
        target: what all trials have alike.
    """

    search: Search
    materials: Materials
    fitters: dict[str, Fitter]
    target: Target


def prepare(search: Search, executor: Executor, *, measure: bool = False, fresh: bool = True) -> Prepared:
    """Look at data, models, sampler, pruner and budget.

    Args:
        executor: will train the trials.
        measure: time a few steps even where no setting of the search needs it.
        fresh: before a start; a search that goes on has passed its checks, and keeps what was measured.

    Raises:
        UserError: what cannot work, in one line.
    """
    settings = search.settings
    for one in search.candidates:
        sampler_of(search, one)
        pruner_of(search, one)
        _refuse_idle_pruner(one, settings.pruner)
    preflight(base_study(search.study, search.candidates), executor)
    materials = Materials()
    if fresh:
        for one in search.candidates:
            check_metric(one.run, materials)
        if measure or settings.match == "time" or settings.limit.unit == "seconds":
            search = replace(search, measured=timings({one.label: one.run for one in search.candidates}, materials))
    target = _target(search, materials)
    counted = settings.limit.unit == "flops"
    fitters = {
        one.label: Fitter(
            one, search.spaces[one.label], materials, target, search.measured.get(one.label), counted=counted
        )
        for one in search.candidates
    }
    prepared = Prepared(search, materials, fitters, target)
    if fresh:
        for one in search.candidates:
            fitted = base_trial(prepared, one)
            _refuse_small_budget(prepared, one, fitted)
            _refuse_late_evaluations(prepared, one, fitted)
            _refuse_hopeless(prepared, one)
    return prepared


def _refuse_idle_pruner(candidate: Candidate, name: str) -> None:
    train = candidate.run.experiment.train
    if name != "none" and train.eval_every_epochs is None and train.eval_every_steps is None:
        raise ConfigError(
            f"--pruner {name}: never sees an evaluation before a trial's last step, as train.eval_every_epochs and "
            "train.eval_every_steps are null; give one of them, or --pruner none"
        )


def _target(search: Search, materials: Materials) -> Target:
    """What the reference candidate, the first one, has as it stands."""
    by, first = search.settings.match, search.candidates[0]
    if by == "none":
        return Target()
    if by == "params":
        return Target(by, materials.parameters(first.run))
    if by == "time":
        as_it_stands = Fitter(first, search.spaces[first.label], materials, Target(), search.measured[first.label])
        return Target(by, as_it_stands.fitted({}).seconds)
    steps, _ = materials.steps(first.run)
    return Target(by, steps * _counted(first, materials, "--match flops"))


def _counted(candidate: Candidate, materials: Materials, option: str) -> int:
    cost = materials.cost(candidate.run)
    if not cost.flops_per_step:
        why = "; ".join(cost.uncounted)
        raise ConfigError(one_line(f"{option}: the FLOPs of {candidate.label} cannot be counted ({why})"))
    return cost.flops_per_step


def _refuse_small_budget(prepared: Prepared, candidate: Candidate, fitted: Fitted) -> None:
    budget = prepared.search.settings.limit
    if budget.unit == "flops":
        _counted(candidate, prepared.materials, f"--budget {prepared.search.settings.budget}")
    runs = prepared.search.settings.seeds_per_trial
    needed = {"trials": 1.0, "flops": runs * fitted.flops, "seconds": runs * fitted.seconds}[budget.unit]
    if needed > budget.amount:
        unit = "FLOPs" if budget.unit == "flops" else "s of training"
        raise ConfigError(
            one_line(
                f"--budget {prepared.search.settings.budget}: too small for one trial of {candidate.label}, "
                f"which takes about {needed:.3g} {unit}; give more, or shorten it with train.steps"
            )
        )


def _refuse_late_evaluations(prepared: Prepared, candidate: Candidate, fitted: Fitted) -> None:
    name = prepared.search.settings.pruner
    _, per_epoch = prepared.materials.steps(fitted.run)
    every = evaluated_every(fitted.run.experiment.train, per_epoch)
    if name != "none" and every is not None and every >= fitted.steps:
        raise ConfigError(
            one_line(
                f"--pruner {name}: never sees an evaluation before a trial's last step, as {candidate.label} is "
                f"evaluated every {every:,} steps and has {fitted.steps:,}; lower train.eval_every_epochs or "
                "train.eval_every_steps, or use --pruner none"
            )
        )


def _refuse_hopeless(prepared: Prepared, candidate: Candidate) -> None:
    """Refuse a search whose first points, as many as would end it, cannot run."""
    source, fitter = sampler_of(prepared.search, candidate), prepared.fitters[candidate.label]
    count, reason = 0, ""
    for trial in islice(first_points(source, fitter), MAX_FRUITLESS):
        if trial.state != "infeasible":
            return
        count, reason = count + 1, reason or trial.reason
    which = f"the first {count} points" if count == MAX_FRUITLESS else f"all {count} points"
    raise ConfigError(
        one_line(
            f"space {prepared.search.settings.space}: {which} of {candidate.label} are infeasible, such as: {reason}"
        )
    )


def base_trial(prepared: Prepared, candidate: Candidate) -> Fitted:
    """The trial of the candidate's own settings, matched as all are.

    Raises:
        ConfigError: it cannot be matched.
    """
    fitter = prepared.fitters[candidate.label]
    try:
        return fitter.matched({})
    except UserError as error:
        if prepared.target.by == "none":
            raise
        raise ConfigError(one_line(f"--match {prepared.target.by}: {candidate.label}: {error}")) from error


def first_points(sampler: Sampler, fitter: Fitter) -> Iterator[Trial]:
    """Trials as they would be given out, by number: waiting, or infeasible with the reason."""
    known: list[Trial] = []
    while (point := sampler.suggest(len(known), known)) is not None:
        trial = Trial(candidate=fitter.candidate.label, number=len(known), point=point, state="waiting")
        try:
            fitter.fit(point)
        except UserError as error:
            trial = replace(trial, state="infeasible", reason=str(error))
        known.append(trial)
        yield trial
