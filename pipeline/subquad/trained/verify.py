"""Whether the folder of a run, study or search still says what its training found out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.torch import load
from torch import Tensor

from subquad.data import Split, TestKey
from subquad.engine.inputs import changed_weights, changes_of, kept_inputs
from subquad.errors import PluginError, RunError, UserError
from subquad.experiment import Run, load_study
from subquad.experiment.components import resolve_unrun
from subquad.experiment.folder import changes, found_in, reopen_one
from subquad.experiment.labels import plain_label
from subquad.plugin import TaskPlugin
from subquad.preparation.costs import StudyCosts
from subquad.record.files import read_bytes
from subquad.record.integrity import Looked, look, look_at_search
from subquad.record.layout import enter, is_run, is_study
from subquad.record.models import Result, Test
from subquad.record.names import (
    CELLS,
    EXPERIMENT,
    FINAL,
    IDENTITY,
    PREDICTIONS,
    RESULT,
    SEARCH,
    STUDY,
    TRIALS,
    WINNERS,
)
from subquad.security.limits import check_safetensors

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
    costs = StudyCosts()
    if (folder / SEARCH).exists():
        faults = tuple(look_at_search(folder))
        if faults:
            yield Verified(str(folder), faults)
        trials = folder / TRIALS
        for path in sorted((*trials.glob("*/*"), *trials.glob("*/*/seed-*"))):
            if _was_run(path):  # what was refused never was one
                yield _verified(path, look(path, far=True), costs)
        final = folder / FINAL
        if is_study(final):
            yield from verify(final)
    elif is_study(folder):
        yield from _study(folder, costs)
    elif _was_run(folder):
        yield _verified(folder, look(folder, far=True), costs)
    else:
        raise RunError(
            f"{folder}: no run (no {EXPERIMENT}), study (no {STUDY}) or search (no {SEARCH})"
        )


def _was_run(folder: Path) -> bool:
    """Whether a folder is a run's, also where its experiment is gone."""
    return is_run(folder) or (folder / IDENTITY).exists()


def _study(folder: Path, costs: StudyCosts) -> Iterator[Verified]:
    """All runs that its study.yaml asks for, and those that it does not ask for."""
    looked = {
        path: look(path, far=True) if _was_run(path) else None
        for path in sorted(folder.glob(f"{CELLS}/*"))
        if path.is_dir()
    }
    file = str(folder / STUDY)
    requested = dict[Path, Run]()
    try:
        study = load_study(file, resolve=found_in(folder, resolve_unrun)).placed(folder)
        requested = {run.folder: run for run in study.runs}
    except UserError as error:
        yield Verified(file, (str(error),))
    for place in sorted(looked.keys() | requested.keys()):
        found = looked.get(place)
        if found is None:
            yield Verified(str(place), (f"{EXPERIMENT} is missing",))
        elif requested and place not in requested:
            yield Verified(str(place), (f"{STUDY} does not ask for this run",))
        else:
            yield _verified(place, found, costs, requested.get(place))


def _verified(folder: Path, looked: Looked, costs: StudyCosts, run: Run | None = None) -> Verified:
    faults = list(looked.faults)
    scores = ""
    try:
        if is_run(folder):
            run = run or reopen_one(folder, resolve=resolve_unrun)
            faults += [
                f"{key}: changed since the run was started" for key in changes(run, looked.identity)
            ]
            faults += _of_another(run)
            if not faults:
                scores = _held_against_data(run, looked.result, costs, faults)
        elif not faults:
            faults.append(f"{EXPERIMENT} is missing")
    except PluginError as error:
        if faults or looked.result is None:
            faults.append(str(error))
        scores = f"scores not recomputed: its plugins are not here: {error}"
    except (UserError, ValueError, KeyError, TypeError) as error:
        faults.append(str(error) if isinstance(error, UserError) else f"{RESULT}: {error!r}")
    return Verified(str(folder), tuple(faults), _words(looked, scores))


def _of_another(run: Run) -> list[str]:
    """Whether a run of a search's final study is not its candidate's winner, which lies in
    best/.
    """
    final = run.folder.parent.parent
    search = final.parent
    if final.name != FINAL or not (search / SEARCH).exists():
        return []
    cell = run.folder.name
    seed = run.experiment.train.seed
    part = plain_label("seed", seed)
    candidate = run.experiment.name if cell == part else cell.removesuffix(f"-{part}")
    best = f"{WINNERS}/{candidate}.yaml"
    path = search / best
    if not path.exists():
        return [f"{best} is missing: which trial won is not known"]
    for winner in load_study(str(path), resolve=found_in(search, resolve_unrun)).runs:
        if winner.experiment.train.seed == seed and winner.digest == run.digest:
            return []
    return [f"trained with other settings than the winner of {candidate}, {best}"]


def _words(looked: Looked, scores: str) -> str:
    """What was looked at, and what was not here."""
    words = ["no result yet"]
    if looked.result is not None:
        words = [looked.result.status, "its files are whole"]
    if looked.checkpoints:
        words.append(f"whole checkpoints: {looked.checkpoints}")
    words += [f"not here: {place}" for place in looked.absent]
    return "; ".join([*words, *filter(None, [scores])])


def _held_against_data(
    run: Run, result: Result | None, costs: StudyCosts, faults: list[str]
) -> str:
    """Hold a run against its data and start weights where they are here, and the scores in its
    result against those of the kept answers by the task's own metrics.

    Args:
        costs: keeps the data of runs that have the same.
        faults: gets a line for each thing that differs.

    Returns:
        what was recomputed, or why nothing was.
    """
    source = run.task.source or run.dataset.source
    if source:
        return f"scores not recomputed, as {source.path} is not run: its sums were checked alone"
    try:
        dataset, _ = costs.data(run)
        kept = kept_inputs(run.folder)
        faults += [
            f"{change}: changed since the run was started"
            for change in [*changes_of(kept, costs.inputs(run)), *changed_weights(run, kept)]
        ]
        test = result and result.test
        path = run.folder / PREDICTIONS
        if faults or not test:
            return ""
        if not path.exists():
            return "the task keeps no answers to recompute scores from"
        content = read_bytes(path)
        check_safetensors(path, content)
        answers = load(content)
        faults += _other_labels(
            dataset.split("test", TestKey(run.dataset_label, "verify")), answers
        )
    except UserError as error:
        return f"scores not recomputed: the data are not here: {error}"
    return _recomputed(run.goal, costs.task(run).rescore(answers), answers, test, faults)


def _other_labels(split: Split, answers: Mapping[str, Tensor]) -> Iterator[str]:
    """Kept arrays that TEST has too, such as `label`, and that are not TEST's."""
    start = 0
    other = dict[str, None]()
    for batch in split.batches():
        for name, rows in answers.items():
            own = batch.get(f"{name}s", batch.get(name))
            if own is None:
                continue
            kept = rows[start : start + len(own)].numpy()
            if not np.array_equal(kept, own.astype(kept.dtype), equal_nan=kept.dtype.kind == "f"):
                other[name] = None
        start += len(next(iter(batch.values())))
    for name in other:
        yield f"{PREDICTIONS}: {name} is not that of TEST"


def _recomputed(
    goal: TaskPlugin,
    scores: Mapping[str, float],
    answers: Mapping[str, Tensor],
    test: Test,
    faults: list[str],
) -> str:
    words = []
    for name, value in scores.items():
        before = test.score(name)
        shown = goal.shown(name)
        words.append(shown.exactly(value))
        if not math.isclose(value, before, rel_tol=_TOLERANCE):
            faults.append(
                f"{shown.exactly(value)} by the answers in {PREDICTIONS}, "
                f"{RESULT} says {shown.exactly(before)}"
            )
    for name, rows in answers.items():
        if len(rows) != test.samples:
            faults.append(f"{PREDICTIONS}: {name} has {len(rows)} rows of {test.samples} samples")
            break
    again = ", ".join(words) or "nothing"
    return f"recomputed from {test.samples} answers: {again}"
