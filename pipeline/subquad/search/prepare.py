"""Everything that can be refused before a search starts, and what it would cost."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from optuna.distributions import IntDistribution

from subquad.errors import ConfigError, UserError
from subquad.execution.executor import Executor
from subquad.experiment import Run
from subquad.experiment.settings import get
from subquad.preparation.size import reference_of
from subquad.search.candidates import Candidate
from subquad.search.fitting import Fitted, Prepared
from subquad.search.search import Search
from subquad.search.timing import SearchCosts, Timing
from subquad.search.trial import Values
from subquad.space import Dimension, Space, choice_of, is_auto

MAX_FRUITLESS = 50
"""Infeasible points and failed trials in a row, after which a candidate's search ends."""

FIRST, DRAWN = 5, 20
"""Points that a dry run shows, and that it looks at."""


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
        timings: Mapping[str, Timing] = {}
        for candidate in search.candidates:
            costs.check_metric(candidate.run)
        if measure or search.settings.limit.unit == "seconds":
            timings = costs.timings({each.label: each.run for each in search.candidates})
        candidates = [
            narrowed(replace(each, timing=timings.get(each.label)), costs)
            for each in search.candidates
        ]
        search = replace(search, candidates=tuple(candidates))
    prepared = _prepared(search, executor.freed(costs), runs)
    if fresh:
        for candidate in search.candidates:
            _refuse_unfit(prepared, candidate)
    return prepared


def _prepared(search: Search, costs: SearchCosts, runs: Sequence[Run]) -> Prepared:
    amount = 0.0
    if search.settings.match == "flops":
        # what the reference candidate, the first one, has of what is matched, as it stands
        first = search.candidates[0]
        steps, _ = costs.steps(first.run)
        amount = float(steps * _counted(first, costs, "trial.match=flops"))
    sizes: dict[str, int] = {}
    if search.study.match:
        for candidate in search.candidates:
            sizes[candidate.label] = costs.parameters(reference_of(candidate.run, runs))
    return Prepared(search, costs, amount, sizes)


def _refuse_unfit(prepared: Prepared, candidate: Candidate) -> None:
    settings = prepared.search.settings
    fitted = prepared.own_trial(candidate)
    if settings.cost == "flops":
        _counted(candidate, prepared.costs, "--cost flops")
    option = f"--budget {settings.budget}"
    budget = settings.limit
    if budget.unit == "flops":
        _counted(candidate, prepared.costs, option)
    needed = prepared.charge(fitted)
    if needed > budget.amount:
        raise ConfigError(
            f"{option}: too small for one trial of {candidate.label}, which takes "
            f"about {needed:.3g} {budget.unit_words}; "
            "give more, or shorten it with train.steps"
        )
    _refuse_idle_pruner(settings.pruner, candidate, fitted)
    # a search whose first points, as many as would end it, cannot run
    reasons: list[str] = []
    for trial in islice(prepared.first_points(candidate), MAX_FRUITLESS):
        if trial.state != "infeasible":
            return
        reasons.append(trial.reason)
    which = "the first" if len(reasons) == MAX_FRUITLESS else "all"
    raise ConfigError(
        f"space {settings.space}: {which} {len(reasons)} points of {candidate.label} are "
        f"infeasible, such as: {reasons[0]}"
    )


def _counted(candidate: Candidate, costs: SearchCosts, option: str) -> int:
    cost = costs.cost(candidate.run)
    if not cost.flops_per_step:
        why = "; ".join(cost.uncounted)
        raise ConfigError(f"{option}: the FLOPs of {candidate.label} cannot be counted ({why})")
    return cost.flops_per_step


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


_Fits = Callable[[Any], bool]


def narrowed(candidate: Candidate, costs: SearchCosts) -> Candidate:
    """The candidate without what its data and model refuse of `auto`, as too long a window: with
    the values that fit, each tried by itself with the others as they are.

    A plugin's field says what may sensibly be tried anywhere. Whether a value fits is known where
    the model stands. Spaces of files are left as they are: their points that do not fit are told as
    infeasible.
    """
    dims = tuple(
        _narrowed(dim, candidate, costs) if is_auto(dim) else dim for dim in candidate.space.dims
    )
    return replace(candidate, space=replace(candidate.space, dims=dims))


def _narrowed(dim: Dimension, candidate: Candidate, costs: SearchCosts) -> Dimension:
    """A dimension with the values that fit; with its own value alone where none does."""
    options = dim.options
    if options is None:
        return dim
    around = _around(dim, candidate.space)

    def fits(option: Any) -> bool:
        try:
            costs.parameters(candidate.laid({**around, dim.path: option}))
        except UserError:
            return False
        return True

    whole = dim.distribution
    if isinstance(whole, IntDistribution):
        kept = _part(options, fits)
    else:
        kept = [option for option in options if fits(option)]
    if kept and isinstance(whole, IntDistribution):
        return replace(
            dim, distribution=IntDistribution(kept[0], kept[-1], log=whole.log, step=whole.step)
        )
    if not kept:
        own = get(candidate.run.experiment.model_dump(mode="json"), dim.key_path)
        kept = [candidate.space.rest.get(dim.path, own)]
    return replace(dim, distribution=choice_of(kept))


def _around(dim: Dimension, space: Space) -> Values:
    """Values of other dimensions with which this one is searched."""
    others = {other.path: other for other in space.dims}
    found: Values = {}
    for condition in dim.conditions:
        key = condition.key
        if key not in others or condition.holds(space.rest.get(key)):
            continue
        found[key] = next(filter(condition.holds, others[key].options or ()), None)
    return {key: value for key, value in found.items() if value is not None}


def _part(options: Sequence[int], fits: _Fits) -> Sequence[int]:
    """The values of a range from the least to the largest that fits; limits of mixers have one
    side.
    """
    if fits(options[0]):
        return options[: bisect_left(options, True, key=lambda option: not fits(option))]
    if fits(options[-1]):
        return options[bisect_left(options, True, key=fits) :]
    return ()
