"""Series of a table or of windows in an NPZ file: checked, ordered, their gaps filled.

N series, R rows, C channels, V labels of a series.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from subquad.data import hashed
from subquad.errors import DataError
from subquad_datasets.table import Config
from subquad_datasets.table.columns import Columns, read_columns
from subquad_datasets.uea.rows import interpolated

ENDINGS = (".csv", ".csv.gz", ".parquet", ".npz")
PARTS = ("train", "validation", "test")
_OF_TABLES = ("id", "time", "channels", "labels")
_AXES = {"x": (2, 3), "lengths": (1,)}


@dataclass(frozen=True)
class Series:
    """All series of a file, one after the other.

    Attributes:
        path: the file.
        values: (sum of lengths, C) float64, finite.
        lengths: (N,) int64.
        labels: (N,) names of classes, or (N, V) float64; None where there are none.
        names: (V,) of the labels.
        splits: (N,) names of splits, and
        groups: (N,) of groups; None where nothing says them.
        filled: (N,) int64, values that were interpolated.
    """

    path: Path
    values: np.ndarray
    lengths: np.ndarray
    labels: np.ndarray | None
    names: tuple[str, ...]
    splits: np.ndarray | None
    groups: np.ndarray | None
    filled: np.ndarray

    def __len__(self) -> int:
        return len(self.lengths)

    def digests(self) -> np.ndarray:
        """(N,) uint64, equal for equal series."""
        return hashed(one.tobytes() for one in np.split(self.values, np.cumsum(self.lengths)[:-1]))

    def take(self, chosen: np.ndarray) -> Series:
        """The series with these sorted indices, (n,)."""
        steps = np.isin(np.repeat(np.arange(len(self)), self.lengths), chosen)
        kept = {name: getattr(self, name) for name in ("lengths", "labels", "splits", "groups", "filled")}
        cut = {name: None if values is None else values[chosen] for name, values in kept.items()}
        return replace(self, values=self.values[steps], **cut)


def read_series(path: Path, config: Config, *, labelled: bool = True, parts: bool = True) -> Series:
    """Read a file.

    Args:
        path: one of `ENDINGS`.
        config: what its columns are.
        labelled: there must be labels; else they are not looked at.
        parts: there must be what says splits and groups.

    Raises:
        DataError: anything wrong with it, with its line or row.
    """
    if not path.name.endswith(ENDINGS):
        raise DataError(f"{path}: tables end in {', '.join(ENDINGS)}")
    return (_windows if path.suffix == ".npz" else _table)(path, config, labelled, parts)


def _table(path: Path, config: Config, labelled: bool, parts: bool) -> Series:
    columns = read_columns(path)
    split, group = (config.split, config.group) if parts else (None, None)
    own = {"id": (config.id,), "time": (config.time,), "labels": config.labels if labelled else ()}
    own |= {"split": (split,), "group": (group,)}
    for key, names in own.items():
        for name in names:
            if name is not None:
                columns.need(name, key)
    order, starts = _ordered(columns, config)
    values = np.stack([columns.numbers(name) for name in _channels(columns, config)], axis=1)[order]

    def where(row: int) -> Callable[[str], DataError]:
        return lambda text: columns.fault(int(order[row]), text)

    lengths = np.diff([*starts, len(order)])
    values, filled = _whole(values, lengths, config, where)

    def one_each(name: str | None) -> np.ndarray | None:
        return None if name is None else _constant(columns, name, order, lengths)

    def numbers(name: str) -> np.ndarray:
        return _constant(columns, name, order, lengths, columns.numbers(name))

    labels = None
    if labelled:
        several = config.target != "class"
        labels = np.stack([numbers(name) for name in config.labels], axis=1) if several else one_each(config.labels[0])
    return Series(path, values, lengths, labels, config.labels, one_each(split), one_each(group), filled)


def _channels(columns: Columns, config: Config) -> Sequence[str]:
    if config.channels is not None:
        for name in config.channels:
            columns.need(name, "channels")
        return config.channels
    own = {config.id, config.time, config.split, config.group, *config.labels}
    found = [name for name in columns.names if name not in own]
    if not found:
        raise DataError(f"{columns.path}: no column is left for channels")
    return found


def _ordered(columns: Columns, config: Config) -> tuple[np.ndarray, np.ndarray]:
    """Rows in the order of series, (R,), and where each series starts in it, (N,).

    Series come in the order of their first rows, rows in that of `time`.
    """
    _, first, which = np.unique(columns.words(config.id), return_index=True, return_inverse=True)
    place = first[which]  # a series is known by its first row
    if config.time is None:
        order = np.arange(len(columns))
        again = np.flatnonzero((np.diff(place, prepend=place[0]) != 0) & (place != order))
        if again.size:
            told = f"series {str(columns.words(config.id)[again[0]])!r} comes again"
            raise columns.fault(int(again[0]), f"{told}; put its rows together, or give dataset.params.time=COLUMN")
    else:
        times = _times(columns, config.time)
        order = np.lexsort((times, place))
        twice = np.flatnonzero((np.diff(place[order]) == 0) & (times[order][1:] == times[order][:-1]))
        if twice.size:
            row = int(order[twice[0] + 1])
            raise columns.fault(row, f"{config.time} {times[row]} is there twice in a series")
    return order, np.flatnonzero(np.diff(place[order], prepend=-1))


def _times(columns: Columns, name: str) -> np.ndarray:
    """Numbers where all are, else texts."""
    words = columns.words(name)
    try:
        return columns.numbers(name)
    except DataError:
        return words


def _constant(
    columns: Columns, name: str, order: np.ndarray, lengths: np.ndarray, values: np.ndarray | None = None
) -> np.ndarray:
    """(N,) of a column that has one value in a series; words where no values are given."""
    given = (columns.words(name) if values is None else values)[order]
    first = np.cumsum(lengths) - lengths
    expected = np.repeat(given[first], lengths)
    other = given != expected
    if values is not None:
        other &= ~(np.isnan(given) & np.isnan(expected))
    if other.any():
        row = int(np.argmax(other))
        raise columns.fault(
            int(order[row]), f"column {name!r} is {given[row]}, but {expected[row]} before in its series"
        )
    return given[first]


def _whole(
    values: np.ndarray, lengths: np.ndarray, config: Config, where: Callable[[int], Callable[[str], DataError]]
) -> tuple[np.ndarray, np.ndarray]:
    """Values without gaps, and how many were filled in each series."""
    holes = np.isnan(values)
    ends = np.cumsum(lengths)
    filled = np.add.reduceat(holes.sum(1), ends - lengths) if len(lengths) else np.zeros(0, np.int64)
    if not holes.any():
        return values, filled
    first = int(np.argmax(holes.any(1)))
    if config.missing == "refuse":
        channel = int(np.argmax(holes[first])) + 1
        raise where(first)(f"channel {channel} is missing; set dataset.params.missing=interpolate to fill it in")
    whole = values.copy()
    for series in np.flatnonzero(filled).tolist():
        rows = slice(ends[series] - lengths[series], ends[series])
        if (empty := holes[rows].all(axis=0)).any():
            raise where(rows.start)(
                f"channel {int(empty.argmax()) + 1} has no value to interpolate from in this series"
            )
        whole[rows] = interpolated(values[rows].T).T
    return whole, filled


def _windows(path: Path, config: Config, labelled: bool, parts: bool) -> Series:
    """`x` (N, L, C) or (N, L), and `y` (N,) or (N, V); perhaps `lengths` (N,), and arrays for split and group."""
    try:
        config.refuse_idle(_OF_TABLES, "an .npz file, which has the arrays x and y")
    except ValueError as error:
        raise DataError(f"dataset.params.{error}") from None
    arrays = _open_npz(path)
    said = (config.split, config.group) if parts else (None, None)
    needed = [name for name in ("x", "y" if labelled else None, *said) if name]
    if lacking := [name for name in needed if name not in arrays]:
        raise DataError(f"{path}: no array {lacking[0]!r}; it has {', '.join(arrays)}")
    x = arrays["x"]
    count, length = _check_shapes(path, arrays, needed)
    x = x.reshape(count, length, -1).astype(np.float64)
    lengths = arrays.get("lengths", np.full(count, length)).astype(np.int64)
    if ((lengths < 1) | (lengths > length)).any():
        raise DataError(f"{path}: lengths[{int(np.argmax((lengths < 1) | (lengths > length)))}] is not 1 to {length}")
    real = np.arange(length) < lengths[:, None]
    starts = np.repeat(np.arange(count), lengths)

    def where(row: int) -> Callable[[str], DataError]:
        return lambda text: DataError(f"{path}: x[{starts[row]}]: {text}")

    values = x[real]
    if (wrong := np.isinf(values).any(1)).any():
        raise where(int(np.argmax(wrong)))("a value is not finite")
    values, filled = _whole(values, lengths, config, where)
    labels, names = _npz_labels(path, arrays["y"], config) if labelled else (None, ())
    splits, groups = (arrays[name].astype(np.str_) if name else None for name in said)
    return Series(path, values, lengths, labels, names, splits, groups, filled)


def _open_npz(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as found:
            return dict(found)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: no readable .npz file ({error})") from None


def _check_shapes(path: Path, arrays: dict[str, np.ndarray], needed: Sequence[str]) -> tuple[int, int]:
    """N and L."""
    for name, axes in _AXES.items():
        if name in arrays and (arrays[name].ndim not in axes or arrays[name].dtype.kind not in "fiub"):
            told = f"{name} has shape {arrays[name].shape} and type {arrays[name].dtype}"
            raise DataError(f"{path}: {told}, must be numbers with {' or '.join(map(str, axes))} axes")
    count, length = arrays["x"].shape[:2]
    for name in (*needed, *(("lengths",) if "lengths" in arrays else ())):
        if len(np.atleast_1d(arrays[name])) != count:
            raise DataError(f"{path}: {name} has shape {arrays[name].shape}, x has {count} series")
    if not arrays["x"].size:
        raise DataError(f"{path}: x has shape {arrays['x'].shape}, so there is nothing in it")
    return count, length


def _npz_labels(path: Path, y: np.ndarray, config: Config) -> tuple[np.ndarray, tuple[str, ...]]:
    if config.target == "class":
        if y.ndim != 1 or y.dtype.kind not in "iubUS":
            raise DataError(f"{path}: y has shape {y.shape} and type {y.dtype}, must be (N,) integers or texts")
        return y.astype(np.str_), ("y",)
    if y.ndim not in (1, 2) or y.dtype.kind not in "fiub":
        raise DataError(f"{path}: y has shape {y.shape} and type {y.dtype}, must be (N,) or (N, V) numbers")
    labels = y.reshape(len(y), -1).astype(np.float64)
    return labels, tuple(f"y{number}" for number in range(labels.shape[1]))
