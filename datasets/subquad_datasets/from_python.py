"""Data that live in Python, written once as files that a data set reads: arrays and frames.

N samples, L length, C channels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from subquad.errors import DataError
from subquad.suggest import did_you_mean
from subquad_datasets.prepared import prepare_once
from subquad_datasets.table.series import PARTS

KINDS = (
    "(x, y) arrays or tensors, a dict of arrays, a torch Dataset, a pandas or polars frame, "
    "a Hugging Face dataset, or a dict of these for train, validation and test"
)


def parts_of(data: Any) -> dict[str, tuple[str, Any]]:
    """What messages call each part of the data, and the part; one whole is part "".

    Raises:
        DataError: a dict has train, but something else beside the parts, or no test.
    """
    if not isinstance(data, Mapping) or "train" not in data:
        return {"": ("data", data)}
    if unknown := [str(name) for name in data if name not in PARTS]:
        raise DataError(
            f"data: no part {unknown[0]!r} is known; there is {', '.join(PARTS)}"
            f"{did_you_mean(unknown[0], PARTS)}"
        )
    return {name: (f"data[{name!r}]", data[name]) for name in PARTS if name in data}


def write_parts(
    files: Mapping[str, bytes], ending: str, names: Mapping[str, str], root: Path
) -> tuple[str, dict[str, str]]:
    """Keep files below the folder for prepared data, under the digest of their content.

    Args:
        files: a file's content for each part; part "" is the only one.
        ending: of the files, such as `.npz`.
        names: what messages call each part.
        root: the folder for prepared data.

    Returns:
        the path of the file or of the folder of parts, and what messages call each path.
    """
    sums = {part: hashlib.sha256(content).hexdigest() for part, content in files.items()}
    digest = hashlib.sha256(repr(sorted(sums.items())).encode()).hexdigest()
    name = f"data-{digest[:8]}"
    places = {part: f"{name}/{part}{ending}" if part else f"{name}{ending}" for part in files}

    def build(folder: Path) -> Mapping[str, Any]:
        for part, content in files.items():
            path = folder / places[part]
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        return {}

    folder = prepare_once(root, {"from": "Python", "sha256": sums}, build)
    path = folder / places.get("", name)
    called = {str(folder / places[part]): names[part] for part in files}
    return str(path), {**called, str(path): "data"}


def is_frame(data: Any) -> bool:
    """Whether it has columns with names: pandas, polars, pyarrow and Hugging Face."""
    return hasattr(data, "__arrow_c_stream__") or _is_hugging_face(data)


def frame_table(data: Any, where: str) -> Any:
    """A frame as a table of pyarrow, with plain columns; classes of Hugging Face by their names.

    Raises:
        DataError: pyarrow is not installed, or cannot take it.
    """
    try:
        import pyarrow as pa
    except ImportError:
        raise DataError(
            "data: frames need pyarrow, which is not installed: pip install 'subquad[table]'"
        ) from None
    try:
        table = data.with_format("arrow")[:] if _is_hugging_face(data) else pa.table(data)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(f"{where}: {' '.join(str(error).split())[:200]}") from None
    for place, name in enumerate(table.column_names):
        classes = getattr(getattr(data, "features", {}).get(name), "names", None)
        table = table.set_column(place, name, _plain(table[name], classes))
    unnamed = [name for name in table.column_names if name.startswith("__index_level_")]
    return table.drop_columns(unnamed).replace_schema_metadata(None)


def _plain(column: Any, classes: Sequence[str] | None) -> Any:
    """A column whose values stand in it themselves."""
    import pyarrow as pa

    kind = column.type
    if classes:
        return pa.array([_class_name(classes, value) for value in column.to_pylist()])
    if pa.types.is_dictionary(kind):
        if pa.types.is_string_view(kind.value_type):  # of polars; pyarrow has no cast
            return pa.array(column.to_pylist(), pa.large_string())
        return column.cast(kind.value_type)
    return column.cast(pa.large_string()) if pa.types.is_string_view(kind) else column


def _class_name(classes: Sequence[str], value: int | None) -> str | None:
    if value is None or value < 0:  # Hugging Face's mark of a sample without a class
        return None
    return classes[value]


def _is_hugging_face(data: Any) -> bool:
    return hasattr(data, "with_format") and hasattr(data, "features")


def arrays_of(data: Any, where: str) -> dict[str, np.ndarray]:
    """Arrays by name: `x` (N, L, C) or (N, L) and `y` (N, ...), `lengths` (N,) where series have
    several, and others that a dict names.

    Raises:
        DataError: what cannot be an array, or has another form than these.
    """
    if isinstance(data, Mapping):
        given = {str(name): values for name, values in data.items()}
    elif isinstance(data, tuple | list) and len(data) == 2:
        given = dict(zip("xy", data, strict=True))
    elif hasattr(data, "__getitem__") and hasattr(data, "__len__") and not hasattr(data, "dtype"):
        given = dict(zip("xy", _items(data, where), strict=True))
    else:
        raise DataError(f"{where}: got {type(data).__name__}, must be {KINDS}")
    if lacking := [name for name in "xy" if name not in given]:
        raise DataError(f"{where}: no array {lacking[0]!r}; it has {', '.join(given)}")
    x, lengths = _padded(given.pop("x"), f"{where}: x")
    found = {"x": x} | {name: array_of(values) for name, values in given.items()}
    if lengths is not None:
        found.setdefault("lengths", lengths)
    for name, array in found.items():
        if array.dtype.kind == "O":
            raise DataError(
                f"{where}: {name} has values that are neither all numbers nor all texts"
            )
    return found


def _items(data: Any, where: str) -> tuple[list[Any], list[Any]]:
    """The series and the labels of a data set of torch, whose samples are pairs."""
    series, labels = list[Any](), list[Any]()
    for number in range(len(data)):
        sample = data[number]
        if not isinstance(sample, tuple | list) or len(sample) != 2:
            raise DataError(
                f"{where}[{number}]: got {type(sample).__name__}, must be a pair: a series and "
                "its label"
            )
        series.append(array_of(sample[0]))
        labels.append(array_of(sample[1]))
    return series, labels


def array_of(values: Any) -> np.ndarray:
    """An array from an array, a tensor on any device, or nested lists; of objects where its values
    are neither all numbers nor all texts.
    """
    if hasattr(values, "detach"):  # a tensor, whose types NumPy does not all have
        tensor = values.detach().cpu()
        if tensor.is_floating_point() and tensor.element_size() < 4:
            tensor = tensor.float()
        values = tensor.numpy()
    try:
        array = np.asarray(values)
    except ValueError:  # nested lists of several lengths
        return np.asarray([None])
    if array.dtype.kind == "O" and all(isinstance(value, str) for value in array.flat):
        return array.astype(np.str_)
    return array


def _padded(values: Any, where: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Series as one array, (N, L) or (N, L, C), with zeros at the ends of shorter ones; and their
    lengths, (N,), None where all have the same.
    """
    array = array_of(values)
    if array.dtype.kind != "O":
        return array, None
    series = [array_of(value) for value in values]
    for number, value in enumerate(series):
        if value.dtype.kind not in "fiub" or value.ndim not in (1, 2):
            raise DataError(
                f"{where}[{number}] has shape {value.shape} and type {value.dtype}, must be "
                "numbers with 1 or 2 axes"
            )
        if value.shape[1:] != series[0].shape[1:]:
            channels = f"{value.shape[1:]} channels, {where}[0] has {series[0].shape[1:]}"
            raise DataError(f"{where}[{number}] has {channels}")
    lengths = np.array([len(value) for value in series], dtype=np.int64)
    padded = np.zeros((len(series), lengths.max(), *series[0].shape[1:]), series[0].dtype)
    for row, value in zip(padded, series, strict=True):
        row[: len(value)] = value
    return padded, lengths
