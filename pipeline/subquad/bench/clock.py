"""Time of an action: CPU time of this process, or CUDA events; and what the machine can do at best."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

SHORTEST_BLOCK = 0.03
"""Seconds: shorter actions are repeated within a block, so that clocks and calls do not show."""

GEMM_SIZE = 2048
COPY_BYTES = 256 << 20


class Clock:
    """Measures on one device.

    Args:
        device: "cpu" or a CUDA device.
    """

    def __init__(self, device: torch.device):
        self.device = device

    def once(self, action: Callable[[], object], repeats: int = 1) -> float:
        """Seconds of one call, over a block of `repeats` calls without garbage collection."""
        with _no_collection():
            return (self._events if self.device.type == "cuda" else _cpu_time)(action, repeats) / repeats

    def repeats(self, action: Callable[[], object]) -> int:
        """Calls that make a block long enough; warms up too."""
        self.once(action)
        return max(1, math.ceil(SHORTEST_BLOCK / max(self.once(action), 1e-6)))

    def _events(self, action: Callable[[], object], repeats: int) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(self.device)
        start.record()
        for _ in range(repeats):
            action()
        end.record()
        torch.cuda.synchronize(self.device)
        return start.elapsed_time(end) / 1e3


def _cpu_time(action: Callable[[], object], repeats: int) -> float:
    start = time.process_time()
    for _ in range(repeats):
        action()
    return time.process_time() - start


@contextmanager
def _no_collection() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread inside operations, so that CPU time is time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class Roofline:
    """What this process reaches at best.

    Attributes:
        gflops: of a float32 matrix product of size 2048, GFLOP/s.
        gbytes: of a copy of 256 MiB, read and written, GB/s.
    """

    gflops: float
    gbytes: float


def roofline(clock: Clock, rounds: int = 3, *, size: int = GEMM_SIZE, copied: int = COPY_BYTES) -> Roofline:
    """Measured now, medians over rounds, after a warm-up."""
    a, b = (torch.randn(size, size, device=clock.device) for _ in range(2))
    source = torch.ones(copied // 4, device=clock.device)
    target = torch.empty_like(source)
    pairs = [(clock.once(lambda: torch.mm(a, b)), clock.once(lambda: target.copy_(source))) for _ in range(rounds + 1)][
        1:
    ]
    gemm, copy = (statistics.median(times) for times in zip(*pairs, strict=True))
    return Roofline(2 * size**3 / gemm / 1e9, 2 * copied / copy / 1e9)
