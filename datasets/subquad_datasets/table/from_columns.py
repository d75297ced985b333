"""Series of a CSV or Parquet table: rows in the order of their series, columns by their meaning.

N series, R rows, C channels, V labels of a series.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from subquad.errors import DataError
from subquad.suggest import did_you_mean
from subquad_datasets.table import Config
from subquad_datasets.table.arrow import read_columns
from subquad_datasets.table.columns import Columns
from subquad_datasets.table.series import (
    ANSWERS,
    PARTS,
    Series,
    unknown_class,
    unknown_part,
    without_gaps,
)
from subquad_datasets.text.own import told_of_csv

_TOLD = 50
"""Names of columns in a line."""


def read_table(
    path: Path, config: Config, train: Series | None, labelled: bool, parts: bool
) -> Series:
    columns = read_columns(path)
    split = config.split if parts else None
    group = config.group if parts else None
    _need_columns(columns, config, split, group, labelled)
    order, starts, by_time, ids = _ordered(columns, config)
    channels = _channels(columns, config, train)
    values = np.stack([columns.numbers(name) for name in channels], axis=1)[order]

    def where(row: int) -> Callable[[str], DataError]:
        return lambda text: columns.fault(int(order[row]), text)

    lengths = np.diff([*starts, len(order)])
    values, real, filled = without_gaps(values, lengths, config, where)
    of_series = partial(_constant, columns, order, lengths)
    splits = groups = labels = None
    if split is not None:
        splits = of_series(split, _splits(columns, split))
    if group is not None:
        groups = of_series(group, columns.names_of(group, numbers_only=True))
    if labelled:
        each = [of_series(name, _labels(columns, name, config, train)) for name in config.labels]
        labels = each[0] if config.target == "class" else np.stack(each, axis=1)
    series = Series(
        path=path,
        values=values,
        lengths=real,
        labels=labels,
        names=config.labels,
        ids=ids,
        splits=splits,
        groups=groups,
        filled=filled,
        ended=lengths - real,
        channels=channels,
        reading=(),
    )
    return replace(series, reading=_reading(columns, config, series, by_time, parts))


def _need_columns(
    columns: Columns, config: Config, split: str | None, group: str | None, labelled: bool
) -> None:
    """Refuse settings that name no column."""
    named = [("id", config.id), ("time", config.time)]
    if labelled:
        named += [("labels", name) for name in config.labels]
    named += [("split", split), ("group", group)]
    for key, name in named:
        if name is not None:
            columns.need(name, key)


def _splits(columns: Columns, name: str) -> np.ndarray:
    """(R,) the word of each row."""
    words = columns.words(name)
    if (wrong := ~np.isin(words, PARTS)).any():
        row = int(np.argmax(wrong))
        raise columns.fault(row, f"column {name!r} {unknown_part(str(words[row]))}")
    return words


def _labels(columns: Columns, name: str, config: Config, train: Series | None) -> np.ndarray:
    """(R,) of a column of labels: names of classes, or numbers."""
    if config.target == "class":
        names = columns.names_of(name)
        if (
            train is not None
            and train.labels is not None
            and (other := ~np.isin(names, train.labels)).any()
        ):
            row = int(np.argmax(other))
            raise columns.fault(row, unknown_class(names[row], train.labels))
        return names
    numbers = columns.numbers(name)
    if (
        config.target == "multilabel"
        and (wrong := ~(np.isnan(numbers) | np.isin(numbers, (0, 1)))).any()
    ):
        row = int(np.argmax(wrong))
        raise columns.fault(row, f"column {name!r}: {numbers[row]:g}; {ANSWERS}")
    return numbers


def _channels(columns: Columns, config: Config, train: Series | None) -> tuple[str, ...]:
    """Names of the channels: those of TRAIN, in TRAIN's order, where there is one with names."""
    if config.channels is not None:
        for name in config.channels:
            columns.need(name, "channels")
        return config.channels
    own = {config.id, config.time, config.split, config.group, *config.labels}
    names = tuple(name for name in columns.names if name not in own)
    if not names:
        raise columns.no_channel("no column is left for channels")
    if train is None or not train.channels:
        return names
    if lacking := [name for name in train.channels if name not in names]:
        raise columns.no_channel(
            f"no column {lacking[0]!r}, a channel of TRAIN{did_you_mean(lacking[0], names)}"
        )
    if more := [name for name in names if name not in train.channels]:
        raise columns.no_channel(
            f"column {more[0]!r} is no channel of TRAIN; name the channels: dataset.params.channels"
        )
    return train.channels


def _ordered(columns: Columns, config: Config) -> tuple[np.ndarray, np.ndarray, str, np.ndarray]:
    """Rows in the order of series, (R,), where each series starts in it, (N,), what orders its
    rows, and the ids of series, (N,).

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
            raise columns.fault(
                int(again[0]),
                f"series {str(ids[again[0]])!r} comes again; put its rows together, or give "
                "dataset.params.time=COLUMN",
            )
    else:
        times, by_time = columns.times(config.time)
        order = np.lexsort((times, place))
        twice = np.flatnonzero(
            (np.diff(place[order]) == 0) & (times[order][1:] == times[order][:-1])
        )
        if twice.size:
            row = int(order[twice[0] + 1])
            raise columns.fault(
                row, f"{config.time} {columns.words(config.time)[row]} is there twice in a series"
            )
    starts = np.flatnonzero(np.diff(place[order], prepend=-1))
    return order, starts, by_time, ids[order[starts]]


def _reading(
    columns: Columns, config: Config, series: Series, by_time: str, parts: bool
) -> tuple[str, ...]:
    """How the file was read."""
    form = f"CSV in {told_of_csv(columns.path, columns.form)}" if columns.form else "Parquet"
    name = columns.path.name
    ended = int(series.ended.sum())
    left = f"{ended:,} without a value at their ends" if ended else "none"
    lines = [f"{name}: {form}, {len(columns):,} rows of {len(series):,} series, {left} left out"]
    order = f"the order of {config.time}: {by_time}" if config.time else by_time
    lines.append(f"rows in {order}")
    channels = [f"{name} ({columns.kind(name)})" for name in series.channels[:_TOLD]]
    lines.append(f"channels: {', '.join(channels)}{_more(len(series.channels))}")
    used = {config.id, config.time, *series.channels}
    if series.labels is not None:
        used |= {*config.labels}
    if parts:
        used |= {config.split, config.group}
    if unread := [name for name in columns.names if name not in used]:
        lines.append(f"columns that are not read: {', '.join(unread[:_TOLD])}{_more(len(unread))}")
    if series.labels is not None:
        is_class = config.target == "class"
        kinds = "texts, each a class" if is_class else columns.kind(config.labels[0])
        lines.append(f"labels: {', '.join(config.labels)} ({kinds})")
    if filled := int(series.filled.sum()):
        lines.append(f"missing values: {filled:,}, interpolated")
    if columns.broken:
        lines.append("rows are not lines: some values have line ends in them, or lines are empty")
    return tuple(lines)


def _more(count: int) -> str:
    """How many names there are besides those that are told."""
    return f" and {count - _TOLD:,} more" if count > _TOLD else ""


def _constant(
    columns: Columns, order: np.ndarray, lengths: np.ndarray, name: str, values: np.ndarray
) -> np.ndarray:
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
            int(order[row]),
            f"column {name!r} is {given[row]}, but {expected[row]} before in its series",
        )
    return given[first]
