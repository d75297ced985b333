"""`--dry-run`: what a search would try, and what that would cost. Trains nothing but a few steps, writes nothing."""

from __future__ import annotations

from itertools import islice
from typing import Any

from subquad.search.candidates import Candidate
from subquad.search.fitting import Fitted
from subquad.search.prepare import Prepared, base_trial, first_points
from subquad.search.search import sampler_of
from subquad.search.settings import Budget

FIRST, DRAWN = 5, 20
"""Points that are shown, and that are looked at."""


def estimate(prepared: Prepared) -> dict[str, Any]:
    """What a search would do, as plain values; seconds are of training, by a few timed steps on this machine.

    `at_least`: a pruner ends trials early, which leaves room for more of them than are counted.
    """
    rows = [_candidate(prepared, one) for one in prepared.search.candidates]
    settings = prepared.search.settings
    seconds = sum(row["seconds"] for row in rows)
    resources = prepared.search.candidates[0].run.experiment.resources
    gpus = resources.workers * resources.gpus_per_worker
    return {
        "name": prepared.search.study.name,
        "settings": settings.plain(),
        "candidates": rows,
        "trials": sum(row["trials"] for row in rows),
        "at_least": settings.pruner != "none" and settings.limit.unit != "trials",
        "seconds": seconds,
        "final_runs": settings.final_seeds * len(rows),
        "gpus": gpus,
        "gpu_hours": gpus * seconds / 3600,
    }


def _candidate(prepared: Prepared, candidate: Candidate) -> dict[str, Any]:
    search = prepared.search
    space = search.spaces[candidate.label]
    base = base_trial(prepared, candidate)
    runs = search.settings.seeds_per_trial
    trials = _trials(search.settings.limit, base, runs, space.size() if space.is_finite else None)
    points = list(islice(first_points(sampler_of(search, candidate), prepared.fitters[candidate.label]), DRAWN))
    final = search.settings.final_seeds * base.seconds
    return {
        "label": candidate.label,
        "trials": trials,
        "dimensions": space.dimensions,
        "grid": space.size(),
        "parameters": base.cost.parameters if base.cost else None,
        "steps": base.steps,
        "flops": runs * base.flops,
        "trial_seconds": runs * base.seconds,
        "seconds": trials * runs * base.seconds + final,
        "timing": search.measured.get(candidate.label),
        "drawn": len(points),
        "infeasible": sum(one.state == "infeasible" for one in points),
        "points": [
            {"number": one.number, "point": one.point, "infeasible": one.reason} for one in points[: min(FIRST, trials)]
        ],
    }


def _trials(budget: Budget, base: Fitted, runs: int, size: int | None) -> int:
    """How many trials of the candidate's own cost fit; no more than there are points."""
    cost = {"trials": 1.0, "flops": runs * base.flops, "seconds": runs * base.seconds}[budget.unit]
    number = int(budget.amount / cost + 1e-9)
    return number if size is None else min(number, size)
