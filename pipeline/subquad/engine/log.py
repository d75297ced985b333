"""What a run writes down while it trains: its records, and what it uses."""

from __future__ import annotations

import resource
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import IO, Any

import torch

from subquad.engine.group import Group
from subquad.engine.state import Progress
from subquad.plan import Plan
from subquad.record.files import to_disk, touching
from subquad.record.metrics import Record, RecordKind, metrics_file
from subquad.security.disk import opened

FLUSH_SECONDS = 0.5

WARM_UP = 10
"""First steps of an attempt, which choose kernels, compile and fill caches: they are left out."""

_NEWEST = 10_000
"""Steps whose seconds are kept, so that a long run's record does not grow."""


class MetricsLog:
    """Appends the records of one attempt to a file of its own. Ranks other than the first write
    nothing.

    Args:
        run: the run's folder, or None to write nothing.
        attempt: its number.
        plan: tells the epochs that steps are.
    """

    def __init__(self, run: Path | None, attempt: int, plan: Plan):
        self._path = Path() if run is None else metrics_file(run, attempt)
        self._attempt = attempt
        self._plan = plan
        self._stream: IO[str] | None = None
        self._flushed = 0.0
        if run is not None:
            with touching(self._path):
                self._stream = opened(self._path, "a", encoding="utf-8")

    def add(
        self,
        kind: RecordKind,
        progress: Progress,
        metrics: Mapping[str, float] | None = None,
        *,
        split: str = "",
        text: str = "",
    ) -> None:
        """Append one record of where the run stands; readers see it within half a second of
        training.
        """
        if self._stream is None:
            return
        record = Record(
            kind=kind,
            step=progress.step,
            epoch=round(self._plan.epochs(progress.step), 6),
            seconds=round(progress.seconds, 6),
            time=time.time(),
            attempt=self._attempt,
            split=split,
            metrics=metrics or {},
            text=text,
        )
        with touching(self._path):
            self._stream.write(record.line())
            if kind != "train" or time.monotonic() - self._flushed > FLUSH_SECONDS:
                self._flushed = time.monotonic()
                self._stream.flush()

    def sync(self) -> None:
        """Bring every record to the disk; the checkpoint of their step may follow."""
        if self._stream is not None:
            with touching(self._path):
                to_disk(self._stream)

    def close(self) -> None:
        if self._stream is not None:
            with touching(self._path):
                self._stream.close()
            self._stream = None


class Usage:
    """Seconds of a step and memory at its peak, measured since it was made, by one rank; nothing is
    in a checkpoint.

    On CUDA it resets the device's peak, so that a run which follows another in one process starts
    at its own.
    """

    def __init__(self, group: Group):
        self._group = group
        self._steps: deque[tuple[float, float]] = deque(maxlen=_NEWEST)
        self._start = 0.0
        if group.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(group.device)

    def step_starts(self) -> None:
        """From here on the time belongs to a step, its wait for data included."""
        self._start = time.perf_counter()

    def steps_ended(self, weights: Sequence[float]) -> None:
        """What comes until the next `step_starts` (evaluation, checkpoint) belongs to no step.

        Args:
            weights: of the global batches' losses, one of each step since the last `step_starts`.
        """
        seconds = (time.perf_counter() - self._start) / len(weights)
        self._steps.extend((seconds, weight) for weight in weights)

    def to_json(self, *, tokens: bool = False) -> dict[str, Any]:
        """For result.json; every rank calls it. The first rank's seconds, the largest peak over the
        ranks.

        Args:
            tokens: weights are numbers of tokens.
        """
        steps = list(self._steps)
        timed = steps[WARM_UP:] or steps[-1:]
        rate = (
            {"tokens_per_second": median(weight / seconds for seconds, weight in timed)}
            if tokens and timed
            else {}
        )
        return {
            "seconds_per_step": median(seconds for seconds, _ in timed) if timed else None,
            **rate,
            "peak_memory_bytes": max(self._group.gather(_peak(self._group.device))),
        }


def _peak(device: torch.device) -> int:
    """Bytes: of CUDA what tensors took, of the CPU the process's resident set, libraries and
    earlier runs included.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
