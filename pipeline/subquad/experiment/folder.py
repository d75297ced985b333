"""A run or a study on disk: its folder, its experiments, and what is left to do."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from subquad.errors import RunError
from subquad.experiment import Run, Study, dump, load_study
from subquad.experiment.components import Resolve, resolve_given
from subquad.experiment.strict_yaml import read_yaml
from subquad.record.files import (
    find_file,
    read_bytes,
    touching,
    write_file,
    write_json,
    write_text,
)
from subquad.record.layout import enter, is_run, is_study, new_folder
from subquad.record.models import Identity, Owner
from subquad.record.names import (
    ATTEMPTS,
    CELLS,
    CHECKPOINTS,
    EXPERIMENT,
    IDENTITY,
    LOCK,
    SEARCH,
    SOURCES,
    STUDY,
    TRIAL,
)
from subquad.record.storage import content_of, listing, put, remove_tree
from subquad.record.stores import address_fault, place_at
from subquad.record.trust import give, note_place, note_source, refuse_strange_storage
from subquad.registry import Kind, Resolved
from subquad.security.disk import rename, temporary_beside
from subquad.suggest import to_paste


def start(study: Study, root: Path) -> Study:
    """Make the folders of a new run or study and write down what it is; nothing is left where that
    fails.

    Raises:
        RunError: they cannot be written.
    """
    folder = new_folder(root / "runs", study.name, hashlib.sha256(study.text.encode()).hexdigest())
    try:
        return begin(study, folder)
    except RunError:
        remove_tree(folder)
        raise


def begin(study: Study, folder: Path) -> Study:
    """Write a run or study down in a folder of its own."""
    if not study.single:
        write_text(folder / STUDY, study.text)
    note_written(study.runs, folder)
    placed = study.placed(folder)
    for run in placed.runs:
        write_down(run)
    return placed


def note_written(runs: Iterable[Run], folder: Path) -> None:
    """Let the code of runs, which this user trains, go on running for the folder of them all, and
    what they name outside be asked and written.
    """
    for run in runs:
        for source in run.sources.values():
            note_source(folder, source.sha256)
        for place in run.outside:
            note_place(place)


def refuse_storage(study: Study) -> None:
    """Refuse to go on with what names storage that the user never gave.

    Raises:
        UserError: which, and what to add.
    """
    for storage in {run.experiment.resources.storage for run in study.runs}:
        refuse_strange_storage(storage)


def write_down(run: Run) -> None:
    """What a run is: its experiment, the source of a plugin given as a file, and, last, the
    digest of both.
    """
    for source in run.sources.values():
        write_text(
            run.folder / SOURCES / f"{source.sha256[:12]}-{Path(source.path).name}", source.text
        )
    experiment = run.experiment
    write_text(run.folder / EXPERIMENT, dump(experiment))
    identity = {**run.names, "digest": run.digest}
    identity["experiment"] = experiment.model_dump(mode="json")
    write_json(run.folder / IDENTITY, identity)


def reopen(folder: Path) -> Study:
    """Read a run's or study's folder again.

    Raises:
        RunError: it is neither, or its experiment has changed since it was started.
        ConfigError: its experiment file does not load.
    """
    folder = enter(folder).resolve()
    if (folder / SEARCH).exists():
        raise RunError(f"{folder} is a search: go on with {to_paste('resume', folder)}")
    if (folder / TRIAL).exists():  # resumed as a run it would open the test split
        raise RunError(
            f"{folder} is a trial of a search: go on with {to_paste('resume', folder.parents[2])}"
        )
    if is_study(folder):
        file = folder / STUDY
    elif is_run(folder):
        file = folder / EXPERIMENT
    else:
        raise RunError(f"{folder}: neither a run (no {EXPERIMENT}) nor a study (no {STUDY})")
    if folder.parent.name == CELLS:
        raise RunError(f"{folder} is a run of a study: resume the study, {folder.parent.parent}")
    study = load_study(str(file), resolve=found_in(folder)).placed(folder)
    refuse_storage(study)
    cells = {path.parent for path in folder.glob(f"{CELLS}/*/{IDENTITY}")}
    for cell in sorted(cells.difference(run.folder for run in study.runs)):
        raise RunError(
            f"{folder / STUDY}: changed since the study was started: {cell} is none of its runs"
        )
    for run in study.runs:
        same_as_started(run)
    return study


def same_as_started(run: Run) -> None:
    """Refuse a run whose experiment or source file was edited; write down what is missing, or was
    never written.

    Raises:
        RunError: what has changed.
        ConfigError: its experiment file does not load.
    """
    identity = find_file(Identity, run.folder)
    if changed := changes(run, identity):
        raise RunError(
            f"{run.folder}: changed since the run was started: {', '.join(changed[:9])}; put that "
            "back to resume, or start a new run"
        )
    if identity is None or not is_run(run.folder):
        write_down(run)


def changes(run: Run, identity: Identity | None) -> list[str]:
    """What was edited since a run was started, of what decides its numbers.

    Args:
        identity: what its identity.json says, None where that cannot be read.

    Raises:
        ConfigError: its experiment file does not load.
    """
    if identity and identity.digest not in ("", run.digest):
        return run.differences(identity.experiment) or ["the source file of a plugin"]
    if not is_run(run.folder):
        return []
    # a study's run is read from the study, its own file by the report
    return run.differences(read_yaml(run.folder / EXPERIMENT) or {})


def found_in(folder: Path, resolve: Resolve | None = None) -> Resolve:
    """Finds plugins that the folder of a run, study or search names; a file that is not where it
    was is read from the copy that a run there keeps.

    Args:
        resolve: finds the others; None: what the user may run of this folder.
    """
    inner = resolve or partial(resolve_given, owner=folder.resolve())

    def found(kind: Kind, name: str, *, base: Path | None = None) -> Resolved:
        file, _, attribute = name.rpartition(":")
        if file.endswith(".py") and not (base or Path.cwd()).joinpath(file).exists():
            for copy in sorted(folder.rglob(f"{SOURCES}/*-{Path(file).name}")):
                return inner(kind, f"{copy.resolve()}:{attribute}")
        return inner(kind, name, base=base)

    return found


def reopen_one(
    folder: Path, overrides: Sequence[str] = (), *, resolve: Resolve | None = None
) -> Run:
    """One run, also where it is a cell of a study.

    Args:
        folder: the run's.
        overrides: KEY=VALUE, of what may be another than when it was trained.
        resolve: finds plugins, see `found_in`.

    Raises:
        RunError: the folder is no run.
    """
    folder = enter(folder).resolve()
    if is_study(folder):
        names = [
            f"{CELLS}/{path.parent.name}" for path in sorted(folder.glob(f"{CELLS}/*/{EXPERIMENT}"))
        ]
        first = ", ".join(names[:9]) or "there is none yet"
        raise RunError(f"{folder}: a study; give one of its runs: {first}")
    if not is_run(folder):
        raise RunError(f"{folder}: not a run (no {EXPERIMENT})")
    path = str(folder / EXPERIMENT)
    return load_study(path, overrides, resolve=found_in(folder, resolve)).placed(folder).runs[0]


def claimed(path: Path, seconds: float = 0.0) -> BaseFileLock | None:
    """A lock that is held; None where another process holds it for so long.

    Raises:
        RunError: there can be no lock.
    """
    lock = FileLock(path)
    with touching(path):
        try:
            lock.acquire(timeout=seconds)
        except Timeout:
            return None
    return lock


def local_folder(
    given: str, root: Path = Path(), tell: Callable[[str], None] = lambda text: None
) -> Path:
    """The folder of a run, study or search; one in storage is fetched to where it lies below
    `root`.

    Where that folder is there already, the copy with more attempts is used; the other one stays.

    Args:
        given: a folder, or its address in storage, which ends in runs/NAME/STAMP.
        tell: told in one line what was fetched, or why not.

    Raises:
        RunError: there is no such run in storage, or a process works on the folder.
        DiskError: storage cannot be reached.
    """
    if "://" not in given:
        return enter(Path(given))
    fault = address_fault(given)
    if fault:
        raise RunError(f"{given}: {fault}")
    give(given)
    source = place_at(given)
    names = [name for name in listing(source) if f"/{CHECKPOINTS}/" not in f"/{name}"]
    above, _, below = given.rstrip("/").rpartition("/runs/")
    if not names or not above:
        raise RunError(
            f"{given}: no run, study or search; give its address as STORAGE/runs/NAME/STAMP"
        )
    folder = root.resolve() / "runs" / below
    part = temporary_beside(folder)
    contents = {}
    there = 0
    for name in names:
        content = content_of(source / name)
        contents[part / name] = content
        if Path(name).name == ATTEMPTS:
            there += content.count(b"\n")
    if folder.exists():
        enter(folder)
        here = sum(read_bytes(path).count(b"\n") for path in folder.rglob(ATTEMPTS))
        if here >= there:
            tell(f"{folder} is used: it has {here} attempts, {given} has {there}")
            return folder
        aside = folder.with_name(f".{folder.name}.with-{here}-attempts")
        with exclusive(folder):
            rename(folder, aside)
        tell(f"{folder} has {here} attempts, {given} has {there}: the former is now {aside}")
    put(contents)
    rename(part, folder)
    tell(f"{len(contents)} files of {given} are in {folder}")
    return folder


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold a run's or study's folder for the block.

    Raises:
        RunError: another process holds it; its process id and host are named.
    """
    lock = claimed(folder / LOCK)
    if lock is None:
        owner = find_file(Owner, folder) or Owner()
        raise RunError(
            f"{folder} is in use by process {owner.pid or '?'} on {owner.host}: wait for it, or "
            "start a new run"
        )
    try:
        write_file(folder, Owner(pid=os.getpid(), host=os.uname().nodename))
        yield
    finally:
        lock.release()
