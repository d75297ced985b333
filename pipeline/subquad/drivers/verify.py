"""Whether the folder of a run, study or search still says what its training found out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from safetensors.torch import load

from subquad.drivers.folder import changes, reopen_one
from subquad.engine.parts import build_dataset, build_task
from subquad.errors import PluginError, RunError, UserError
from subquad.experiment import Run, load_study
from subquad.experiment.axes import plain_label
from subquad.experiment.components import resolve_unrun
from subquad.experiment.run import completed
from subquad.integrity import Looked, look, look_at_trials
from subquad.limits import check_safetensors
from subquad.registry import Kind, Resolved
from subquad.runs import (
    CELLS,
    EXPERIMENT,
    FINAL,
    IDENTITY,
    PREDICTIONS,
    RESULT,
    SEARCH,
    SOURCES,
    STUDY,
    TRIALS,
    WINNERS,
    enter,
    is_run,
    is_study,
    read_bytes,
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
    """Look at each run of a folder; nothing is changed in it, and no code that it brings or names
    runs.

    Raises:
        RunError: the folder is no run, study or search.
    """
    folder = enter(folder)
    if (folder / SEARCH).exists():
        if faults := tuple(look_at_trials(folder)):
            yield Verified(str(folder), faults)
        for path in sorted(_trial_runs(folder / TRIALS)):
            yield _verified(path, look(path, far=True))
        if is_study(folder / FINAL):
            yield from verify(folder / FINAL)
    elif is_study(folder):
        yield from _study(folder)
    elif _was_run(folder):
        yield _verified(folder, look(folder, far=True))
    else:
        raise RunError(
            f"{folder}: no run (no {EXPERIMENT}), study (no {STUDY}) or search (no {SEARCH})"
        )


def _trial_runs(trials: Path) -> set[Path]:
    """The folders of all runs of all trials; what was refused never was one."""
    return {path for path in (*trials.glob("*/*"), *trials.glob("*/*/seed-*")) if _was_run(path)}


def _was_run(folder: Path) -> bool:
    """Whether a folder is a run's, also where its experiment is gone."""
    return is_run(folder) or (folder / IDENTITY).exists()


def _study(folder: Path) -> Iterator[Verified]:
    """All runs that its study.yaml asks for, and those that it does not ask for."""
    here = sorted(path for path in folder.glob(f"{CELLS}/*") if path.is_dir())
    looked = {place: look(place, far=True) for place in here if _was_run(place)}
    try:
        study = load_study(str(folder / STUDY), resolve=partial(_kept, folder))
        requested = {run.folder: run for run in study.placed(folder).runs}
    except UserError as error:
        requested = dict[Path, Run]()
        yield Verified(str(folder / STUDY), (str(error),))
    for place in sorted({*requested, *here}):
        if place not in looked:
            yield Verified(str(place), (f"{EXPERIMENT} is missing",))
        elif requested and place not in requested:
            yield Verified(str(place), (f"{STUDY} does not ask for this run",))
        else:
            yield _verified(place, looked[place], requested.get(place))


def _kept(folder: Path, kind: Kind, name: str, *, base: Path | None = None) -> Resolved:
    """As `resolve_unrun`; a file that is not where it was is read from the copy that a run below
    `folder` keeps.
    """
    try:
        return resolve_unrun(kind, name, base=base)
    except PluginError:
        file, _, attribute = name.rpartition(":")
        for copy in folder.rglob(f"{SOURCES}/*"):
            if copy.name.partition("-")[2] == Path(file).name:
                return resolve_unrun(kind, f"{copy.resolve()}:{attribute}")
        raise


def _verified(folder: Path, looked: Looked, run: Run | None = None) -> Verified:
    faults = list(looked.faults)
    scores = ""
    try:
        if is_run(folder):
            run = _run_of(folder, run)
            faults += [f"{key}: changed since the run was started" for key in changes(run)]
            faults += _of_another(run)
            if looked.result is not None and not faults:
                scores = _recomputed(run, looked.result, faults)
        elif not faults:
            faults.append(f"{EXPERIMENT} is missing")
    except PluginError as error:
        if faults or looked.result is None:
            faults.append(str(error))
        scores = f"scores not recomputed: its plugins are not here: {error}"
    except (UserError, ValueError, KeyError, TypeError) as error:
        faults.append(str(error) if isinstance(error, UserError) else f"{RESULT}: {error!r}")
    return Verified(str(folder), tuple(faults), _words(looked, scores))


def _run_of(folder: Path, requested: Run | None) -> Run:
    """The run of a folder; as its study asks for it, where there is one."""
    if requested and not requested.sources:
        return requested
    written = reopen_one(folder, resolve=partial(_kept, folder))
    if requested:
        return completed(requested, written)
    return written


def _of_another(run: Run) -> list[str]:
    """Whether a run of a search's final study is not its candidate's winner, which lies in
    best/.
    """
    final = run.folder.parent.parent
    cell = run.folder.name
    seed = run.experiment.train.seed
    if final.name != FINAL or not (final.parent / SEARCH).exists():
        return []
    part = plain_label("seed", seed)
    candidate = run.experiment.name if cell == part else cell.removesuffix(f"-{part}")
    best = f"{WINNERS}/{candidate}.yaml"
    if not (final.parent / best).exists():
        return [f"{best} is missing: which trial won is not known"]
    winners = load_study(str(final.parent / best), resolve=partial(_kept, final.parent)).runs
    if run.digest in {winner.digest for winner in winners if winner.experiment.train.seed == seed}:
        return []
    return [f"trained with other settings than the winner of {candidate}, {best}"]


def _words(looked: Looked, scores: str) -> str:
    """What was looked at, and what was not here."""
    if looked.result is None:
        words = ["no result yet"]
    else:
        words = [str(looked.result.get("status")), "its files are whole"]
    if looked.checkpoints:
        words.append(f"whole checkpoints: {looked.checkpoints}")
    words += [f"not here: {place}" for place in looked.absent]
    return "; ".join([*words, scores] if scores else words)


def _recomputed(run: Run, result: Mapping[str, Any], faults: list[str]) -> str:
    """Scores of the kept answers by the task's own metrics, held against those in the result.

    Args:
        faults: gets a line for each score that differs.

    Returns:
        what was recomputed, or why nothing was.
    """
    test = result["test"]
    path = run.folder / PREDICTIONS
    if not test:
        return ""
    if files := [part.source.path for part in (run.task, run.dataset) if part.source]:
        return f"scores not recomputed, as {files[0]} is not run: its sums were checked alone"
    if not path.exists():
        return "the task keeps no answers to recompute scores from"
    try:
        task = build_task(run, build_dataset(run).describe())
    except UserError as error:
        return f"scores not recomputed: the data are not here: {error}"
    content = read_bytes(path)
    check_safetensors(path, content)
    kept = load(content)
    scores = task.rescore(kept)
    recorded = {name: float(value) for name, value in test["metrics"].items()}
    faults += [
        f"{run.goal.shown(name).exactly(value)} by the answers in {PREDICTIONS}, "
        f"{RESULT} says {run.goal.shown(name).exactly(recorded.get(name, math.nan))}"
        for name, value in scores.items()
        if not math.isclose(value, recorded.get(name, math.nan), rel_tol=_TOLERANCE)
    ]
    if wrong := [name for name, rows in kept.items() if len(rows) != test["samples"]]:
        faults.append(
            f"{PREDICTIONS}: {wrong[0]} has {len(kept[wrong[0]])} rows of {test['samples']} samples"
        )
    again = ", ".join(run.goal.shown(name).exactly(value) for name, value in scores.items())
    return f"recomputed from {test['samples']} answers: {again or 'nothing'}"
