"""How fast data sets read, beside the code that is usual elsewhere."""

from __future__ import annotations

import math
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from subquad.bench.clock import in_turn, one_thread, seconds
from subquad.data import Dataset, Reading
from subquad.engine.group import CPU
from subquad.errors import DataError
from subquad.registry import Resolved, build_class

_BLOCK_SECONDS = 0.25
"""Each way is repeated for so long."""


def measure_readings(datasets: Sequence[Resolved], rounds: int = 5) -> list[dict[str, Any]]:
    """Time what data sets read, in their ways and in the usual one, in turn in one thread, by CPU time.

    All ways must read the same.

    Returns:
        JSON values, of each way of each reading: `dataset`, `what`, `way`, `per_second` (samples, a median over
        rounds), `ratio` (over the usual way, round by round; above 1 is faster) and `rounds`.

    Raises:
        DataError: a way reads something else than the usual one.
        PluginError: a data set cannot be imported.
    """
    with one_thread():
        return [row for found in datasets for row in _readings(found, rounds)]


def _readings(found: Resolved, rounds: int) -> Iterator[dict[str, Any]]:
    kind: type[Dataset] = build_class(found)
    with tempfile.TemporaryDirectory(prefix="subquad-bench-") as folder:
        for reading in kind.readings(Path(folder)):
            _check_same(found.found.name, reading)
            ways = [partial(_read, way) for way in reading.ways.values()]
            taken = in_turn([partial(seconds, way, CPU, _repeats(way)) for way in ways], rounds)
            for number, way in enumerate(reading.ways):
                per_second = reading.samples / median(row[number] for row in taken)
                ratio = median(row[0] / row[number] for row in taken)
                row = {"way": way, "per_second": per_second, "ratio": ratio, "rounds": rounds}
                yield {"dataset": found.found.name, "what": reading.what, **row}


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
    return np.array_equal(first, second) if not tolerance else np.allclose(first, second, rtol=0, atol=tolerance)
