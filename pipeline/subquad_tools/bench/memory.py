"""Memory that a call adds, and what happens where there is not enough."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import torch

_REFUSED = ("can't allocate memory", "not enough memory", "out of memory")
"""What torch's errors say where an allocation failed."""


def added_memory(action: Callable[[], object], device: torch.device) -> int:
    """Bytes at the peak of a call, beyond what was there before it; what it returns counts. It must
    have run before.

    On the CPU the sum of what torch's allocator gave and took back, event by event, by torch's
    profiler: the same in every call. The growth of the process is no measure: the C library keeps
    memory that was freed before, and gives it out again. On CUDA the allocator's own peak.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        action()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler tells of missing GPUs
    with torch.autograd.profiler.profile(profile_memory=True) as profile:
        held = action()
    del held
    results: Any = profile
    now = peak = 0
    for event in sorted(results.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    return peak


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed."""
    if isinstance(error, RuntimeError):
        message = str(error).lower()
        return any(words in message for words in _REFUSED)
    return isinstance(error, MemoryError)


@contextmanager
def memory_bounded(device: torch.device, spare: int | None = None) -> Iterator[None]:
    """Let allocations fail on the CPU where memory ends, so that the system does not end the
    process.

    Works on Linux only; elsewhere, and on CUDA, nothing is done.

    Args:
        device: where tensors live.
        spare: bytes that may be added; default: what is free now.
    """
    status = Path("/proc/self/status")
    if device.type != "cpu" or not status.exists():
        yield
        return
    import resource

    if spare is None:
        spare = psutil.virtual_memory().available
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    ends = [int(status.read_text().partition("VmData:")[2].split()[0]) * 1024 + spare]
    ends += [limit for limit in limits if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(ends), limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, limits)
