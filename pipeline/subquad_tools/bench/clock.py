"""Time of a block of calls, and blocks taken in turn: what else the machine does then meets all
of them alike. And the machine's own best rates, which times are held against.
"""

from __future__ import annotations

import math
import time
import timeit
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from statistics import median
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from subquad.cost import Count, counting
from subquad.nn.kernels import REFERENCE, using
from subquad.nn.numbers import single_precision
from subquad_tools.bench.memory import added_memory

Taken = TypeVar("Taken")

PARTS = ("forward", "both")
"""What is timed: inference, and a training step's share."""

SHORTEST_BLOCK = 0.03
"""Seconds: shorter passes are repeated within a block, so that clocks and calls do not show."""

ROOFS = {"cpu": (1024, 256 << 20), "cuda": (8192, 1 << 30)}
"""Size of the matrix product and bytes of the copy that show a device's best rates."""

_GROUP = 3
"""So many mixers stand between two blocks of the baseline."""


class Time(NamedTuple):
    """Seconds of a call, the median over rounds, and its ratio over the baseline in each round;
    no ratios without a baseline.
    """

    seconds: float
    ratios: np.ndarray

    @property
    def ratio(self) -> float | None:
        """The median."""
        return float(np.median(self.ratios)) if self.ratios.size else None


Times = dict[str, Time]
"""By part (`PARTS`)."""

Within = Callable[[], AbstractContextManager[Any]]
"""Makes the context that something runs in."""


def times_longer(chosen: Times, other: Times) -> float | None:
    """How many times as long a training step's share takes, the median over rounds; None where it
    is not longer in every round, or there are fewer than three.
    """
    ratios = chosen["both"].ratios / other["both"].ratios
    return float(np.median(ratios)) if ratios.size > 2 and min(ratios) > 1 else None


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
    return start.elapsed_time(end) / 1e3 / repeats


def in_turn(blocks: Sequence[Callable[[], Taken]], rounds: int) -> list[list[Taken]]:
    """What each block takes, round by round."""
    return [[block() for block in blocks] for _ in range(rounds)]


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


def roofline(device: torch.device, dtype: torch.dtype, rounds: int = 3) -> dict[str, Any]:
    """What this process reaches at best, measured now, medians over rounds after a warm-up: of a
    matrix product of this dtype and of a copy, see `ROOFS`.

    Returns:
        `gflops`: of the product, GFLOP/s; `gbytes`: of the copy, read and written, GB/s; `size`: of
        the product; `device`: its name; `torch`: version.
    """
    size, copied = ROOFS[device.type]
    square = torch.randn(size, size, device=device, dtype=dtype)
    source = torch.ones(copied, device=device, dtype=torch.uint8)
    blocks = [
        partial(seconds, action, device)
        for action in (
            partial(torch.mm, square, square),
            partial(torch.empty_like(source).copy_, source),
        )
    ]
    product, copy = map(median, zip(*in_turn(blocks, rounds + 1)[1:], strict=True))
    return {
        "gflops": 2 * size**3 / product / 1e9,
        "gbytes": 2 * copied / copy / 1e9,
        "size": size,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU",
        "torch": torch.__version__,
    }


class Warm(ABC):
    """What is timed in blocks, each long enough for a clock.

    Args:
        name: of its row.
        device: where it runs.
        within: makes the context that it runs in; entering it is not timed.

    Attributes:
        memory: bytes that a pass forward and backward adds at its peak.
    """

    memory: int

    def __init__(self, name: str, device: torch.device, within: Within = nullcontext):
        self.name = name
        self.device = device
        self.within = within
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

    @abstractmethod
    def ends(self) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """What goes in, weights included, and what a forward pass with a graph makes of it."""

    def warm_up(self) -> Self:
        """Measure its memory, and find how often a block repeats it."""
        with self.within():
            self.both()
            self.memory = added_memory(self.both, self.device)
        for part in PARTS:
            self.seconds(part)
            self._repeats[part] = max(1, math.ceil(SHORTEST_BLOCK / max(self.seconds(part), 1e-6)))
        return self

    def seconds(self, part: str) -> float:
        """Of a call, by one more block, with other inputs."""
        self.refresh()
        with self.within():
            return seconds(getattr(self, part), self.device, self._repeats[part])

    def count(self) -> Count:
        """Operations and bytes of `both`; on CUDA those of the plain forms, as a kernel's own are
        seen by nobody.
        """
        try:
            with (
                self.within(),
                using(REFERENCE) if self.device.type == "cuda" else nullcontext(),
                counting() as count,
            ):
                self.both()
        except Exception as error:  # it has run, so it is the counter that cannot follow
            return Count(unknown=(f"anything ({type(error).__name__})",))
        return count

    def measured(
        self, times: Times, count: Count, best: dict[str, Any], tokens: int = 1
    ) -> dict[str, Any]:
        """Its row, as JSON has it.

        Args:
            times: that it took.
            count: of forward and backward.
            best: see `roofline`.
            tokens: that microseconds are given for.

        Returns:
            of the forward pass, and with the backward pass (`both_`), microseconds per token
            (`_us`) and time over that of the baseline, below 1 is faster, None without one
            (`_ratio`); of both passes operations, counted, in 1e9 (`gflop`); the share of the time
            that these take at the product's best rate (`product_share`, None where not all is
            counted), and that the least bytes take at the copy's (`bytes_share`: what goes in and
            comes out, once forward and once backward, and the gradients of what goes in); what they
            add to memory at their peak, in MiB (`peak_mib`).
        """
        both = 1e9 * times["both"].seconds
        with self.within():
            given, made = self.ends()
        least = 2 * sum([tensor.nbytes for tensor in (*given, *made)])
        least += sum([tensor.nbytes for tensor in given if tensor.requires_grad])
        return {
            **{f"{part}_us": 1e6 * times[part].seconds / tokens for part in PARTS},
            **{f"{part}_ratio": times[part].ratio for part in PARTS},
            "gflop": count.flops / 1e9,
            "bytes_share": least / best["gbytes"] / both,
            "product_share": None if count.unknown else count.flops / best["gflops"] / both,
            "peak_mib": self.memory / 2**20,
        }


_Row = TypeVar("_Row", bound=Warm)


def times_in_turn(
    baseline: _Row | None, others: Sequence[_Row], rounds: int, parts: Sequence[str] = PARTS
) -> dict[_Row, Times]:
    """The baseline and others, timed in turn.

    The baseline is timed before and after every few of the others. A ratio is over the mean of its
    blocks on either side; that of the baseline itself is 1.
    """
    between = [baseline] if baseline else []
    order = [*between]
    for start in range(0, len(others), _GROUP):
        order += [*others[start : start + _GROUP], *between]
    taken: dict[str, list[list[float]]] = {part: [] for part in parts}
    for _ in range(rounds):
        for part, blocks in taken.items():
            blocks.append([row.seconds(part) for row in order])
    stands = _places(order, baseline)
    times: dict[_Row, Times] = {}
    for row in (*between, *others):
        own = _places(order, row)
        times[row] = {}
        for part, blocks in taken.items():
            table = np.array(blocks)
            ratios = np.empty(0)
            if baseline:
                before = stands[np.searchsorted(stands, own, "right") - 1]
                beside = table[:, before] + table[:, stands[np.searchsorted(stands, own)]]
                ratios = 2 * (table[:, own] / beside).mean(1)
            times[row][part] = Time(float(np.median(table[:, own])), ratios)
    return times


def _places(order: Sequence[Warm], row: Warm | None) -> np.ndarray:
    return np.flatnonzero([other is row for other in order])
