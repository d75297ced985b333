"""How fast data sets read their files, beside the code that is usual elsewhere.

    python benchmarks/readings.py [listops] [uea] [imagenet] [--rounds 5] [--json]

All ways of a reading must give the same. Then they are timed in turn, by CPU time of one thread.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from subquad.engine.group import CPU
from subquad.errors import DataError
from subquad_tools.bench.clock import in_turn, one_thread, seconds

DATASETS = ("listops", "uea", "imagenet")

_BLOCK_SECONDS = 0.25
"""Each way is repeated for so long."""


class Reading(NamedTuple):
    """Something that a data set reads in ways of its own, beside the code that is usual elsewhere.

    Attributes:
        what: what is read, in a few words.
        samples: in what is read.
        ways: by name, the usual one first, what reads all of it and yields it: arrays or bytes, one
            after the other.
        tolerance: the largest difference of a number between ways.
    """

    what: str
    samples: int
    ways: Mapping[str, Callable[[], Iterable[Any]]]
    tolerance: float = 0.0


def measure_readings(names: Sequence[str], rounds: int = 5) -> list[dict[str, Any]]:
    """Time what data sets read, in their ways and in the usual one, in turn in one thread, by CPU
    time.

    Args:
        names: of `DATASETS`.
        rounds: how often each way is timed.

    Returns:
        JSON values, of each way of each reading: `dataset`, `what`, `way`, `per_second` (samples, a
        median over rounds), `ratio` (over the usual way, round by round; above 1 is faster) and
        `rounds`.

    Raises:
        DataError: a way reads something else than the usual one.
    """
    with one_thread():
        return [row for name in names for row in _measured(name, rounds)]


def _measured(name: str, rounds: int) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="subquad-bench-") as folder:
        for reading in importlib.import_module(f"readings_{name}").readings(Path(folder)):
            _check_same(name, reading)
            ways = [partial(_read, way) for way in reading.ways.values()]
            taken = in_turn([partial(seconds, way, CPU, _repeats(way)) for way in ways], rounds)
            for number, way in enumerate(reading.ways):
                per_second = reading.samples / median(row[number] for row in taken)
                ratio = median(row[0] / row[number] for row in taken)
                row = {"way": way, "per_second": per_second, "ratio": ratio, "rounds": rounds}
                yield {"dataset": name, "what": reading.what, **row}


def _read(way: Callable[[], Iterable[Any]]) -> None:
    """Read all of it, and keep none."""
    deque(way(), maxlen=0)


def _repeats(way: Callable[[], object]) -> int:
    """So many calls last for a block."""
    return max(1, math.ceil(_BLOCK_SECONDS / max(seconds(way, CPU), 1e-6)))


def _check_same(name: str, reading: Reading) -> None:
    """Refuse to compare what does not read the same."""
    usual, *others = reading.ways
    wanted = [*reading.ways[usual]()]
    for way in others:
        pairs = zip_longest(wanted, reading.ways[way]())
        if not all(_same(reading.tolerance, *pair) for pair in pairs):
            raise DataError(f"{name}, {reading.what}: {way} reads something else than {usual}")


def _same(tolerance: float, one: Any, other: Any) -> bool:
    if not isinstance(one, np.ndarray):
        return one == other
    first, second = one, np.asarray(other)
    if first.shape != second.shape:
        return False
    return (
        np.array_equal(first, second)
        if not tolerance
        else np.allclose(first, second, rtol=0, atol=tolerance)
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", choices=[*DATASETS, []], metavar="DATASET", help=", ".join(DATASETS)
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    found = measure_readings(given.names or DATASETS, given.rounds)
    if given.json:
        print(json.dumps({"what": "data", "readings": found}))
        return
    print(f"{'data set':10}  {'what':36}  {'way':30}  {'samples/s':>10}  {'/ usual':>8}")
    for row in found:
        rates = f"{row['per_second']:10.3g}  {row['ratio']:8.3g}"
        print(f"{row['dataset']:10}  {row['what']:36}  {row['way']:30}  {rates}")


if __name__ == "__main__":
    main()
