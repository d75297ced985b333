"""Time of blocks of an action, taken in turn with others; and what the machine can do at best."""

from __future__ import annotations

import math
import time
import timeit
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import TypeVar

import torch

SHORTEST_BLOCK = 0.03
"""Seconds: shorter actions are repeated within a block, so that clocks and calls do not show."""

GEMM_SIZE = 2048
COPY_BYTES = 256 << 20

Taken = TypeVar("Taken")


def seconds(action: Callable[[], object], device: torch.device, repeats: int = 1) -> float:
    """Seconds of one call, over a block of `repeats` without garbage collection.

    CPU time of this process; on CUDA the time between events.
    """
    if device.type != "cuda":
        return timeit.timeit(action, timer=time.process_time, number=repeats) / repeats
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(device)
    start.record()
    timeit.timeit(action, number=repeats)
    end.record()
    torch.cuda.synchronize(device)
    return start.elapsed_time(end) / 1e3 / repeats


def block_size(action: Callable[[], object], device: torch.device) -> int:
    """Calls that make a block long enough; warms up too."""
    seconds(action, device)
    return max(1, math.ceil(SHORTEST_BLOCK / max(seconds(action, device), 1e-6)))


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread inside operations, so that CPU time is time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def in_turn(blocks: Sequence[Callable[[], Taken]], rounds: int) -> list[list[Taken]]:
    """What each block takes, round by round: what else the machine does meets all blocks alike."""
    return [[block() for block in blocks] for _ in range(rounds)]


def medians(rounds: Sequence[Sequence[float]]) -> list[float]:
    """Of each block, over the rounds."""
    return [median(times) for times in zip(*rounds, strict=True)]


def roofline(
    device: torch.device, rounds: int = 3, *, size: int = GEMM_SIZE, copied: int = COPY_BYTES
) -> dict[str, float]:
    """What this process reaches at best, measured now, after a warm-up round.

    Returns:
        `gflops`: of a float32 matrix product, GFLOP/s; `gbytes`: of a copy, read and written, GB/s.
    """
    a, b = (torch.randn(size, size, device=device) for _ in range(2))
    source = torch.ones(copied // 4, device=device)
    target = torch.empty_like(source)
    blocks = [lambda: seconds(lambda: torch.mm(a, b), device), lambda: seconds(lambda: target.copy_(source), device)]
    gemm, copy = medians(in_turn(blocks, rounds + 1)[1:])
    return {"gflops": 2 * size**3 / gemm / 1e9, "gbytes": 2 * copied / copy / 1e9}
