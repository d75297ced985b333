"""A run or a study on disk: its folder, its experiments, and what is left to do."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from subquad.engine.ticket import Ticket
from subquad.errors import RunError
from subquad.experiment import Cell, Plan, differences, digest, dump, load
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
    read_result,
    write_json,
    write_text,
)


@dataclass(frozen=True)
class Session:
    """One driver's work on a run or study.

    Attributes:
        root: folder that holds `runs/` and the tracking database.
        folder: the run's or study's folder.
        plan: its experiments.
        tickets: one for each cell, in order.
    """

    root: Path
    folder: Path
    plan: Plan
    tickets: tuple[Ticket, ...]

    @property
    def pending(self) -> list[Ticket]:
        """Tickets without a finished result; failed ones are tried again."""
        return [one for one in self.tickets if (read_result(one.folder) or {}).get("status") != "finished"]


def data_root() -> Path:
    """Where prepared data live: $SUBQUAD_DATA, else the user's cache folder."""
    given = os.environ.get("SUBQUAD_DATA")
    return Path(given).resolve() if given else user_cache_path("subquad") / "data"


def start(plan: Plan, root: Path) -> Session:
    """Make the folders of a new run or study and write down what it is."""
    return begin(plan, new_folder(root / "runs", plan.name, hashlib.sha256(plan.text.encode()).hexdigest()))


def begin(plan: Plan, folder: Path) -> Session:
    """Write a run or study down in a folder of its own."""
    if plan.study:
        write_text(folder / STUDY, plan.text)
    session = _session(plan, folder)
    for ticket in session.tickets:
        write_down(ticket)
    return session


def write_down(ticket: Ticket) -> None:
    """What a run is: its experiment, the source of a mixer given as a file, and, last, the digest of both."""
    source = ticket.checked.mixer.source
    if source is not None:
        write_text(ticket.folder / "source" / f"{source.sha256[:12]}-{Path(source.path).name}", source.text)
    experiment = ticket.checked.experiment
    write_text(ticket.folder / EXPERIMENT, dump(experiment))
    identity = {"digest": ticket.digest, "axes": ticket.axes, "experiment": experiment.model_dump(mode="json")}
    write_json(ticket.folder / IDENTITY, identity)


def reopen(folder: Path) -> Session:
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
        raise RunError(f"{folder} is a cell of a study: resume the study, {folder.parent.parent}")
    plan = load(str(folder / (STUDY if is_study(folder) else EXPERIMENT)))
    session = _session(plan, folder)
    for ticket in session.tickets:
        same_as_started(ticket)
    return session


def same_as_started(ticket: Ticket) -> None:
    """Refuse a run whose experiment or source file was edited; write down one whose start was cut short.

    Raises:
        RunError: what has changed.
    """
    identity = read_json(ticket.folder / IDENTITY)
    if identity is None:
        write_down(ticket)
    elif identity["digest"] != ticket.digest:
        before = Experiment.model_validate(identity["experiment"])
        changed = differences(before, ticket.checked.experiment)
        raise RunError(
            f"{ticket.folder}: changed since the run was started: "
            f"{', '.join(changed) or 'the source file of its mixer'}; put that back to resume, or start a new run"
        )


def reopen_one(folder: Path) -> Ticket:
    """One run, also where it is a cell of a study.

    Raises:
        RunError: the folder is no run.
    """
    folder = folder.resolve()
    if not is_run(folder):
        raise RunError(f"{folder}: not a run (no {EXPERIMENT})")
    return _session(load(str(folder / EXPERIMENT)), folder).tickets[0]


def _session(plan: Plan, folder: Path) -> Session:
    name = uuid.uuid4().hex
    # A run that was moved away from where runs live keeps its ledger and tracking beside itself.
    runs_root = next((parent for parent in folder.parents if parent.name == "runs"), folder.parent)
    root = runs_root.parent if runs_root.name == "runs" else runs_root

    def ticket(cell: Cell) -> Ticket:
        source = cell.experiment.mixer.source
        return Ticket(
            folder=folder / CELLS / cell.label if plan.study else folder,
            label=cell.label,
            axes=cell.axes,
            checked=cell.experiment,
            digest=digest(cell.experiment.experiment, source.sha256 if source else ""),
            session=name,
            data_root=data_root(),
            runs_root=runs_root,
        )

    return Session(root, folder, plan, tuple(map(ticket, plan.cells)))


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
