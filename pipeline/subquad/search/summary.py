"""What came of a search so far, made of its folder: counts, what each candidate consumed, and
the best trial.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import get_args

from subquad.markup import as_csv
from subquad.runs import CELLS, OPENINGS, SUMMARY, read_json
from subquad.search.candidates import Candidate, final_labels
from subquad.search.folder import Trials, earlier_finals
from subquad.search.search import Search, read_search
from subquad.search.trial import Goal, State, Trial, Values, pareto, winner_of

FORMAT = 1

TRIALS_TABLE = "trials.csv"
"""File of a search's folder: all trials, a row each."""


def summary_of(search: Search, trials: Trials, over: Mapping[str, str]) -> Values:
    """The contents of search.json.

    Args:
        over: why no further trial of a candidate is started, by label.
    """
    return {
        "format": FORMAT,
        "name": search.study.name,
        "folder": str(trials.search),
        "settings": search.settings.values(),
        "earlier_finals": {path.name: _tested(path) for path in earlier_finals(trials.search)},
        "candidates": [
            _candidate(candidate, trials.of(candidate.label))
            | {"final": final_labels(candidate, search.settings.final_seeds)}
            | {"over": over.get(candidate.label, ""), "ended": trials.sums(candidate.label)}
            for candidate in search.candidates
        ],
    }


def _tested(final: Path) -> list[str]:
    """Runs of an earlier final study that opened the test split, and that the final study does
    not have again.
    """
    return sorted(path.parent.name for path in final.glob(f"{CELLS}/*/{OPENINGS}"))


def _candidate(candidate: Candidate, trials: Sequence[Trial]) -> Values:
    goal, states = candidate.goal, Counter(ended.state for ended in trials)
    best = None
    if found := winner_of(trials, goal):
        trial, evaluation = found
        best = {"number": trial.number, "point": trial.point, **asdict(evaluation)}
    return {
        "label": candidate.label,
        "axes": candidate.axes,
        **{"metric": goal.metric, "mode": goal.mode, "cost": goal.cost},
        "metrics": {goal.metric: asdict(goal.shown)},
        "dimensions": candidate.space.dimensions,
        "trials": {state: states[state] for state in get_args(State)},
        "steps": sum(trial.steps for trial in trials),
        "flops": _total(trial.flops for trial in trials),
        "seconds": sum(trial.seconds for trial in trials),
        "best": best,
        "front": None
        if goal.cost == "none"
        else [_on_front(trial, goal) for trial in pareto(trials, goal)],
        "reasons": _reasons(trials),
    }


def _total(parts: Iterable[float | None]) -> float | None:
    """The sum; None where a part is not known."""
    found = list(parts)
    return None if None in found else sum(part for part in found if part is not None)


def _on_front(trial: Trial, goal: Goal) -> Values:
    """A trial that no other one beats in both objectives; `cost` is in seconds or FLOPs."""
    best = trial.best(goal.mode)
    assert best is not None
    return {
        "number": trial.number,
        "point": trial.point,
        "value": best.value,
        "cost": trial.cost(goal),
    }


def _reasons(trials: Iterable[Trial], limit: int = 3) -> list[str]:
    """The first distinct reasons why trials failed or could not run, failed ones first."""
    first: dict[str, Trial] = {}
    for trial in trials:
        if trial.state in ("failed", "infeasible"):
            first.setdefault(trial.reason, trial)
    ordered = sorted(first.values(), key=lambda trial: (trial.state != "failed", trial.number))
    return [f"trial {trial.number} {trial.state}: {trial.reason}" for trial in ordered[:limit]]


def read_summary(folder: Path) -> Values:
    """The contents of search.json, made anew of the trials.

    Raises:
        RunError: the folder holds no search, or one of another version.
        ConfigError: it does not load.
    """
    search = read_search(folder)
    return summary_of(search, search.trials(folder), over_of(folder))


def over_of(folder: Path) -> dict[str, str]:
    """Why no further trial of a candidate is started, as search.json says: only its driver
    knows.
    """
    written = read_json(folder / SUMMARY) or {}
    return {option["label"]: option["over"] for option in written.get("candidates", [])}


_COLUMNS = (
    "candidate",
    "number",
    "state",
    "objective",
    "loss",
    "steps",
    "flops",
    "seconds",
    "reason",
)


def trials_csv(search: Search, trials: Trials) -> str:
    """All trials as one table: a row for each, with a column for each setting that is searched."""
    records: list[Values] = []
    for candidate in search.candidates:
        for trial in trials.of(candidate.label):
            record = {key: getattr(trial, key) for key in _COLUMNS if hasattr(trial, key)}
            record["flops"] = "unknown" if trial.flops is None else trial.flops
            if best := trial.best(candidate.goal.mode):
                record |= {"objective": best.value, "loss": best.loss}
            records.append(trial.point | record)
    settings = dict.fromkeys(dim.path for dim in search.dimensions)
    return as_csv(records, [*_COLUMNS[:3], *settings, *_COLUMNS[3:]])
