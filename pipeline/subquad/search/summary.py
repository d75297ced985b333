"""What came of a search so far, made of its folder: counts, what each candidate consumed, and
the best trial.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import get_args

from subquad.experiment.components import resolve_unrun
from subquad.output.markup import as_csv
from subquad.record.files import find_file
from subquad.record.models import SearchSummary
from subquad.record.names import CELLS, OPENINGS
from subquad.record.sums import by_name, manifest_of
from subquad.search.candidates import Candidate, final_labels
from subquad.search.folder import earlier_finals
from subquad.search.journal import Trials
from subquad.search.search import Search, read_search
from subquad.search.trial import Goal, State, Trial, Values, pareto, winner_of

FORMAT = 1
MOST_REASONS = 3

TRIALS_TABLE = "trials.csv"
"""File of a search's folder: all trials, a row each."""
PLOTS = "plots"
"""Folder of a search's pictures."""


def summary_of(
    search: Search, folder: Path, trials: Mapping[str, Trials], over: Mapping[str, str]
) -> Values:
    """The contents of search.json.

    Args:
        folder: the search's.
        trials: by the candidate's label.
        over: why no further trial of a candidate is started, by label.
    """
    # runs that opened the test split, and that the final study does not have again
    earlier: dict[str, list[str]] = {}
    for final in earlier_finals(folder):
        opened = final.glob(f"{CELLS}/*/{OPENINGS}")
        earlier[final.name] = sorted(path.parent.name for path in opened)
    shown = (folder / TRIALS_TABLE, *folder.glob(f"{PLOTS}/*"))
    candidates: list[Values] = []
    for candidate in search.candidates:
        label = candidate.label
        entry = _candidate(candidate, trials[label].known)
        entry["final"] = final_labels(candidate, search.settings.final_seeds)
        entry["over"] = over.get(label, "")
        candidates.append(entry)
    return {
        "format": FORMAT,
        "name": search.study.name,
        "folder": str(folder),
        "settings": search.settings.values(),
        "earlier_finals": earlier,
        "candidates": candidates,
        "files": manifest_of(by_name(folder, shown)),
    }


def _candidate(candidate: Candidate, trials: Sequence[Trial]) -> Values:
    goal = candidate.goal
    states = Counter(trial.state for trial in trials)
    ended = [trial for trial in trials if trial.ended]
    flops = [trial.flops for trial in ended if trial.flops is not None]
    best = None
    if found := winner_of(trials, goal):
        trial, evaluation = found
        best = {"number": trial.number, "point": trial.point, **asdict(evaluation)}
    return {
        "label": candidate.label,
        "axes": candidate.axes,
        "metric": goal.metric,
        "mode": goal.mode,
        "cost": goal.cost,
        "metrics": {goal.metric: asdict(goal.shown)},
        "dimensions": candidate.space.dimensions,
        "trials": {state: states[state] for state in get_args(State)},
        "steps": sum(trial.steps for trial in ended),
        "flops": sum(flops) if len(flops) == len(ended) else None,
        "seconds": sum(trial.seconds for trial in ended),
        "best": best,
        "front": _front(trials, goal),
        "reasons": _reasons(trials),
    }


def _front(trials: Sequence[Trial], goal: Goal) -> list[Values] | None:
    """The trials that no other one beats in both objectives; None where there is one objective."""
    if goal.cost == "none":
        return None
    return [
        {
            "number": trial.number,
            "point": trial.point,
            "value": best.value,
            "cost": trial.cost(goal),
        }
        for trial, best in pareto(trials, goal)
    ]


def _reasons(trials: Sequence[Trial]) -> list[str]:
    """The first distinct reasons why trials failed or could not run, failed ones first."""
    reasons: dict[str, str] = {}
    for state in ("failed", "infeasible"):
        for trial in trials:
            if trial.state == state and trial.reason not in reasons:
                reasons[trial.reason] = f"trial {trial.number} {state}: {trial.reason}"
    return list(reasons.values())[:MOST_REASONS]


def read_summary(folder: Path) -> Values:
    """The contents of search.json, made anew of the trials.

    Raises:
        RunError: the folder holds no search, or one of another version.
        ConfigError: it does not load.
    """
    search = read_search(folder, resolve_unrun)
    return summary_of(search, folder, search.trials(folder), over_of(folder))


def over_of(folder: Path) -> dict[str, str]:
    """Why no further trial of a candidate is started, as search.json says: only its driver
    knows.
    """
    written = find_file(SearchSummary, folder)
    return {entry.label: entry.over for entry in written.candidates} if written else {}


_NAMED = ("candidate", "number", "state")
_SPENT = ("steps", "flops", "seconds", "reason")
"""Columns of a trial in `trials.csv`, before and behind what it set and came to."""


def trials_csv(search: Search, trials: Mapping[str, Trials]) -> str:
    """All trials as one table: a row for each, with a column for each setting that is searched."""
    records: list[Values] = []
    for candidate in search.candidates:
        for trial in trials[candidate.label].known:
            record = {**trial.point}
            for column in (*_NAMED, *(_SPENT if trial.ended else ())):
                record[column] = getattr(trial, column)
            if trial.ended and trial.flops is None:
                record["flops"] = "unknown"
            if trial.best:
                record["objective"] = trial.best.value
                record["loss"] = trial.best.loss
            records.append(record)
    settings = dict.fromkeys(dim.path for dim in search.dimensions)
    return as_csv(records, [*_NAMED, *settings, "objective", "loss", *_SPENT])
