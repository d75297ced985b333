"""What MLflow does not have yet of a run: records of metrics.jsonl, told by mlflow.json, which says what was sent.

After a resume the engine cuts metrics.jsonl back to the resumed step and writes equal records again. So each stream
goes on above the highest step that was sent.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from subquad.runs import TRACKING, Place, Record, read_json, read_new, write_json


@dataclass(frozen=True, kw_only=True)
class SyncState:
    """How far one folder is with one store: the contents of mlflow.json.

    Attributes:
        uri: the store, without credentials.
        experiment: name of the MLflow experiment.
        key: made once for a folder; finds its MLflow run in any store, also when the answer to its creation was lost
            or the database was moved.
        experiment_id: MLflow's id.
        run_id: MLflow's id; None until the run exists there.
        place: how far metrics.jsonl was read.
        steps: highest step sent of each stream (a kind and split).
        closed: digest of the end that the MLflow run was closed with, all its files sent.
        elsewhere: the same for other stores this folder was sent to.
    """

    uri: str
    experiment: str
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    experiment_id: str | None = None
    run_id: str | None = None
    place: Place = field(default_factory=Place)
    steps: Mapping[str, int] = field(default_factory=dict)
    closed: str = ""
    elsewhere: tuple[Mapping[str, Any], ...] = ()

    @staticmethod
    def load(folder: Path) -> SyncState | None:
        """A folder's state, None where it has none or an unreadable one."""
        return _parsed(read_json(folder / TRACKING))

    def save(self, folder: Path) -> SyncState:
        """Write mlflow.json whole, and hand the state on."""
        write_json(folder / TRACKING, asdict(self))
        return self

    @staticmethod
    def of(old: SyncState | None, uri: str, experiment: str) -> SyncState:
        """The state for a store: `old` if it is of this one, else one that was kept aside, else a new one."""
        if old is None:
            return SyncState(uri=uri, experiment=experiment)
        if (old.uri, old.experiment) == (uri, experiment):
            return old
        aside = [*old.elsewhere, *([{**asdict(old), "elsewhere": ()}] if old.run_id else [])]
        here = [one for one in aside if (one.get("uri"), one.get("experiment")) == (uri, experiment)]
        found = _parsed(here[0] if here else None) or SyncState(uri=uri, experiment=experiment, key=old.key)
        return replace(found, elsewhere=tuple(one for one in aside if one not in here))

    def anew(self, run_id: str) -> SyncState:
        """The state with an MLflow run that is not known to hold anything."""
        return replace(self, run_id=run_id, place=Place(), steps={}, closed="")

    def unsent(self, run: Path) -> tuple[list[Record], Place]:
        """Records that MLflow does not have, and how far metrics.jsonl was read. Events are none of its business."""
        records, place = read_new(run, self.place)
        steps = self.steps
        new = [one for one in records if one.kind != "event" and one.step > steps.get(_stream_of(one), -1)]
        return new, place

    def after(self, sent: Sequence[Record]) -> SyncState:
        """The state once these records were sent, in order."""
        return replace(self, steps={**self.steps, **{_stream_of(one): one.step for one in sent}})


def _parsed(data: Mapping[str, Any] | None) -> SyncState | None:
    try:
        return None if data is None else TypeAdapter(SyncState).validate_python(data)
    except ValidationError:
        return None


def _stream_of(record: Record) -> str:
    return f"{record.kind} {record.split}".rstrip()
