"""Series of a table or of windows in an NPZ file: checked, ordered, their gaps filled.

N series, R rows, C channels, V labels of a series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from subquad.data import hashed
from subquad.errors import DataError
from subquad.limits import check_npy, open_zip
from subquad.suggest import did_you_mean
from subquad_datasets.class_names import first_alike
from subquad_datasets.table import Config
from subquad_datasets.table.columns import LARGEST, Columns, read_columns
from subquad_datasets.uea.rows import interpolated

ENDINGS = (".csv", ".csv.gz", ".parquet", ".npz")
PARTS = ("train", "validation", "test")
_OF_TABLES = ("id", "time", "channels", "labels")
_FORMS = {"x": ((2, 3), "fiub"), "lengths": ((1,), "iu")}
"""Axes and kinds of type of arrays of numbers."""

_ANSWERS = "labels of target multilabel must be 0, 1 or missing"


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
        channels: (C,) names; empty where they have none.
        told: how the file was read, a line each.
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
    told: tuple[str, ...]

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


def read_series(
    path: Path, config: Config, train: Series | None = None, *, labelled: bool = True, parts: bool = True
) -> Series:
    """Read a file.

    Args:
        path: one of `ENDINGS`.
        config: what its columns are.
        train: TRAIN, whose channels and classes the file must have; None: this is TRAIN, or its validation part.
        labelled: there must be labels; else they are not looked at.
        parts: there must be what says splits and groups.

    Raises:
        DataError: anything wrong with it, with its line or row.
    """
    if not path.name.endswith(ENDINGS):
        raise DataError(f"{path}: tables end in {', '.join(ENDINGS)}")
    read = _windows if path.suffix == ".npz" else _table
    return read(path, config, train, labelled, parts)


def _table(path: Path, config: Config, train: Series | None, labelled: bool, parts: bool) -> Series:
    columns = read_columns(path)
    split, group = (config.split, config.group) if parts else (None, None)
    own = {"id": (config.id,), "time": (config.time,), "labels": config.labels if labelled else ()}
    own |= {"split": (split,), "group": (group,)}
    for key, names in own.items():
        for name in names:
            if name is not None:
                columns.need(name, key)
    order, starts, by_time = _ordered(columns, config)
    channels = _channels(columns, config, train)
    values = np.stack([columns.numbers(name) for name in channels], axis=1)[order]

    def where(row: int) -> Callable[[str], DataError]:
        return lambda text: columns.fault(int(order[row]), text)

    lengths = np.diff([*starts, len(order)])
    values, filled = _whole(values, lengths, config, where)

    splits = groups = labels = None
    if split is not None:
        splits = _constant(columns, split, order, lengths, _splits(columns, split))
    if group is not None:
        groups = _constant(columns, group, order, lengths, columns.names_of(group, numbers_only=True))
    if labelled:
        columns_of_labels = [
            _constant(columns, name, order, lengths, _labels(columns, name, config, train)) for name in config.labels
        ]
        labels = columns_of_labels[0] if config.target == "class" else np.stack(columns_of_labels, axis=1)
    told = _told(columns, config, channels, by_time, lengths, int(filled.sum()), labelled, parts)
    return Series(path, values, lengths, labels, config.labels, splits, groups, filled, channels, told)


def _splits(columns: Columns, name: str) -> np.ndarray:
    """(R,) the word of each row."""
    words = columns.words(name)
    if (wrong := ~np.isin(words, PARTS)).any():
        row = int(np.argmax(wrong))
        word = str(words[row])
        told = f"column {name!r} has {word!r}, must be train, validation or test"
        raise columns.fault(row, f"{told}{did_you_mean(word, PARTS)}")
    return words


def _labels(columns: Columns, name: str, config: Config, train: Series | None) -> np.ndarray:
    """(R,) of a column of labels: names of classes, or numbers."""
    if config.target == "class":
        names = columns.names_of(name)
        if train is not None and train.labels is not None and (other := ~np.isin(names, train.labels)).any():
            row = int(np.argmax(other))
            raise columns.fault(row, unknown_class(names[row], train.labels))
        return names
    numbers = columns.numbers(name)
    if config.target == "multilabel" and (wrong := ~(np.isnan(numbers) | np.isin(numbers, (0, 1)))).any():
        row = int(np.argmax(wrong))
        raise columns.fault(row, f"column {name!r}: {numbers[row]:g}; {_ANSWERS}")
    return numbers


def unknown_class(name: str, classes: Iterable[str]) -> str:
    """That TRAIN has no such class, in words."""
    known = sorted(set(map(str, classes)))
    return f"class {str(name)!r} is none of TRAIN: {', '.join(known[:10])}{did_you_mean(str(name), known)}"


def _channels(columns: Columns, config: Config, train: Series | None) -> tuple[str, ...]:
    """Names of the channels: those of TRAIN, in TRAIN's order, where there is one with names."""
    if config.channels is not None:
        for name in config.channels:
            columns.need(name, "channels")
        return config.channels
    own = {config.id, config.time, config.split, config.group, *config.labels}
    found = tuple(name for name in columns.names if name not in own)
    if not found:
        raise columns.no_channel("no column is left for channels")
    if train is None or not train.channels:
        return found
    if lacking := [name for name in train.channels if name not in found]:
        raise columns.no_channel(f"no column {lacking[0]!r}, a channel of TRAIN{did_you_mean(lacking[0], found)}")
    if more := [name for name in found if name not in train.channels]:
        raise columns.no_channel(
            f"column {more[0]!r} is no channel of TRAIN; name the channels: dataset.params.channels"
        )
    return train.channels


def _ordered(columns: Columns, config: Config) -> tuple[np.ndarray, np.ndarray, str]:
    """Rows in the order of series, (R,), where each series starts in it, (N,), and what orders its rows.

    Series come in the order of their first rows, rows in that of `time`.
    """
    ids = columns.names_of(config.id, numbers_only=True)
    by_time = "the order of the file"
    _, first, which = np.unique(ids, return_index=True, return_inverse=True)
    place = first[which]  # a series is known by its first row
    if config.time is None:
        order = np.arange(len(columns))
        again = np.flatnonzero((np.diff(place, prepend=place[0]) != 0) & (place != order))
        if again.size:
            told = f"series {str(ids[again[0]])!r} comes again"
            raise columns.fault(int(again[0]), f"{told}; put its rows together, or give dataset.params.time=COLUMN")
    else:
        times, by_time = columns.times(config.time)
        order = np.lexsort((times, place))
        twice = np.flatnonzero((np.diff(place[order]) == 0) & (times[order][1:] == times[order][:-1]))
        if twice.size:
            row = int(order[twice[0] + 1])
            raise columns.fault(row, f"{config.time} {columns.words(config.time)[row]} is there twice in a series")
    return order, np.flatnonzero(np.diff(place[order], prepend=-1)), by_time


def _told(
    columns: Columns,
    config: Config,
    channels: Sequence[str],
    by_time: str,
    lengths: np.ndarray,
    filled: int,
    labelled: bool,
    parts: bool,
) -> tuple[str, ...]:
    """How the file was read."""
    form = "CSV in UTF-8" if columns.is_text else "Parquet"
    told = [f"{columns.path.name}: {form}, {len(columns):,} rows of {len(lengths):,} series, none left out"]
    told.append(f"rows in the order of {config.time}: {by_time}" if config.time else f"rows in {by_time}")
    told.append(f"channels: {', '.join(f'{name} ({columns.kind(name)})' for name in channels)}")
    used = {config.id, config.time, *channels}
    used |= {*config.labels} if labelled else set()
    used |= {config.split, config.group} if parts else set()
    if unread := [name for name in columns.names if name not in used]:
        told.append(f"columns that are not read: {', '.join(unread)}")
    if labelled:
        kinds = "texts, each a class" if config.target == "class" else columns.kind(config.labels[0])
        told.append(f"labels: {', '.join(config.labels)} ({kinds})")
    if filled:
        told.append(f"missing values: {filled:,}, interpolated")
    if columns.broken:
        told.append("values with line ends: there are some, so rows are not lines")
    return tuple(told)


def _constant(columns: Columns, name: str, order: np.ndarray, lengths: np.ndarray, values: np.ndarray) -> np.ndarray:
    """(N,) of the values (R,) of a column that has one in each series."""
    given = values[order]
    first = np.cumsum(lengths) - lengths
    expected = np.repeat(given[first], lengths)
    other = given != expected
    if values.dtype.kind == "f":
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


def _windows(path: Path, config: Config, train: Series | None, labelled: bool, parts: bool) -> Series:
    """`x` (N, L, C) or (N, L), and `y` (N,) or (N, V); perhaps `lengths` (N,), and arrays for split and group."""
    for key in _OF_TABLES:
        if not config.is_default(key):
            said = config.no_effect(key, "an .npz file, which has the arrays x and y")
            raise DataError(f"dataset.params.{said}")
    arrays = _open_npz(path)
    said = (config.split, config.group) if parts else (None, None)
    needed = [name for name in ("x", "y" if labelled else None, *said) if name]
    if lacking := [name for name in needed if name not in arrays]:
        raise DataError(f"{path}: no array {lacking[0]!r}; it has {', '.join(arrays)}")
    x = arrays["x"]
    count, length = _check_shapes(path, arrays, needed)
    x = x.reshape(count, length, -1).astype(np.float64)
    lengths = arrays.get("lengths", np.full(count, length))
    if ((lengths < 1) | (lengths > length)).any():
        raise DataError(f"{path}: lengths[{int(np.argmax((lengths < 1) | (lengths > length)))}] is not 1 to {length}")
    real = np.arange(length) < lengths[:, None]
    starts = np.repeat(np.arange(count), lengths)

    def where(row: int) -> Callable[[str], DataError]:
        return lambda text: DataError(f"{path}: x[{starts[row]}]: {text}")

    values = x[real]
    if (wrong := np.isinf(values).any(1)).any():
        raise where(int(np.argmax(wrong)))("a value is not finite")
    if (wrong := (np.abs(values) > LARGEST).any(1)).any():
        raise where(int(np.argmax(wrong)))("a value is too large for float32; rescale x")
    values, filled = _whole(values, lengths, config, where)
    labels, names = _npz_labels(path, arrays["y"], config, train) if labelled else (None, ())
    splits, groups = (_texts(path, name, arrays[name]) if name else None for name in said)
    if splits is not None and (wrong := ~np.isin(splits, PARTS)).any():
        number = int(np.argmax(wrong))
        word = str(splits[number])
        told = f"{path}: {config.split}[{number}] has {word!r}, must be train, validation or test"
        raise DataError(f"{told}{did_you_mean(word, PARTS)}")
    told = [f"{path.name}: NPZ, {count:,} windows, none left out; x {x.dtype}, {arrays['x'].shape}"]
    if unread := [name for name in arrays if name not in (*needed, "lengths")]:
        told.append(f"arrays that are not read: {', '.join(unread)}")
    if filled.any():
        told.append(f"missing values: {int(filled.sum()):,}, interpolated")
    return Series(path, values, lengths.astype(np.int64), labels, names, splits, groups, filled, (), tuple(told))


def _open_npz(path: Path) -> dict[str, np.ndarray]:
    try:
        with path.open("rb") as stream, open_zip(path, stream) as members:
            if len(set(members.namelist())) < len(members.namelist()):
                raise ValueError("an array is there twice")
            for member in members.infolist():
                with members.open(member) as array:
                    check_npy(array, member.file_size)  # type: ignore[arg-type]
            with np.load(path, allow_pickle=False) as found:
                return dict(found)
    except DataError:
        raise
    except Exception as error:  # a damaged archive fails in any way there is
        raise DataError(f"{path}: no readable .npz file ({' '.join(str(error).split())[:200]})") from None


def _check_shapes(path: Path, arrays: dict[str, np.ndarray], needed: Sequence[str]) -> tuple[int, int]:
    """N and L."""
    for name, (axes, kinds) in _FORMS.items():
        if name in arrays and (arrays[name].ndim not in axes or arrays[name].dtype.kind not in kinds):
            told = f"{name} has shape {arrays[name].shape} and type {arrays[name].dtype}"
            what = "numbers" if "f" in kinds else "whole numbers"
            raise DataError(f"{path}: {told}, must be {what} with {' or '.join(map(str, axes))} axes")
    count, length = arrays["x"].shape[:2]
    for name in (*needed, *(("lengths",) if "lengths" in arrays else ())):
        if len(np.atleast_1d(arrays[name])) != count:
            raise DataError(f"{path}: {name} has shape {arrays[name].shape}, x has {count} series")
    if not arrays["x"].size:
        raise DataError(f"{path}: x has shape {arrays['x'].shape}, so there is nothing in it")
    return count, length


def _texts(path: Path, name: str, array: np.ndarray) -> np.ndarray:
    """(N,) texts without blanks around them; whole numbers are texts too.

    Raises:
        DataError: it holds anything else, or an empty text; or two look alike.
    """
    if array.ndim != 1 or array.dtype.kind not in "iubUS":
        told = f"{name} has shape {array.shape} and type {array.dtype}"
        raise DataError(f"{path}: {told}, must be (N,) integers or texts")
    try:
        found = np.char.strip(array.astype(np.str_))
    except UnicodeDecodeError:
        raise DataError(f"{path}: {name} has bytes that are no ASCII; save it as texts") from None
    if (empty := found == "").any():
        raise DataError(f"{path}: {name}[{int(np.argmax(empty))}] is empty")
    if alike := first_alike(np.unique(found).tolist()):
        raise DataError(f"{path}: {name} has {alike[1]!r} and {alike[0]!r}, which look alike; write them the same way")
    return found


def _npz_labels(path: Path, y: np.ndarray, config: Config, train: Series | None) -> tuple[np.ndarray, tuple[str, ...]]:
    if config.target == "class":
        found = _texts(path, "y", y)
        if train is not None and train.labels is not None and (other := ~np.isin(found, train.labels)).any():
            number = int(np.argmax(other))
            raise DataError(f"{path}: y[{number}]: {unknown_class(found[number], train.labels)}")
        return found, ("y",)
    if y.ndim not in (1, 2) or y.dtype.kind not in "fiub":
        raise DataError(f"{path}: y has shape {y.shape} and type {y.dtype}, must be (N,) or (N, V) numbers")
    labels = y.reshape(len(y), -1).astype(np.float64)
    if (wrong := (np.abs(labels) > LARGEST).any(1)).any():
        raise DataError(f"{path}: y[{int(np.argmax(wrong))}]: not finite, or too large for float32")
    if config.target == "multilabel" and (wrong := ~(np.isnan(labels) | np.isin(labels, (0, 1))).all(1)).any():
        raise DataError(f"{path}: y[{int(np.argmax(wrong))}]: {_ANSWERS}")
    return labels, tuple(f"y{number}" for number in range(labels.shape[1]))
