"""What one attempt of a run uses: seconds of a step, and memory at its peak."""

from __future__ import annotations

import resource
import sys
import time
from collections import deque
from statistics import median
from typing import Any

import torch

from subquad.engine.group import Group

WARM_UP = 10
"""First steps of an attempt, which choose kernels, compile and fill caches: they are left out."""

_NEWEST = 10_000
"""Steps whose seconds are kept, so that a long run's record does not grow."""


class Usage:
    """Measured since it was made, by one rank; nothing of it is in a checkpoint.

    On CUDA it resets the device's peak, so that a run which follows another in one process starts at its own.
    """

    def __init__(self, group: Group):
        self._group = group
        self._seconds: deque[float] = deque(maxlen=_NEWEST)
        self._start = 0.0
        if group.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(group.device)

    def step_starts(self) -> None:
        """From here on the time belongs to a step, its wait for data included."""
        self._start = time.perf_counter()

    def step_ended(self) -> None:
        """What comes until the next `step_starts` (evaluation, checkpoint) belongs to no step."""
        self._seconds.append(time.perf_counter() - self._start)

    def to_json(self) -> dict[str, Any]:
        """For result.json; every rank calls it. The first rank's seconds, the largest peak over the ranks."""
        seconds = list(self._seconds)
        timed = seconds[WARM_UP:] or seconds[-1:]
        return {
            "seconds_per_step": median(timed) if timed else None,
            "peak_memory_bytes": max(self._group.gather(_peak(self._group.device))),
        }


def _peak(device: torch.device) -> int:
    """Bytes: of CUDA what tensors took, of the CPU the process's resident set, libraries and earlier runs included."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
