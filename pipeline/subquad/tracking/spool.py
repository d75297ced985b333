"""What MLflow does not have yet of a run: metrics.jsonl, read in batches, and mlflow.json, which says what was sent.

After a resume the engine cuts metrics.jsonl back to the resumed step and writes equal records again. Counting lines is
not enough to tell those from new ones, since system metrics come by the clock. So the digest of the last line sent
tells whether there was a cut, and after one each stream goes on above the highest step that was sent.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import TypeAdapter, ValidationError

from subquad.runs import METRICS, TRACKING, Record, read_json, write_json


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
        parent_run_id: MLflow's id of the study's or search's run.
        described: digest of the parameters and tags that the store has.
        sent: lines of metrics.jsonl that were dealt with.
        offset, last, length: where these end, in bytes; digest and length of the last one, which tell whether
            metrics.jsonl was cut since.
        steps: highest step sent of each stream (a kind and split).
        floor: after a cut, the steps that the store had already; they are not sent again.
        noted: tags that keep their first value.
        closed: digest of the end that the MLflow run was closed with.
        reopened: it went on after that; the old result, still there, is not its end.
        done: everything there is was sent.
        elsewhere: the same for other stores this folder was sent to.
    """

    uri: str
    experiment: str
    key: str
    experiment_id: str | None = None
    run_id: str | None = None
    parent_run_id: str | None = None
    described: str = ""
    sent: int = 0
    offset: int = 0
    last: str = ""
    length: int = 0
    steps: Mapping[str, int] = field(default_factory=dict)
    floor: Mapping[str, int] = field(default_factory=dict)
    noted: tuple[str, ...] = ()
    closed: str = ""
    reopened: bool = False
    done: bool = False
    elsewhere: tuple[Mapping[str, Any], ...] = ()

    @staticmethod
    def load(folder: Path) -> SyncState | None:
        """A folder's state, None where it has none or an unreadable one."""
        return _parsed_state(read_json(folder / TRACKING))

    def save(self, folder: Path) -> SyncState:
        """Write mlflow.json whole, and hand the state on."""
        write_json(folder / TRACKING, asdict(self))
        return self

    @staticmethod
    def of(old: SyncState | None, uri: str, experiment: str) -> SyncState:
        """The state for a store: `old` if it is of this one, else one that was kept aside, else a new one."""
        if old is not None and (old.uri, old.experiment) == (uri, experiment):
            return old
        if old is None:
            return SyncState(uri=uri, experiment=experiment, key=uuid.uuid4().hex)
        aside = [*old.elsewhere, *([{**asdict(old), "elsewhere": ()}] if old.run_id else [])]
        here = [one for one in aside if (one.get("uri"), one.get("experiment")) == (uri, experiment)]
        found = _parsed_state(here[0] if here else None) or SyncState(uri=uri, experiment=experiment, key=old.key)
        return replace(found, elsewhere=tuple(one for one in aside if one not in here))

    def recreated(self, run_id: str, parent_run_id: str | None) -> SyncState:
        """The state of an MLflow run that was just made and holds nothing."""
        fresh = SyncState(uri=self.uri, experiment=self.experiment, key=self.key, elsewhere=self.elsewhere)
        return replace(fresh, run_id=run_id, parent_run_id=parent_run_id)


@dataclass(frozen=True)
class Batch:
    """Records to send, the state that holds once they were, and the number of the first line that is unreadable."""

    records: tuple[Record, ...]
    after: SyncState
    unreadable: int | None = None


def next_batch(run: Path, state: SyncState, max_metrics: int) -> Batch | None:
    """Up to `max_metrics` metrics (at least one record) that were not sent; None where there are none."""
    if not (run / METRICS).exists():
        return None
    with (run / METRICS).open("rb") as stream:
        start = state = _sought(stream, state)
        records, metrics, unreadable = [], 0, None
        for line in _whole_lines(stream):
            record = _parsed(line)
            if record is None and unreadable is None:
                unreadable = state.sent + 1
            if record is not None and record.step <= state.floor.get(_stream_of(record), -1):
                record = None
            if record is not None:
                metrics += len(record.metrics)
                if records and metrics > max_metrics:
                    break
                records.append(record)
            state = _after(state, line, record)
    return None if state is start else Batch(tuple(records), state, unreadable)


def unsent(run: Path, state: SyncState | None) -> int:
    """Number of a run's records that MLflow does not have."""
    state, count = state or SyncState(uri="", experiment="", key=""), 0
    while batch := next_batch(run, state, 10_000):
        count += len(batch.records)
        state = batch.after
    return count


def _parsed_state(data: Mapping[str, Any] | None) -> SyncState | None:
    try:
        return None if data is None else TypeAdapter(SyncState).validate_python(data)
    except ValidationError:
        return None


def _sought(stream: BinaryIO, state: SyncState) -> SyncState:
    """Put the stream behind the last record sent; at the start, with a floor, where the file was cut."""
    stream.seek(state.offset - state.length)
    if _digest(stream.read(state.length)) == state.last or not state.offset:
        return state
    stream.seek(0)
    return replace(state, sent=0, offset=0, last="", length=0, floor=dict(state.steps))


def _after(state: SyncState, line: bytes, record: Record | None) -> SyncState:
    steps = state.steps
    if record is not None:
        name = _stream_of(record)
        steps = {**steps, name: max(record.step, steps.get(name, -1))}
    place = {"sent": state.sent + 1, "offset": state.offset + len(line), "last": _digest(line), "length": len(line)}
    return replace(state, **place, steps=steps)


def _whole_lines(stream: BinaryIO) -> Iterator[bytes]:
    while (line := stream.readline()).endswith(b"\n"):
        yield line


def _parsed(line: bytes) -> Record | None:
    """A record, None for a line that a crash of the machine left torn."""
    try:
        return Record.parse(line.decode("utf-8"))
    except (ValueError, TypeError, AttributeError):
        return None


def _stream_of(record: Record) -> str:
    return f"{record.kind} {record.split}".rstrip()


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()[:16]
