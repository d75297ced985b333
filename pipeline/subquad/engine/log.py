"""metrics.jsonl: appended while training, cut back to the resumed step after a failure."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from subquad.runs import METRICS, Record, RecordKind, write_text

FLUSH_SECONDS = 0.5


class MetricsLog:
    """Appends records. Ranks other than the first get one that writes nothing.

    Args:
        run: the run's folder, or None to write nothing.
        keep: number of records to keep of an earlier attempt; the rest is cut.
        attempt: tags each record.
    """

    def __init__(self, run: Path | None, keep: int, attempt: int):
        self.count = keep if run is None else _cut(run / METRICS, keep)
        self._attempt = attempt
        self._stream: IO[str] | None = None
        self._flushed = 0.0
        if run is not None:
            self._stream = (run / METRICS).open("a", encoding="utf-8")

    def add(
        self,
        kind: RecordKind,
        *,
        step: int,
        epoch: float,
        seconds: float,
        metrics: Mapping[str, float] | None = None,
        split: str = "",
        text: str = "",
    ) -> None:
        """Append one record; readers see it within half a second of training."""
        self.count += 1
        if self._stream is None:
            return
        record = Record(
            kind=kind,
            step=step,
            epoch=round(epoch, 6),
            seconds=round(seconds, 6),
            time=time.time(),
            attempt=self._attempt,
            split=split,
            metrics=metrics or {},
            text=text,
        )
        self._stream.write(record.line())
        if kind != "train" or time.monotonic() - self._flushed > FLUSH_SECONDS:
            self._flushed = time.monotonic()
            self._stream.flush()

    def sync(self) -> None:
        """Bring every record to the disk; a checkpoint that counts them may follow."""
        if self._stream is not None:
            self._stream.flush()
            os.fsync(self._stream.fileno())

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None


def _cut(path: Path, keep: int) -> int:
    """Keep the first `keep` complete lines of a file; returns how many there are."""
    if not path.exists():
        return 0
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    whole = [line for line in lines[:keep] if line.endswith("\n")]
    if len(whole) != len(lines):
        write_text(path, "".join(whole))
    return len(whole)
