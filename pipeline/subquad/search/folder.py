"""A search's folder.

runs/<name>-search/<stamp>-<hash>/
    search.yaml                    the experiment or study, the spaces, the search's settings
    budgets.json                   larger budgets that the search was given later
    lock, owner.json               one driver at a time
    trials.jsonl                   the journal: all that is known of trials
    trials/<candidate>/00007/      an ordinary run, and trial.json: which point it is, or why it
                                   never ran; with several seeds seed-0/, seed-1/, ... are the runs
    search.json                    what came of it so far: made anew after each trial
    best/<candidate>.yaml          the winner as an experiment that `train` runs as is
    final.yaml, final/             the winners over the final seeds: an ordinary study; final-1/
                                   before an extension
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from subquad.record.files import read_file
from subquad.record.metrics import Record, read_records
from subquad.record.models import Result
from subquad.record.names import FINAL, RESULT, TRIALS
from subquad.search.journal import damaged
from subquad.search.trial import Curve, Evaluation, Goal, State, Trial, best_of

BUDGETS = "budgets.json"
_SEED = "seed-"
_FIRST: tuple[State, ...] = ("failed", "pruned", "running", "finished")


def trial_folder(search: Path, candidate: str, number: int) -> Path:
    return search / TRIALS / candidate / f"{number:05d}"


def runs_of(search: Path, trial: Trial) -> list[Path]:
    """The folders of a trial's runs: its own, or with several seeds one below it for each."""
    folder = trial_folder(search, trial.candidate, trial.number)
    return [folder / f"{_SEED}{seed}" for seed in trial.seeds] or [folder]


def place_of(run: Path) -> tuple[str, int]:
    """The candidate and the number of a trial, by the folder of one of its runs."""
    trial = run.parent if run.name.startswith(_SEED) else run
    return trial.parent.name, int(trial.name)


def came_to(search: Path, trial: Trial, goal: Goal) -> Trial:
    """A trial after what its runs have done.

    Raises:
        RunError: one of their files is damaged.
    """
    states: list[State] = []
    curves: list[Curve] = []
    reasons: list[str] = []
    steps, seconds = 0, 0.0
    for run in runs_of(search, trial):
        result = _result(run)
        records = read_records(run)
        states.append(result.status if result else "running")
        curves.append(_curve(records, goal.metric))
        reasons.append((result and result.reason) or "")
        steps += (result and result.steps) or (records[-1].step if records else 0)
        seconds += (result and result.seconds) or (records[-1].seconds if records else 0.0)
    flops = None
    if trial.flops_per_step is not None or not steps:
        flops = float(steps * (trial.flops_per_step or 0))
    return replace(
        trial,
        # one run that failed or was pruned ends its trial; it is finished with the last one
        state=next(state for state in _FIRST if state in states),
        best=best_of(filter(None, curves), goal.mode),
        steps=steps,
        flops=flops,
        seconds=seconds,
        reason=next(filter(None, reasons), ""),
    )


def _result(run: Path) -> Result | None:
    path = run / RESULT
    if not path.exists():
        return None
    try:
        return read_file(Result, run)
    except (OSError, ValueError) as error:
        raise damaged(path, error) from None


def curve_of(run: Path, metric: str) -> Curve:
    """The evaluations of a trial's run on the validation split, by step.

    Raises:
        RunError: its records are damaged.
    """
    return _curve(read_records(run), metric)


def _curve(records: Sequence[Record], metric: str) -> Curve:
    curve: list[Evaluation] = []
    for record in records:
        if record.kind == "eval" and record.split == "validation":
            value = record.metrics.get(metric, math.nan)
            curve.append(
                Evaluation(step=record.step, value=value, loss=record.metrics.get("loss", math.nan))
            )
    return curve


def free_name(path: Path) -> Path:
    """`path-1`, `path-2`, ...: the first that is not there."""
    for number in count(1):
        name = path.with_name(f"{path.name}-{number}")
        if not name.exists():
            return name
    raise AssertionError("numbers have no end")


def earlier_finals(search: Path) -> list[Path]:
    """Final studies that were set aside for an extension, the oldest first."""
    return sorted(
        search.glob(f"{FINAL}-[0-9]*"), key=lambda path: int(path.name.rpartition("-")[2])
    )
