"""Read what metrics.jsonl holds and MLflow does not: in batches, also while it grows and after it was cut.

After a resume the engine cuts metrics.jsonl back to the resumed step and writes equal records again. Counting lines is
not enough to tell those from new ones, since system metrics come by the clock. So the digest of the last line sent
tells whether there was a cut, and after one each stream goes on above the highest step that was sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from subquad.runs import METRICS, Record
from subquad.tracking.progress import Progress


@dataclass(frozen=True)
class Batch:
    """Records to send, and the progress that holds once they were."""

    records: tuple[Record, ...]
    after: Progress
    unreadable: int | None = None


class Spool:
    """One run's metrics.jsonl. Keeps only where it stood, so that a long file is not read anew at each look."""

    def __init__(self, run: Path):
        self._path = run / METRICS
        self._place: tuple[int, str, int] = (0, "", 0)  # records, digest of the last line, bytes

    def next(self, progress: Progress, max_metrics: int) -> Batch | None:
        """Up to `max_metrics` metrics (at least one record) that were not sent; None where there are none."""
        if not self._path.exists():
            return None
        with self._path.open("rb") as stream:
            progress = self._sought(stream, progress)
            return self._collect(stream, progress, max_metrics)

    def _collect(self, stream: BinaryIO, progress: Progress, max_metrics: int) -> Batch | None:
        start, records, metrics, unreadable = progress, [], 0, None
        offset = stream.tell()
        for line in _whole_lines(stream):
            record = _parsed(line)
            if record is None and unreadable is None:
                unreadable = progress.sent + 1
            if record is not None and not _is_new(record, progress):
                record = None
            if record is not None:
                metrics += len(record.metrics)
                if records and metrics > max_metrics:
                    break
                records.append(record)
            offset += len(line)
            progress = _counted(progress, line, record)
        if progress is start:
            return None
        self._place = (progress.sent, progress.last, offset)
        return Batch(tuple(records), progress, unreadable)

    def _sought(self, stream: BinaryIO, progress: Progress) -> Progress:
        """Put the stream behind the last record sent; at the start, with a floor, where the file was cut."""
        sent, last, offset = self._place
        if (sent, last) == (progress.sent, progress.last) and _line_before(stream, offset, last):
            stream.seek(offset)
            return progress
        stream.seek(0)
        line = b""
        for _ in range(progress.sent):
            line = stream.readline()
        if not progress.sent or (line.endswith(b"\n") and _digest(line) == progress.last):
            return progress
        stream.seek(0)
        return replace(progress, sent=0, last="", floor=dict(progress.steps))


def unsent(run: Path, progress: Progress | None) -> int:
    """Number of a run's records that MLflow does not have."""
    progress = progress or Progress(uri="", experiment="", label="", key="")
    spool, count = Spool(run), 0
    while batch := spool.next(progress, 10_000):
        count += len(batch.records)
        progress = batch.after
    return count


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


def _is_new(record: Record, progress: Progress) -> bool:
    return record.step > progress.floor.get(_stream_of(record), -1)


def _counted(progress: Progress, line: bytes, record: Record | None) -> Progress:
    steps = progress.steps
    if record is not None:
        name = _stream_of(record)
        steps = {**steps, name: max(record.step, steps.get(name, -1))}
    return replace(progress, sent=progress.sent + 1, last=_digest(line), steps=steps)


def _line_before(stream: BinaryIO, offset: int, digest: str) -> bool:
    """Whether the line that ends at `offset` has this digest."""
    if offset == 0:
        return digest == ""
    start = max(0, offset - 65536)
    stream.seek(start)
    chunk = stream.read(offset - start)
    line = chunk[chunk.rfind(b"\n", 0, -1) + 1 :]
    return len(chunk) == offset - start and _digest(line) == digest


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()[:16]
