"""What came of a search so far, made of its folder: counts, what each candidate consumed, and the best trial."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from subquad.runs import FINAL, SUMMARY, read_json
from subquad.search.candidates import Candidate
from subquad.search.folder import Trials
from subquad.search.search import Search, read_search, trials_of
from subquad.search.trial import Goal, State, Trial, pareto, winner_of

FORMAT = 1


def summary_of(search: Search, folder: Path, trials: Trials, over: Mapping[str, str]) -> dict[str, Any]:
    """The contents of search.json.

    Args:
        over: why no further trial of a candidate is started, by label.
    """
    return {
        "format": FORMAT,
        "name": search.study.name,
        "folder": str(folder),
        "settings": search.settings.plain(),
        "warm_trials": {label: len(warm) for label, warm in search.warm.items()},
        "earlier_finals": sorted(path.name for path in folder.glob(f"{FINAL}-[0-9]*")),
        "candidates": [
            _candidate(search, one, trials.of(one.label), over.get(one.label, "")) for one in search.candidates
        ],
    }


def _candidate(search: Search, candidate: Candidate, trials: Sequence[Trial], over: str) -> dict[str, Any]:
    goal = candidate.goal(search.settings.cost)
    states = Counter(one.state for one in trials)
    found = winner_of(trials, goal)
    best = None
    if found:
        trial, evaluation = found
        best = {
            "number": trial.number,
            "point": trial.point,
            "step": evaluation.step,
            "value": evaluation.value,
            "loss": evaluation.loss,
        }
    return {
        "label": candidate.label,
        "axes": candidate.axes,
        "metric": goal.metric,
        "mode": goal.mode,
        "dimensions": search.spaces[candidate.label].dimensions,
        "trials": {state: states[state] for state in get_args(State)},
        "steps": sum(one.steps for one in trials),
        "flops": sum(one.flops for one in trials),
        "seconds": sum(one.seconds for one in trials),
        "best": best,
        "cost": goal.cost,
        "front": None if goal.cost == "none" else [_on_front(one, goal) for one in pareto(trials, goal)],
        "reasons": reasons(trials),
        "over": over,
    }


def _on_front(trial: Trial, goal: Goal) -> dict[str, Any]:
    """A trial that no other one beats in both objectives; `cost` is in seconds or FLOPs."""
    best = trial.best(goal.mode)
    assert best is not None
    return {"number": trial.number, "point": trial.point, "value": best.value, "cost": trial.cost(goal)}


def reasons(trials: Iterable[Trial], limit: int = 3) -> list[str]:
    """The first distinct reasons why trials failed or could not run."""
    told = [f"trial {one.number} {one.state}: {one.reason}" for one in _distinct(trials)]
    return told[:limit]


def _distinct(trials: Iterable[Trial]) -> list[Trial]:
    first: dict[str, Trial] = {}
    for one in trials:
        if one.state in ("failed", "infeasible"):
            first.setdefault(one.reason, one)
    return sorted(first.values(), key=lambda one: (one.state != "failed", one.number))


def read_summary(folder: Path) -> dict[str, Any]:
    """The contents of search.json, made anew of the trials.

    Raises:
        RunError: the folder holds no search, or one of another version.
        ConfigError: it does not load.
    """
    search = read_search(folder)
    written = read_json(folder / SUMMARY) or {}
    over = {one["label"]: one["over"] for one in written.get("candidates", [])}  # only its driver knows
    return summary_of(search, folder, trials_of(search, folder), over)


_COLUMNS = ("candidate", "number", "state", "objective", "loss", "steps", "flops", "seconds", "reason")


def trials_csv(search: Search, trials: Trials) -> str:
    """All trials as one table: a row for each, with a column for each setting that is searched."""
    rows = [(trial, trial.best(one.goal().mode)) for one in search.candidates for trial in trials.of(one.label)]
    settings = dict.fromkeys(dim.path for one in search.candidates for dim in search.spaces[one.label].dims)
    out = io.StringIO()
    writer = csv.DictWriter(out, [*_COLUMNS[:3], *settings, *_COLUMNS[3:]], lineterminator="\n")
    writer.writeheader()
    for trial, best in rows:
        told = {key: getattr(trial, key) for key in _COLUMNS if hasattr(trial, key)}
        found = {"objective": best.value, "loss": best.loss} if best else {}
        writer.writerow(told | found | trial.point)
    return out.getvalue()
