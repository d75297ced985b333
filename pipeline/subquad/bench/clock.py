"""Time of a block of calls, and blocks taken in turn: what else the machine does then meets all of them alike."""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch

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


def in_turn(blocks: Sequence[Callable[[], Taken]], rounds: int) -> list[list[Taken]]:
    """What each block takes, round by round."""
    return [[block() for block in blocks] for _ in range(rounds)]


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread inside operations, so that CPU time is time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
