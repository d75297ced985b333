"""Time of a block of calls, and blocks taken in turn: what else the machine does then meets all
of them alike.
"""

from __future__ import annotations

import math
import time
import timeit
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from subquad.nn.numbers import single_precision
from subquad_tools.bench.memory import added_memory

Taken = TypeVar("Taken")

PARTS = ("forward", "both")
"""What is timed: inference, and a training step's share."""

Times = dict[str, tuple[float, float | None]]
"""Seconds of a call, and their ratio over the baseline, by part (`PARTS`)."""

SHORTEST_BLOCK = 0.03
"""Seconds: shorter passes are repeated within a block, so that clocks and calls do not show."""

_GROUP = 3
"""So many mixers stand between two blocks of the baseline."""


def seconds(action: Callable[[], object], device: torch.device, repeats: int = 1) -> float:
    """Seconds of one call, over a block of `repeats` without garbage collection.

    CPU time of this process; on CUDA the time between events.
    """
    if device.type != "cuda":
        return timeit.timeit(action, timer=time.process_time, number=repeats) / repeats
    start = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize(device)
    start.record()
    timeit.timeit(action, number=repeats)
    end.record()
    torch.cuda.synchronize(device)
    taken = start.elapsed_time(end) / 1e3
    return taken / repeats


def in_turn(blocks: Sequence[Callable[[], Taken]], rounds: int) -> list[list[Taken]]:
    """What each block takes, round by round."""
    taken = []
    for _ in range(rounds):
        taken.append([block() for block in blocks])
    return taken


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread inside operations, so that CPU time is time; and float32 is float32."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with single_precision():
            yield
    finally:
        torch.set_num_threads(before)


class Warm(ABC):
    """What is timed in blocks, each long enough for a clock.

    Attributes:
        name: of its row.
        device: where it runs.
        memory: bytes that a pass forward and backward adds at its peak.
    """

    memory: int

    def __init__(self, name: str, device: torch.device):
        self.name = name
        self.device = device
        self._repeats: dict[str, int] = dict.fromkeys(PARTS, 1)

    @abstractmethod
    def forward(self) -> Any:
        """Inference."""

    @abstractmethod
    def both(self) -> Sequence[Tensor | None]:
        """A training step's share: forward, and gradients."""

    @abstractmethod
    def refresh(self) -> None:
        """Take other inputs."""

    def warm_up(self) -> Self:
        """Measure its memory, and find how often a block repeats it."""
        self.both()
        self.memory = added_memory(self.both, self.device)
        for part in PARTS:
            self.seconds(part)
            self._repeats[part] = max(1, math.ceil(SHORTEST_BLOCK / max(self.seconds(part), 1e-6)))
        return self

    def seconds(self, part: str) -> float:
        """Of a call, by one more block, with other inputs."""
        self.refresh()
        return seconds(getattr(self, part), self.device, self._repeats[part])


_Row = TypeVar("_Row", bound=Warm)


def times_in_turn(
    baseline: _Row | None, others: Sequence[_Row], rounds: int, parts: Sequence[str] = PARTS
) -> dict[_Row, Times]:
    """Medians over rounds of the baseline and others, timed in turn.

    The baseline is timed before and after every few of the others. A ratio is over the mean of its
    blocks on either side; that of the baseline itself is 1.
    """
    between = [baseline] if baseline else []
    order = [*between]
    for start in range(0, len(others), _GROUP):
        order += others[start : start + _GROUP]
        order += between
    taken: dict[str, list[list[float]]] = {part: [] for part in parts}
    for _ in range(rounds):
        for part, blocks in taken.items():
            blocks.append([row.seconds(part) for row in order])
    places: dict[_Row, np.ndarray] = {}
    for row in (*between, *others):
        places[row] = np.flatnonzero([other is row for other in order])
    times: dict[_Row, Times] = {row: {} for row in places}
    for part, blocks in taken.items():
        table = np.array(blocks)
        for row, own in places.items():
            calls = table[:, own]
            median = float(np.median(calls))
            ratio = None
            if baseline:
                ratio = float(np.median(calls / _beside(table, places[baseline], own)))
            times[row][part] = median, ratio
    return times


def _beside(table: np.ndarray, stands: np.ndarray, places: np.ndarray) -> np.ndarray:
    """For each place the mean of the baseline's blocks on either side."""
    last = np.searchsorted(stands, places, "right") - 1
    both = table[:, stands[last]] + table[:, stands[np.searchsorted(stands, places)]]
    return both / 2
