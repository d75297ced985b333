"""Per-sample correctness of a row's runs, from their predictions.safetensors.

Letters: S seeds, N test samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from subquad.report.cells import Cell
from subquad.report.rows import Row
from subquad.runs import PREDICTIONS


@dataclass(frozen=True)
class Correctness:
    """What a row's runs got right.

    Attributes:
        seeds: (S) seeds, ascending.
        labels: (N,) int64, the true classes.
        correct: (S, N) bool.
    """

    seeds: tuple[int, ...]
    labels: np.ndarray
    correct: np.ndarray

    def same_samples(self, other: Correctness) -> bool:
        """Same seeds and same test samples, in the same order as far as the labels tell."""
        return self.seeds == other.seeds and np.array_equal(self.labels, other.labels)


def correctness(row: Row, seeds: Sequence[int]) -> Correctness | str:
    """Correctness of the runs with these seeds, or in words why it cannot be had."""
    if row.metric != "accuracy":
        return f"{row.metric} is compared over seeds"
    if not seeds:
        return "no seed in common"
    found = [_read(cell) for cell in row.counted if cell.seed in seeds]
    for one in found:
        if isinstance(one, str):
            return one
    arrays = [one for one in found if not isinstance(one, str)]
    labels = arrays[0][1]
    if any(not np.array_equal(labels, other) for _, other in arrays):
        return "the test samples differ between the runs"
    return Correctness(tuple(sorted(seeds)), labels, np.stack([predicted == labels for predicted, _ in arrays]))


def _read(cell: Cell) -> tuple[np.ndarray, np.ndarray] | str:
    """`predicted` and `label`, (N,) each."""
    try:
        arrays = load_file(cell.folder / PREDICTIONS)
    except FileNotFoundError:
        return "no predictions were kept"
    except (OSError, SafetensorError):
        return f"{PREDICTIONS} of {cell.name} cannot be read"
    predicted, label = arrays.get("predicted"), arrays.get("label")
    if predicted is None or label is None or predicted.ndim != 1 or predicted.shape != label.shape or len(label) < 2:
        return f"{PREDICTIONS} of {cell.name} has no arrays `predicted` and `label` of one length"
    if abs(float((predicted == label).mean()) - (cell.score("accuracy") or 0.0)) > 1e-6:
        return f"{PREDICTIONS} of {cell.name} does not give the accuracy in result.json"
    return predicted, label
