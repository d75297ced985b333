"""Whether the folder of a run, study or search still says what its training found out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load
from torch import Tensor

from subquad.drivers.folder import changes, reopen_one
from subquad.engine import checkpoint
from subquad.engine.parts import build_dataset, build_task
from subquad.errors import CheckpointError, RunError, UserError
from subquad.experiment import Run, load_study
from subquad.experiment.axes import plain_label
from subquad.nn import Task
from subquad.runs import (
    CELLS,
    EXPERIMENT,
    FINAL,
    PREDICTIONS,
    RESULT,
    SEARCH,
    STUDY,
    TRIALS,
    WINNERS,
    is_run,
    is_study,
    parse_object,
    read_records,
    result_faults,
    touching,
)

_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Verified:
    """What was found of one run.

    Attributes:
        name: its folder, as the user would type it.
        faults: what is wrong, a line for each.
        words: what was looked at, where nothing is wrong.
    """

    name: str
    faults: tuple[str, ...]
    words: str = ""


def verify(folder: Path) -> Iterator[Verified]:
    """Look at each run of a folder; nothing is changed in it.

    Raises:
        RunError: the folder is no run, study or search.
    """
    if (folder / SEARCH).exists():
        trials = folder / TRIALS
        for path in sorted((*trials.glob(f"*/*/{EXPERIMENT}"), *trials.glob(f"*/*/seed-*/{EXPERIMENT}"))):
            yield _verified(path.parent)
        if is_study(folder / FINAL):
            yield from verify(folder / FINAL)
    elif is_study(folder):
        yield from _study(folder)
    elif is_run(folder):
        yield _verified(folder)
    else:
        raise RunError(f"{folder}: no run (no {EXPERIMENT}), study (no {STUDY}) or search (no {SEARCH})")


def _study(folder: Path) -> Iterator[Verified]:
    """All runs that its study.yaml asks for, and those that it does not ask for."""
    try:
        asked = {run.folder: run for run in load_study(str(folder / STUDY)).placed(folder).runs}
    except UserError as error:
        asked = dict[Path, Run]()
        yield Verified(str(folder / STUDY), (str(error),))
    for place in sorted({*asked, *(path for path in folder.glob(f"{CELLS}/*") if path.is_dir())}):
        if not is_run(place):
            yield Verified(str(place), (f"{EXPERIMENT} is missing",))
        elif asked and place not in asked:
            yield Verified(str(place), (f"{STUDY} does not ask for this run",))
        else:
            yield _verified(place, asked.get(place))


def _verified(folder: Path, run: Run | None = None) -> Verified:
    try:
        run = run or reopen_one(folder)
        faults = [f"{one}: changed since the run was started" for one in changes(run)]
        for _ in read_records(folder):
            pass  # a damaged one is told
        path = folder / RESULT
        with touching(path):
            result = parse_object(path.read_bytes()) if path.exists() else None
        more, words = _unfinished(run) if result is None else _finished(run, result)
        faults += _of_another(run)
    except (UserError, ValueError, KeyError, TypeError) as error:
        reason = str(error) if isinstance(error, UserError | ValueError) else repr(error)
        said = reason if isinstance(error, UserError) else f"{RESULT} cannot be believed: {reason}"
        return Verified(str(folder), (said,))
    return Verified(str(folder), (*faults, *more), words)


def _of_another(run: Run) -> list[str]:
    """Whether a run of a search's final study is not its candidate's winner, which lies in best/."""
    final, cell = run.folder.parent.parent, run.folder.name
    seed = run.experiment.train.seed
    if final.name != FINAL or not (final.parent / SEARCH).exists():
        return []
    part = plain_label("seed", seed)
    candidate = run.experiment.name if cell == part else cell.removesuffix(f"-{part}")
    best = f"{WINNERS}/{candidate}.yaml"
    if not (final.parent / best).exists():
        return [f"{best} is missing: which trial won is not known"]
    winners = load_study(str(final.parent / best)).runs
    if run.digest in {winner.digest for winner in winners if winner.experiment.train.seed == seed}:
        return []
    return [f"trained with other settings than the winner of {candidate}, {best}"]


def _unfinished(run: Run) -> tuple[list[str], str]:
    steps, faults = checkpoint.finished_steps(run.checkpoints), list[str]()
    for step in steps:
        try:
            checkpoint.read_checkpoint(run.checkpoints, step)
        except CheckpointError as error:
            faults.append(str(error))
    return faults, f"no result yet; {len(steps)} checkpoints are whole"


def _finished(run: Run, result: Mapping[str, Any]) -> tuple[list[str], str]:
    faults, test = result_faults(run.folder, result, run.checkpoints), result["test"]
    if result["experiment"] != run.digest:
        faults.append(f"{RESULT} is of another experiment")
    if faults or not test:
        return faults, f"{result['status']}; its files are whole"
    checkpoint.read_checkpoint(run.checkpoints, test["step"])
    if test["checkpoint"] == "best" and test["step"] != result["best"]["step"]:
        faults.append(f"{RESULT}: step {test['step']} was tested, the best one is {result['best']['step']}")
    if not (run.folder / PREDICTIONS).exists():
        return faults, "its files are whole; the task keeps no answers to recompute scores from"
    try:
        task = build_task(run, build_dataset(run).describe())
    except UserError as error:  # the data are on another machine
        return faults, f"its files are whole; scores not recomputed: {error}"
    return _rescored(task, load((run.folder / PREDICTIONS).read_bytes()), test, faults)


def _rescored(
    task: Task, kept: Mapping[str, Tensor], test: Mapping[str, Any], faults: list[str]
) -> tuple[list[str], str]:
    """Scores of the kept answers by the task's own metrics, beside those in the result."""
    scores, told = task.rescore(kept), {name: float(value) for name, value in test["metrics"].items()}
    faults += [
        f"{name} of the answers in {PREDICTIONS} is {value:.6g}, {RESULT} says {told.get(name)}"
        for name, value in scores.items()
        if not math.isclose(value, told.get(name, math.nan), rel_tol=_TOLERANCE)
    ]
    if wrong := [name for name, rows in kept.items() if len(rows) != test["samples"]]:
        faults.append(f"{PREDICTIONS}: {wrong[0]} has {len(kept[wrong[0]])} rows of {test['samples']} samples")
    again = ", ".join(f"{name} {value:.6g}" for name, value in scores.items())
    return faults, f"its files are whole; recomputed from {test['samples']} answers: {again or 'nothing'}"
