"""Time of a block of calls, and blocks taken in turn: what else the machine does then meets all
of them alike.
"""

from __future__ import annotations

import time
import timeit
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Protocol, TypeVar

import torch

Taken = TypeVar("Taken")

PARTS = ("forward", "both")
"""What is timed: inference, and a training step's share."""

Times = dict[str, tuple[float, float | None]]
"""Seconds of a call, and their ratio over the baseline, by part (`PARTS`)."""

_GROUP = 3
"""So many mixers stand between two blocks of the baseline."""


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


class _Clocked(Protocol):
    def seconds(self, part: str) -> float: ...


_One = TypeVar("_One", bound=_Clocked)


def times_in_turn(
    baseline: _One | None, others: Sequence[_One], rounds: int
) -> list[tuple[_One, Times]]:
    """Time the baseline and others in turn, the baseline before and after every few of them: for
    each its times.
    """
    between = [] if baseline is None else [baseline]
    order = [*between]
    for start in range(0, len(others), _GROUP):
        order += [*others[start : start + _GROUP], *between]
    taken = in_turn([partial(row.seconds, part) for part in PARTS for row in order], rounds)
    width = len(order)
    parts = {
        part: [row[at * width : (at + 1) * width] for row in taken] for at, part in enumerate(PARTS)
    }
    return [
        (row, {part: medians(row, order, rows, baseline) for part, rows in parts.items()})
        for row in (*between, *others)
    ]


def medians(
    timed: object,
    order: Sequence[object],
    rounds: Sequence[Sequence[float]],
    baseline: object | None,
) -> tuple[float, float | None]:
    """Seconds of a call, and their ratio over the mean of the baseline blocks on either side; 1
    of the baseline.
    """
    places, around = (
        [at for at, other in enumerate(order) if other is which] for which in (timed, baseline)
    )
    taken = median(row[at] for row in rounds for at in places)
    if baseline is None:
        return taken, None
    sides = [
        (at, around[bisect_right(around, at) - 1], around[bisect_left(around, at)]) for at in places
    ]
    return taken, median(
        2 * row[at] / (row[before] + row[after]) for row in rounds for at, before, after in sides
    )
