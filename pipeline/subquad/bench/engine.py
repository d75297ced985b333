"""Engine overhead: its loop against a bare torch loop, in turn, in one process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from subquad.bench.toy import bare_steps, build, engine_steps


@dataclass(frozen=True)
class Overhead:
    """Milliseconds per step, medians over rounds of CPU time of this process.

    Attributes:
        with_it, without_it: the two loops.
        added: median of the differences, round by round.
        rounds, steps: how often, and steps a round.
    """

    with_it: float
    without_it: float
    added: float
    rounds: int
    steps: int

    @staticmethod
    def of(with_it: list[float], without_it: list[float], steps: int) -> Overhead:
        added = statistics.median(one - other for one, other in zip(with_it, without_it, strict=True))
        return Overhead(
            statistics.median(with_it), statistics.median(without_it), added, rounds=len(with_it), steps=steps
        )


def measure(rounds: int = 15, steps: int = 2048) -> Overhead:
    """Measure, one thread, after a warm-up round. Blocks are long, so that the one checkpoint of each is small."""
    torch.set_num_threads(1)
    toy = build(steps=steps)
    pairs = [
        (timed(lambda: engine_steps(toy, steps), steps), timed(lambda: bare_steps(toy, steps), steps))
        for _ in range(rounds + 1)
    ][1:]
    return Overhead.of([one for one, _ in pairs], [other for _, other in pairs], steps)


def timed(action: Callable[[], None], steps: int) -> float:
    """CPU milliseconds per step of an action."""
    start = time.process_time()
    action()
    return 1e3 * (time.process_time() - start) / steps
