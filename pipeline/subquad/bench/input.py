"""How fast batches come, over how fast a model uses them up: fetching and training steps, in turn."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace

from subquad.bench.clock import one_thread
from subquad.engine.feed import Micro, training_batches
from subquad.engine.group import Group
from subquad.engine.parts import Parts, build_parts
from subquad.engine.precision import parameter_dtype
from subquad.engine.schedule import Rates
from subquad.engine.step import train_step
from subquad.experiment import Run

_BLOCK_SECONDS = 0.25
"""Actions are repeated for so long, at least once: a fetch is far shorter than what disturbs a shared machine."""

_AHEAD = 8
"""Batches a loader process may have ready when its block begins, and more: they are taken before the clock starts."""

_ENDLESS = 1 << 40
_HERE, _LOADER, _TRAINING = "fetch in this process", "one loader process", "training step"


@dataclass(frozen=True, kw_only=True)
class BatchRate:
    """One way to spend time on batches; medians over rounds.

    Attributes:
        way: fetched in this process, fetched by a loader process, or trained on.
        wall_ms: milliseconds per batch.
        cpu_ms: milliseconds of this process's CPU time per batch; a loader process's own are not in it.
        per_second: batches per second.
        over_training: batches per second over those a training step uses up, round by round.
    """

    way: str
    wall_ms: float
    cpu_ms: float
    per_second: float
    over_training: float


@dataclass(frozen=True, kw_only=True)
class InputSpeed:
    """All that was measured.

    Attributes:
        rates: of each way.
        arrays: name to type and shape, of the first micro-batch.
        mbytes: of the first batch, in 1e6 bytes.
        batch_size: samples in a batch.
        parameters: trained numbers of the model.
        start_seconds: until a loader process hands over its first batch.
        rounds: blocks of each way.
    """

    rates: tuple[BatchRate, ...]
    arrays: dict[str, str]
    mbytes: float
    batch_size: int
    parameters: int
    start_seconds: float
    rounds: int


def measure_input(run: Run, rounds: int = 5) -> InputSpeed:
    """Measure on the CPU, one thread in each process, after a warm-up round. TRAIN only; nothing is written but
    prepared data.

    Args:
        run: its model trains on batches that were fetched before.
        rounds: blocks of each way.

    Raises:
        DataError: the data set cannot be read or generated.
        ConfigError, PluginError: the model cannot be built.
    """
    with one_thread():
        parts = build_parts(run, Group())
        first = next(_feed(parts, 0))
        with closing(_feed(parts, 0)) as here, closing(_feed(parts, 1)) as loader:
            start, _ = _block(lambda: next(loader), 0.0)
            steps = _Steps(parts)
            actions = {_LOADER: lambda: next(loader), _HERE: lambda: next(here), _TRAINING: steps.make}
            timed = [_round(actions, steps) for _ in range(rounds + 1)][1:]
    shapes = {name: "x".join(map(str, one.shape)) for name, one in first[0][0].items()}
    return InputSpeed(
        rates=tuple(_rate(way, timed) for way in (_HERE, _LOADER, _TRAINING)),
        arrays={name: f"{str(one.dtype).removeprefix('torch.')} {shapes[name]}" for name, one in first[0][0].items()},
        mbytes=sum(tensor.nbytes for batch, _ in first for tensor in batch.values()) / 1e6,
        batch_size=parts.plan.batch_size,
        parameters=sum(one.numel() for one in parts.parameters),
        start_seconds=start,
        rounds=rounds,
    )


def _feed(parts: Parts, workers: int) -> Generator[list[Micro]]:
    """The training data, endlessly, as a run has it that starts anew."""
    plan, train = replace(parts.plan, settings=replace(parts.plan.settings, steps=_ENDLESS)), parts.train
    yield from training_batches(
        parts.training, parts.task.spec.arrays, plan, 0, Group(), train.micro_batch, workers, parameter_dtype(train)
    )


class _Steps:
    """Training steps on batches that are there already: another one for each round."""

    def __init__(self, parts: Parts):
        self._parts = parts
        self._feed = zip(itertools.count(), _feed(parts, 0))
        self.advance()

    def advance(self) -> None:
        number, self._micros = next(self._feed)
        self._samples = len(self._parts.plan.batch(number)[1])

    def make(self) -> None:
        # A rate of zero costs as much and leaves the weights as they are, so that every round does the same work.
        train_step(self._parts, self._micros, self._samples, Rates(0.0))


def _round(actions: Mapping[str, Callable[[], object]], steps: _Steps) -> dict[str, tuple[float, float]]:
    steps.advance()
    for _ in range(_AHEAD):
        actions[_LOADER]()
    # The loader's block comes first: right after those ahead it has none ready that were made in somebody else's time.
    return {way: _block(action, _BLOCK_SECONDS) for way, action in actions.items()}


def _block(action: Callable[[], object], seconds: float) -> tuple[float, float]:
    """Repeat an action until so many seconds have passed, once at least; seconds by the wall clock and of CPU time."""
    count, wall, cpu = 0, time.perf_counter(), time.process_time()
    while not count or time.perf_counter() - wall < seconds:
        action()
        count += 1
    return (time.perf_counter() - wall) / count, (time.process_time() - cpu) / count


def _rate(way: str, rounds: list[dict[str, tuple[float, float]]]) -> BatchRate:
    """Medians over rounds."""
    wall, cpu = (statistics.median(one[way][part] for one in rounds) for part in (0, 1))
    return BatchRate(
        way=way,
        wall_ms=1e3 * wall,
        cpu_ms=1e3 * cpu,
        per_second=1 / wall,
        over_training=statistics.median(one[_TRAINING][0] / one[way][0] for one in rounds),
    )
