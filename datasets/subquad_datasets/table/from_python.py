"""Series that live in Python, written as NPZ files, and frames as Parquet files."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from subquad.errors import DataError
from subquad_datasets.from_python import arrays_of, frame_table, is_frame, parts_of, write_parts
from subquad_datasets.table.from_npz import check_windows


def write_series(data: Any, root: Path) -> tuple[str, dict[str, str]]:
    """See `subquad.plugin.DatasetPlugin.from_python`.

    Raises:
        DataError: it is nothing that can be written, arrays do not fit together, or there is
            nothing in them.
    """
    files = dict[str, bytes]()
    names = dict[str, str]()
    endings = set[str]()
    for part, (name, values) in parts_of(data).items():
        names[part] = name
        table = frame_table(values, name) if is_frame(values) else None
        if table is not None and not _has_windows(table):
            endings.add(".parquet")
            files[part] = _parquet(table)
            continue
        if table is not None:
            values = {column: table[column].to_pylist() for column in table.column_names}
        arrays = arrays_of(values, name)
        check_windows(Path(name), arrays, list(arrays))
        endings.add(".npz")
        files[part] = _npz(arrays)
    if len(endings) > 1:
        raise DataError("data: some parts are frames and others arrays; give all in one form")
    return write_parts(files, endings.pop(), names, root)


def _has_windows(table: Any) -> bool:
    """Whether each row is a series: column `x` holds lists, and `y` what is learned."""
    import pyarrow as pa

    if not {"x", "y"} <= {*table.column_names}:
        return False
    kind = table.schema.field("x").type
    return (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _npz(arrays: dict[str, np.ndarray]) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)  # type: ignore[arg-type]
    return stream.getvalue()


def _parquet(table: Any) -> bytes:
    """Plain values, so that a file is as large as what it holds."""
    from pyarrow import parquet

    stream = io.BytesIO()
    parquet.write_table(table, stream, compression="none", use_dictionary=False, store_schema=False)
    return stream.getvalue()
