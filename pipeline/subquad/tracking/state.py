"""How far a folder is with its MLflow store: the contents of mlflow.json, and what follows from
them.

After a resume some steps are trained again. So each stream of records goes on above the highest
step that was sent.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from pydantic import BaseModel, TypeAdapter, ValidationError

from subquad.addresses import mask
from subquad.records import Place, Record, read_new
from subquad.runs import TRACKING, read_json, runs_root, write_json
from subquad.tracking.folders import begun, folders_below


@dataclass(frozen=True)
class Upload:
    """What is sent, and where to.

    Attributes:
        folder: a run, or a study or search with all runs below it.
        uri: the MLflow store, absolute, with its credentials.
        experiment: name of the MLflow experiment.
    """

    folder: Path
    uri: str
    experiment: str


class Summary(BaseModel, frozen=True):
    """What reached MLflow.

    Attributes:
        delivered: every record, artefact and status is there.
        pending: records that are not.
        uri: the store, without credentials; None where tracking is off.
        experiment_id: MLflow's id of the experiment.
        parent_run_id: the study's or search's run.
        run_ids: MLflow's run ids, in the order of the runs; those that have one.
        error: why something was not delivered, one line without credentials.
    """

    delivered: bool
    pending: int = 0
    uri: str | None = None
    experiment_id: str | None = None
    parent_run_id: str | None = None
    run_ids: tuple[str, ...] = ()
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class SyncState:
    """How far one folder is with its store: the contents of mlflow.json.

    Attributes:
        uri: the store, without credentials.
        experiment: name of the MLflow experiment.
        key: made once for a folder; finds its MLflow run in any store, also when the answer to its
            creation was lost or the database was moved.
        experiment_id: MLflow's id.
        run_id: MLflow's id; None until the run exists there.
        place: how far its records were read.
        steps: highest step sent of each stream (a kind and split).
        closed: digest of the end that the MLflow run was closed with, all its files sent.
    """

    uri: str
    experiment: str
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    experiment_id: str | None = None
    run_id: str | None = None
    place: Place = field(default_factory=Place)
    steps: Mapping[str, int] = field(default_factory=dict)
    closed: str = ""

    @staticmethod
    def load(folder: Path) -> SyncState | None:
        """A folder's state, None where it has none or an unreadable one."""
        try:
            return _STATE.validate_python(read_json(folder / TRACKING))
        except ValidationError:
            return None

    @staticmethod
    def of(folder: Path, upload: Upload) -> SyncState:
        """A folder's state with the store of an upload; a new one where it was with another."""
        new = SyncState(uri=mask(upload.uri), experiment=upload.experiment)
        old = SyncState.load(folder)
        if old is None:
            return new
        if old.uri == new.uri and old.experiment == new.experiment:
            return old
        return replace(new, key=old.key)

    def save(self, folder: Path) -> None:
        """Write mlflow.json whole, where it says something else."""
        if self != SyncState.load(folder):
            write_json(folder / TRACKING, asdict(self))

    def anew(self, run_id: str) -> SyncState:
        """The state with an MLflow run that is not known to hold anything."""
        return replace(self, run_id=run_id, place=Place(), steps={}, closed="")

    def unsent(self, run: Path) -> tuple[list[Record], Place]:
        """Records that MLflow does not have, and how far its records were read. Events are none
        of its business.
        """
        records, place = read_new(run, self.place)
        new = []
        for record in records:
            sent = self.steps.get(_stream_of(record), -1)
            if record.kind != "event" and record.step > sent:
                new.append(record)
        return new, place

    def after(self, sent: Sequence[Record]) -> SyncState:
        """The state once these records were sent, in order."""
        steps = dict(self.steps)
        for record in sent:
            steps[_stream_of(record)] = record.step
        return replace(self, steps=steps)


_STATE = TypeAdapter(SyncState)


def _stream_of(record: Record) -> str:
    return f"{record.kind} {record.split}".rstrip()


def summarise(upload: Upload, error: str | None) -> Summary:
    """What is delivered, from the folders alone; starts nothing and asks nobody."""
    head = upload.folder
    below = folders_below(head)
    runs = [head] if below is None else below
    states = {folder: SyncState.of(folder, upload) for folder in (head, *runs)}
    is_closed = True
    experiment_id = None
    for folder, state in states.items():
        experiment_id = experiment_id or state.experiment_id
        if begun(folder) and not state.closed:
            is_closed = False
    pending = 0
    run_ids = []
    for run in runs:
        state = states[run]
        records, _ = state.unsent(run)
        pending += len(records)
        if state.run_id:
            run_ids.append(state.run_id)
    return Summary(
        delivered=error is None and not pending and is_closed,
        pending=pending,
        uri=mask(upload.uri),
        experiment_id=experiment_id,
        parent_run_id=None if below is None else states[head].run_id,
        run_ids=tuple(run_ids),
        error=error,
    )


def root_above(folder: Path) -> Path:
    """The folder that holds `runs/`; the folder's own parent where there is no such."""
    runs = runs_root(folder)
    return runs.parent if runs.name == "runs" else runs
