"""Series of an NPZ file: windows `x`, their labels `y`, and perhaps arrays for lengths, split and
group.

N series, L length, C channels, V labels of a series.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from subquad.errors import DataError
from subquad.security.limits import check_npy, open_zip
from subquad_datasets.class_names import first_alike
from subquad_datasets.table import Config
from subquad_datasets.table.columns import LARGEST
from subquad_datasets.table.series import (
    ANSWERS,
    PARTS,
    Series,
    unknown_class,
    unknown_part,
    without_gaps,
)

_OF_TABLES = ("id", "time", "channels", "labels")
_FORMS = {"x": ((2, 3), "fiub"), "lengths": ((1,), "iu")}
"""Axes and kinds of type of arrays of numbers."""


def read_windows(
    path: Path, config: Config, train: Series | None, labelled: bool, parts: bool
) -> Series:
    """`x` (N, L, C) or (N, L), and `y` (N,) or (N, V); perhaps `lengths` (N,), and arrays for
    split and group.
    """
    _refuse_table_keys(config)
    arrays = _open_npz(path)
    split = config.split if parts else None
    group = config.group if parts else None
    needed = [name for name in ("x", "y" if labelled else None, split, group) if name]
    if lacking := [name for name in needed if name not in arrays]:
        raise DataError(f"{path}: no array {lacking[0]!r}; it has {', '.join(arrays)}")
    count, length = check_windows(path, arrays, needed)
    x = arrays["x"].reshape(count, length, -1).astype(np.float64)
    lengths = arrays.get("lengths", np.full(count, length))
    if (wrong := (lengths < 1) | (lengths > length)).any():
        raise DataError(f"{path}: lengths[{int(np.argmax(wrong))}] is not 1 to {length}")
    values, real, filled = _real_values(path, x, lengths, config)
    labels = splits = groups = None
    names = ()
    if labelled:
        labels, names = _npz_labels(path, arrays["y"], config, train)
    if split is not None:
        splits = _texts(path, split, arrays[split])
        _refuse_other_parts(path, config, splits)
    if group is not None:
        groups = _texts(path, group, arrays[group])
    unread = [name for name in arrays if name not in (*needed, "lengths")]
    return Series(
        path=path,
        values=values,
        lengths=real.astype(np.int64),
        labels=labels,
        names=names,
        ids=np.arange(count),
        splits=splits,
        groups=groups,
        filled=filled,
        ended=lengths - real,
        channels=(),
        reading=_reading(path, x, arrays["x"].shape, unread, int(filled.sum())),
    )


def _reading(
    path: Path, x: np.ndarray, shape: tuple[int, ...], unread: Sequence[str], filled: int
) -> tuple[str, ...]:
    """How the file was read."""
    lines = [f"{path.name}: NPZ, {len(x):,} windows, none left out; x {x.dtype}, {shape}"]
    if unread:
        lines.append(f"arrays that are not read: {', '.join(unread)}")
    if filled:
        lines.append(f"missing values: {filled:,}, interpolated")
    return tuple(lines)


def _refuse_table_keys(config: Config) -> None:
    for key in _OF_TABLES:
        if not config.is_default(key):
            said = config.no_effect(key, "an .npz file, which has the arrays x and y")
            raise DataError(f"dataset.params.{said}")


def _real_values(
    path: Path, x: np.ndarray, lengths: np.ndarray, config: Config
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`without_gaps` of the values of all windows up to their lengths."""
    starts = np.repeat(np.arange(len(x)), lengths)

    def where(row: int) -> Callable[[str], DataError]:
        return lambda text: DataError(f"{path}: x[{starts[row]}]: {text}")

    values = x[np.arange(x.shape[1]) < lengths[:, None]]
    if (wrong := np.isinf(values).any(1)).any():
        raise where(int(np.argmax(wrong)))("a value is not finite")
    if (wrong := (np.abs(values) > LARGEST).any(1)).any():
        raise where(int(np.argmax(wrong)))("a value is too large for float32; rescale x")
    return without_gaps(values, lengths, config, where)


def _refuse_other_parts(path: Path, config: Config, splits: np.ndarray) -> None:
    if (wrong := ~np.isin(splits, PARTS)).any():
        number = int(np.argmax(wrong))
        raise DataError(f"{path}: {config.split}[{number}] {unknown_part(str(splits[number]))}")


def _open_npz(path: Path) -> dict[str, np.ndarray]:
    try:
        with path.open("rb") as stream, open_zip(path, stream) as members:
            if len(set(members.namelist())) < len(members.namelist()):
                raise ValueError("an array is there twice")
            for member in members.infolist():
                with members.open(member) as array:
                    check_npy(array, member.file_size)  # type: ignore[arg-type]
            with np.load(path, allow_pickle=False) as arrays:
                return dict(arrays)
    except DataError:
        raise
    except Exception as error:  # a damaged archive fails in any way there is
        raise DataError(
            f"{path}: no readable .npz file ({' '.join(str(error).split())[:200]})"
        ) from None


def check_windows(
    path: Path, arrays: dict[str, np.ndarray], needed: Sequence[str]
) -> tuple[int, int]:
    """N and L."""
    for name, (axes, kinds) in _FORMS.items():
        if name in arrays and (
            arrays[name].ndim not in axes or arrays[name].dtype.kind not in kinds
        ):
            form = f"{name} has shape {arrays[name].shape} and type {arrays[name].dtype}"
            what = "numbers" if "f" in kinds else "whole numbers"
            raise DataError(
                f"{path}: {form}, must be {what} with {' or '.join(map(str, axes))} axes"
            )
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
        form = f"{name} has shape {array.shape} and type {array.dtype}"
        raise DataError(f"{path}: {form}, must be (N,) integers or texts")
    try:
        texts = np.char.strip(array.astype(np.str_))
    except UnicodeDecodeError:
        raise DataError(f"{path}: {name} has bytes that are no ASCII; save it as texts") from None
    try:
        "".join(texts.tolist()).encode()
    except UnicodeEncodeError:
        raise DataError(f"{path}: {name} holds half a surrogate pair, which is no text") from None
    if (empty := texts == "").any():
        raise DataError(f"{path}: {name}[{int(np.argmax(empty))}] is empty")
    if alike := first_alike(np.unique(texts).tolist()):
        raise DataError(
            f"{path}: {name} has {alike[1]!r} and {alike[0]!r}, which look alike; "
            "write them the same way"
        )
    return texts


def _npz_labels(
    path: Path, y: np.ndarray, config: Config, train: Series | None
) -> tuple[np.ndarray, tuple[str, ...]]:
    if config.target == "class":
        classes = _texts(path, "y", y)
        if (
            train is not None
            and train.labels is not None
            and (other := ~np.isin(classes, train.labels)).any()
        ):
            number = int(np.argmax(other))
            raise DataError(f"{path}: y[{number}]: {unknown_class(classes[number], train.labels)}")
        return classes, ("y",)
    if y.ndim not in (1, 2) or y.dtype.kind not in "fiub":
        raise DataError(
            f"{path}: y has shape {y.shape} and type {y.dtype}, must be (N,) or (N, V) numbers"
        )
    labels = y.reshape(len(y), -1).astype(np.float64)
    if (wrong := (np.abs(labels) > LARGEST).any(1)).any():
        raise DataError(f"{path}: y[{int(np.argmax(wrong))}]: not finite, or too large for float32")
    if (
        config.target == "multilabel"
        and (wrong := ~(np.isnan(labels) | np.isin(labels, (0, 1))).all(1)).any()
    ):
        raise DataError(f"{path}: y[{int(np.argmax(wrong))}]: {ANSWERS}")
    return labels, tuple(f"y{number}" for number in range(labels.shape[1]))
