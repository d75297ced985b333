"""A run or a study on disk: its folder, its experiments, and what is left to do."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from subquad.errors import RunError
from subquad.experiment import Run, Study, differences, dump, load_study
from subquad.experiment.schema import Experiment
from subquad.runs import (
    CELLS,
    EXPERIMENT,
    IDENTITY,
    LOCK,
    OWNER,
    SEARCH,
    STUDY,
    TRIAL,
    is_run,
    is_study,
    new_folder,
    read_json,
    write_json,
    write_text,
)


def start(study: Study, root: Path) -> Study:
    """Make the folders of a new run or study and write down what it is."""
    return begin(study, new_folder(root / "runs", study.name, hashlib.sha256(study.text.encode()).hexdigest()))


def begin(study: Study, folder: Path) -> Study:
    """Write a run or study down in a folder of its own."""
    if not study.single:
        write_text(folder / STUDY, study.text)
    placed = study.placed(folder)
    for run in placed.runs:
        write_down(run)
    return placed


def write_down(run: Run) -> None:
    """What a run is: its experiment, the source of a plugin given as a file, and, last, the digest of both."""
    for source in run.sources.values():
        write_text(run.folder / "source" / f"{source.sha256[:12]}-{Path(source.path).name}", source.text)
    write_text(run.folder / EXPERIMENT, dump(run.experiment))
    named = {"axes": run.axes, "dataset": run.dataset_label}
    identity = {"digest": run.digest, **named, "experiment": run.experiment.model_dump(mode="json")}
    write_json(run.folder / IDENTITY, identity)


def reopen(folder: Path) -> Study:
    """Read a run's or study's folder again.

    Raises:
        RunError: it is neither, or its experiment has changed since it was started.
        ConfigError: its experiment file does not load.
    """
    folder = folder.resolve()
    if (folder / SEARCH).exists():
        raise RunError(f"{folder} is a search: go on with subquad tune --resume {folder}")
    if (folder / TRIAL).exists():  # resumed as a run it would open the test split
        search = folder.parent.parent.parent
        raise RunError(f"{folder} is a trial of a search: go on with subquad tune --resume {search}")
    if not is_study(folder) and not is_run(folder):
        raise RunError(f"{folder}: neither a run (no {EXPERIMENT}) nor a study (no {STUDY})")
    if folder.parent.name == CELLS:
        raise RunError(f"{folder} is a run of a study: resume the study, {folder.parent.parent}")
    study = load_study(str(folder / (STUDY if is_study(folder) else EXPERIMENT))).placed(folder)
    for run in study.runs:
        same_as_started(run)
    return study


def same_as_started(run: Run) -> None:
    """Refuse a run whose experiment or source file was edited; write down one whose start was cut short.

    Raises:
        RunError: what has changed.
    """
    identity = read_json(run.folder / IDENTITY)
    if identity is None:
        write_down(run)
    elif identity["digest"] != run.digest:
        before = Experiment.model_validate(identity["experiment"])
        changed = differences(before, run.experiment)
        raise RunError(
            f"{run.folder}: changed since the run was started: "
            f"{', '.join(changed) or 'the source file of its mixer'}; put that back to resume, or start a new run"
        )


def reopen_one(folder: Path) -> Run:
    """One run, also where it is a cell of a study.

    Raises:
        RunError: the folder is no run.
    """
    folder = folder.resolve()
    if not is_run(folder):
        raise RunError(f"{folder}: not a run (no {EXPERIMENT})")
    return load_study(str(folder / EXPERIMENT)).placed(folder).runs[0]


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold a run's or study's folder for the block.

    Raises:
        RunError: another process holds it; its process id and host are named.
    """
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        owner = read_json(folder / OWNER) or {}
        raise RunError(
            f"{folder} is in use by process {owner.get('pid', '?')} on {owner.get('host', '?')}: wait for it, or "
            "start a new run"
        ) from error
    try:
        write_json(folder / OWNER, {"pid": os.getpid(), "host": os.uname().nodename})
        yield
    finally:
        lock.release()
