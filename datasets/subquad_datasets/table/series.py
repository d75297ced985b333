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
from subquad_datasets.uea.rows import GAP_REMEDY, NO_VALUE, interpolated, true_lengths

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
        ids: (N,) what the file calls each series; in .npz its number.
        splits: (N,) names of splits; None where nothing says them.
        groups: (N,) names of groups; None where nothing says them.
        filled: (N,) int64, values that were interpolated.
        ended: (N,) int64, steps without a value after the end of each.
        channels: (C,) names; empty where they have none.
        reading: how the file was read, a line each.
    """

    path: Path
    values: np.ndarray
    lengths: np.ndarray
    labels: np.ndarray | None
    names: tuple[str, ...]
    ids: np.ndarray
    splits: np.ndarray | None
    groups: np.ndarray | None
    filled: np.ndarray
    ended: np.ndarray
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
            for name in ("lengths", "labels", "ids", "splits", "groups", "filled", "ended")
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
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values without gaps and without padding, the lengths that remain, and how many values were
    filled in each series.

    Args:
        values: (T, C), NaN where one is missing; the series one after the other.
        lengths: (N,), summing to T.
        where: gives for a row of `values` what makes an error that names it.

    Raises:
        DataError: a value is missing where that is refused, or a channel has none.
    """
    if not np.isnan(values).any():
        return values, lengths, np.zeros_like(lengths)
    real = true_lengths(values, lengths)
    starts = np.cumsum(lengths) - lengths
    if not real.all():
        raise where(int(starts[np.argmin(real)]))(NO_VALUE)
    steps = np.arange(len(values)) - np.repeat(starts, lengths)
    rows = np.flatnonzero(steps < np.repeat(real, lengths))
    whole = values[rows]
    holes = np.isnan(whole)
    if config.missing == "refuse" and holes.any():
        row, channel = np.argwhere(holes)[0].tolist()
        raise where(int(rows[row]))(f"channel {channel + 1} is missing; {GAP_REMEDY}")
    ends = np.cumsum(real)
    filled = np.add.reduceat(holes.sum(1), ends - real)
    for series in np.flatnonzero(filled).tolist():
        part = slice(ends[series] - real[series], ends[series])
        if (empty := holes[part].all(axis=0)).any():
            raise where(int(rows[part.start]))(
                f"channel {int(empty.argmax()) + 1} has no value to interpolate from in this series"
            )
        whole[part] = interpolated(whole[part].T).T
    return whole, real, filled
