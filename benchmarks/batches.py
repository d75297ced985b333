"""How fast the batches of a study's first run come, over how fast its model uses them up; in turn,
on the CPU.

    python benchmarks/batches.py TARGET [KEY=VALUE ...] [--rounds 5] [--json]

A batch is that of one optimiser step, with all its micro-batches. A round times three things in
turn, each for a quarter of a second or one batch: fetching in this process (`train.loader_workers:
0`: gathered and padded between two steps), one loader process (`train.loader_workers: 1`: a second
process gathers and sends through a pipe), and the training step. Times are by the wall clock,
medians over rounds. CPU ms here are what a batch takes away from training, even if the loader
process has a core of its own. `/ training` is the number of batches that come in a second over the
number that training uses up. After the first round the data are in the page cache, so a slow disk
does not show.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from statistics import median
from typing import Any

from subquad.engine.group import Group
from subquad.engine.parts import build_parts
from subquad.experiment import Run, load_study
from subquad_tools.bench.clock import one_thread
from subquad_tools.bench.step import Steps, feed

_BLOCK_SECONDS = 0.25
"""Actions are repeated for so long, at least once: a fetch is far shorter than what disturbs a
shared machine.
"""

_AHEAD = 8
"""Batches a loader process may have ready when its block begins, and more: they are taken before
the clock starts.
"""

_HERE, _LOADER, _TRAINING = "fetch in this process", "one loader process", "training step"

_Round = Mapping[str, tuple[float, float]]
"""Of each way, seconds by the wall clock and of CPU time."""


def measure_input(run: Run, rounds: int = 5) -> dict[str, Any]:
    """Measure on the CPU, one thread in each process, after a warm-up round. TRAIN only; nothing is
    written but prepared data.

    Args:
        run: its model trains on batches that were fetched before.
        rounds: blocks of each way.

    Returns:
        JSON values. `rates`: see `_rate`, of each way; `arrays`: name to type and shape, of the
        first micro-batch; `mbytes`: of the first batch, in 1e6 bytes; `batch_size`: its samples;
        `parameters`: trained numbers of the model; `start_seconds`: until a loader process hands
        over its first batch; `rounds`.

    Raises:
        DataError: the data set cannot be read or generated.
        ConfigError, PluginError: the model cannot be built.
    """
    with one_thread():
        parts = build_parts(run, Group())
        first, _ = next(feed(parts, 0))
        with closing(feed(parts, 0)) as here, closing(feed(parts, 1)) as loader:
            start, _ = _block(lambda: next(loader), 0.0)
            steps = Steps(parts)
            actions = {
                _LOADER: lambda: next(loader),
                _HERE: lambda: next(here),
                _TRAINING: steps.make,
            }
            timed = [_round(actions, steps) for _ in range(rounds + 1)][1:]
    arrays = {
        name: (str(tensor.dtype).removeprefix("torch."), *tensor.shape)
        for name, tensor in first[0].batch.items()
    }
    return {
        "rates": [_rate(way, timed) for way in (_HERE, _LOADER, _TRAINING)],
        "arrays": {
            name: f"{dtype} {'x'.join(map(str, shape))}" for name, (dtype, *shape) in arrays.items()
        },
        "mbytes": sum(tensor.nbytes for micro in first for tensor in micro.batch.values()) / 1e6,
        "batch_size": parts.plan.batch_size,
        "parameters": sum(parameter.numel() for parameter in parts.parameters),
        "start_seconds": start,
        "rounds": rounds,
    }


def _round(actions: Mapping[str, Callable[[], object]], steps: Steps) -> _Round:
    steps.advance()
    for _ in range(_AHEAD):
        actions[_LOADER]()
    # The loader's block comes first: right after those ahead it has none ready that were made in
    # somebody else's time.
    return {way: _block(action, _BLOCK_SECONDS) for way, action in actions.items()}


def _block(action: Callable[[], object], seconds: float) -> tuple[float, float]:
    """Repeat an action until so many seconds have passed, once at least; seconds by the wall
    clock and of CPU time.
    """
    count, wall, cpu = 0, time.perf_counter(), time.process_time()
    while not count or time.perf_counter() - wall < seconds:
        action()
        count += 1
    return (time.perf_counter() - wall) / count, (time.process_time() - cpu) / count


def _rate(way: str, rounds: list[_Round]) -> dict[str, Any]:
    """Medians over rounds.

    Returns:
        `way`: fetched in this process, by a loader process, or trained on; milliseconds per batch
        by the wall clock (`wall_ms`) and of this process's CPU time (`cpu_ms`), a loader process's
        own are not in it; batches `per_second`; and these over those a training step uses up, round
        by round (`over_training`).
    """
    wall, cpu = (median(round[way][part] for round in rounds) for part in (0, 1))
    return {
        "way": way,
        "wall_ms": 1e3 * wall,
        "cpu_ms": 1e3 * cpu,
        "per_second": 1 / wall,
        "over_training": median(round[_TRAINING][0] / round[way][0] for round in rounds),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    run = load_study(given.target, given.overrides).runs[0]
    found = measure_input(run, given.rounds)
    if given.json:
        print(json.dumps({"what": "batches", **found}))
        return
    print(f"{'':24}  {'ms/batch':>10}  {'CPU ms here':>12}  {'batches/s':>10}  {'/ training':>10}")
    for row in found["rates"]:
        times = f"{row['wall_ms']:10.3g}  {row['cpu_ms']:12.3g}"
        print(f"{row['way']:24}  {times}  {row['per_second']:10.3g}  {row['over_training']:10.3g}")
    arrays = ", ".join(f"{name} {what}" for name, what in found["arrays"].items())
    print(f"{run.label}: batches of {found['batch_size']}, {found['mbytes']:.3g} MB: {arrays}")
    print(
        f"{found['parameters']:,} parameters; medians over {found['rounds']} "
        "rounds, one thread each"
    )
    print(f"the loader's first batch took {found['start_seconds']:.1f} s")


if __name__ == "__main__":
    main()
