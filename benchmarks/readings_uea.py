""".ts files beside the loader of sktime, for benchmarks/readings.py. N series, C channels, L
steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from readings import Reading

from subquad_datasets.uea.kept import kept_cases
from subquad_datasets.uea.ts import Cases, read_ts

SHAPE = 589, 144, 62
"""N, C, L: a tenth of FaceDetection's training file, 50 MB."""


def readings(folder: Path) -> Iterator[Reading]:
    """A file of the shape of FaceDetection's. Nothing where sktime is not installed."""
    if find_spec("sktime") is None:
        return
    path = folder / "Drawn_TRAIN.ts"
    path.write_text("".join(_text()))
    ways = {
        "sktime": lambda: [_by_sktime(path)],
        "text": lambda: [_cube(read_ts(path))],
        "kept, to memory": lambda: [
            _cube(kept_cases(folder, path, "refuse", lambda: read_ts(path)))
        ],
    }
    yield Reading(f"a file of {path.stat().st_size / 1e6:.0f} MB", SHAPE[0], ways)


def _text() -> Iterator[str]:
    series, channels, steps = SHAPE
    yield "@problemName Drawn\n@timeStamps false\n@missing false\n@univariate false\n"
    yield (
        f"@dimensions {channels}\n@equalLength true\n@seriesLength "
        f"{steps}\n@classLabel true 0 1\n@data\n"
    )
    generator = np.random.default_rng(0)
    for number in range(series):
        table = generator.standard_normal((channels, steps))
        yield (
            ":".join(",".join(f"{value:.6f}" for value in row) for row in table)
            + f":{number % 2}\n"
        )


def _by_sktime(path: Path) -> np.ndarray:
    """(N, C, L) in memory."""
    from sktime.datasets import load_from_tsfile

    found: Any = load_from_tsfile(str(path), return_data_type="numpy3d")
    return np.ascontiguousarray(found[0])


def _cube(cases: Cases) -> np.ndarray:
    """(N, C, L) in memory."""
    _, channels, steps = SHAPE
    return np.array(cases.values).reshape(-1, steps, channels).transpose(0, 2, 1)
