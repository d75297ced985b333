"""`--dry-run`: what a search would try, and what that would cost. Trains nothing but a few steps, writes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from subquad.errors import UserError
from subquad.search.budget import Budget
from subquad.search.fitting import Fitted
from subquad.search.prepare import Prepared, base_trial
from subquad.search.search import searcher_of
from subquad.search.subjects import Subject
from subquad.search.trial import Trial

FIRST = 5


def estimate(prepared: Prepared) -> dict[str, Any]:
    """What a search would do, as plain values; seconds are of training, by a few timed steps on this machine."""
    rows = [_subject(prepared, one) for one in prepared.search.subjects]
    settings = prepared.search.settings
    seconds = sum(row["seconds"] for row in rows)
    scale = prepared.search.subjects[0].checked.experiment.scale
    gpus = scale.workers * scale.gpus_per_worker
    return {
        "name": prepared.search.plan.name,
        "settings": settings.plain(),
        "subjects": rows,
        "trials": sum(row["trials"] for row in rows),
        "seconds": seconds,
        "final_runs": settings.final_seeds * len(rows),
        "gpus": gpus,
        "gpu_hours": gpus * seconds / 3600,
    }


def _subject(prepared: Prepared, subject: Subject) -> dict[str, Any]:
    search = prepared.search
    space = search.spaces[subject.label]
    base = base_trial(prepared, subject)
    trials = _trials(search.settings.limit, base, space.size() if space.is_finite else None)
    final = search.settings.final_seeds * base.seconds
    return {
        "label": subject.label,
        "trials": trials,
        "dimensions": space.dimensions,
        "grid": space.size(),
        "parameters": base.cost.parameters if base.cost else None,
        "steps": base.steps,
        "flops": base.flops,
        "trial_seconds": base.seconds,
        "seconds": trials * base.seconds + final,
        "points": _points(prepared, subject, min(FIRST, trials)),
    }


def _trials(budget: Budget, base: Fitted, size: int | None) -> int:
    """How many trials of the subject's own cost fit; no more than there are points."""
    cost = {"trials": 1.0, "flops": base.flops, "seconds": base.seconds}[budget.unit]
    number = int(budget.amount / cost + 1e-9)
    return number if size is None else min(number, size)


def _points(prepared: Prepared, subject: Subject, count: int) -> list[dict[str, Any]]:
    """The first points, each with the reason where it is infeasible."""
    source = searcher_of(prepared.search, subject)
    known: list[Trial] = []
    found: list[dict[str, Any]] = []
    while len(found) < count and (point := source.suggest(len(known), known)) is not None:
        trial = Trial(subject=subject.label, number=len(known), point=point, state="waiting")
        reason = ""
        try:
            prepared.fitters[subject.label].fit(point)
        except UserError as error:
            reason, trial = str(error), replace(trial, state="infeasible")
        known.append(trial)
        found.append({"number": trial.number, "point": point, "infeasible": reason})
    return found
