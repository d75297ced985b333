"""Series of a file, and what every kind of file is checked for: gaps, classes, parts.

N series, C channels, V labels of a series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from subquad.data import hashed
from subquad.errors import DataError
from subquad.suggest import did_you_mean
from subquad_datasets.table import Config
from subquad_datasets.uea.rows import interpolated

PARTS = ("train", "validation", "test")

ANSWERS = "labels of target multilabel must be 0, 1 or missing"


@dataclass(frozen=True)
class Series:
    """All series of a file, one after the other.

    Attributes:
        path: the file.
        values: (sum of lengths, C) float64, finite.
        lengths: (N,) int64.
        labels: (N,) names of classes, or (N, V) float64; None where there are none.
        names: (V,) of the labels.
        splits: (N,) names of splits; None where nothing says them.
        groups: (N,) names of groups; None where nothing says them.
        filled: (N,) int64, values that were interpolated.
        channels: (C,) names; empty where they have none.
        reading: how the file was read, a line each.
    """

    path: Path
    values: np.ndarray
    lengths: np.ndarray
    labels: np.ndarray | None
    names: tuple[str, ...]
    splits: np.ndarray | None
    groups: np.ndarray | None
    filled: np.ndarray
    channels: tuple[str, ...]
    reading: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.lengths)

    def digests(self) -> np.ndarray:
        """(N,) uint64, equal for equal series."""
        return hashed(
            rows.tobytes() for rows in np.split(self.values, np.cumsum(self.lengths)[:-1])
        )

    def take(self, chosen: np.ndarray) -> Series:
        """The series with these sorted indices, (n,)."""
        steps = np.isin(np.repeat(np.arange(len(self)), self.lengths), chosen)
        kept = {
            name: getattr(self, name)
            for name in ("lengths", "labels", "splits", "groups", "filled")
        }
        cut = {name: None if values is None else values[chosen] for name, values in kept.items()}
        return replace(self, values=self.values[steps], **cut)


def unknown_class(name: str, classes: Iterable[str]) -> str:
    """That TRAIN has no such class, in words."""
    known = sorted(set(map(str, classes)))
    return (
        f"class {str(name)!r} is none of TRAIN: "
        f"{', '.join(known[:10])}{did_you_mean(str(name), known)}"
    )


def unknown_part(word: str) -> str:
    """That no split has this name, in words."""
    return f"has {word!r}, must be train, validation or test{did_you_mean(word, PARTS)}"


def without_gaps(
    values: np.ndarray,
    lengths: np.ndarray,
    config: Config,
    where: Callable[[int], Callable[[str], DataError]],
) -> tuple[np.ndarray, np.ndarray]:
    """Values without gaps, and how many were filled in each series."""
    holes = np.isnan(values)
    ends = np.cumsum(lengths)
    if len(lengths):
        filled = np.add.reduceat(holes.sum(1), ends - lengths)
    else:
        filled = np.zeros(0, np.int64)
    if not holes.any():
        return values, filled
    first = int(np.argmax(holes.any(1)))
    if config.missing == "refuse":
        channel = int(np.argmax(holes[first])) + 1
        raise where(first)(
            f"channel {channel} is missing; set dataset.params.missing=interpolate to fill it in"
        )
    whole = values.copy()
    for series in np.flatnonzero(filled).tolist():
        rows = slice(ends[series] - lengths[series], ends[series])
        if (empty := holes[rows].all(axis=0)).any():
            raise where(rows.start)(
                f"channel {int(empty.argmax()) + 1} has no value to interpolate from in this series"
            )
        whole[rows] = interpolated(values[rows].T).T
    return whole, filled
