"""Reads CSV and Parquet files by pyarrow, which only this module and `columns.py` need."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from subquad.errors import DataError
from subquad.security.limits import COLUMNS, LINE, allow, unpacked_limit
from subquad_datasets.table.columns import Columns
from subquad_datasets.text.lines import check_utf8, fault
from subquad_datasets.text.own import (
    Form,
    form_of,
    open_own,
    other_length,
    own_lines,
    separator_of,
    strict_rows,
)

_TEXTS = ("STRING", "JSON", "ENUM", "NONE")
"""Kinds of columns of a Parquet file that may hold a text once for many rows."""
_AT_ONCE = 1 << 20


def read_columns(path: Path) -> Columns:
    """A whole file.

    Raises:
        DataError: pyarrow is not installed; or it cannot be read, a row is too short or too long,
            there are no rows, or a name of a column is empty or there twice.
    """
    try:
        import pyarrow as pa
    except ImportError:
        raise DataError(
            "tables need pyarrow, which is not installed: pip install 'subquad[table]'"
        ) from None
    is_text = path.suffix != ".parquet"
    form = form_of(path) if is_text else None
    try:
        table = _read_csv(path, form) if form else _read_parquet(path)
    except (pa.ArrowException, OSError) as error:
        if is_text:
            _check_csv(path)
        raise DataError(f"{path}: cannot be read: {' '.join(str(error).split())[:200]}") from None
    if not table.num_rows:
        raise fault(path, 2, "no rows") if is_text else DataError(f"{path}: no rows")
    broken = form is not None and not _are_lines(path, form, table.num_rows)
    if broken:
        _check_csv(path)
    return Columns(path, tuple(table.column_names), table, form, broken)


def _check_csv(path: Path) -> None:
    """Say where a file is no CSV: slower than pyarrow, and exact.

    Raises:
        DataError: text that is not UTF-8, a quote that never ends, a row of another length.
    """
    names = list[str]()
    for line, cells in strict_rows(path):
        names = names or cells
        if cells and len(cells) != len(names):
            raise other_length(path, line, len(cells), names)


def _are_lines(path: Path, form: Form, rows: int) -> bool:
    """Whether so many rows and a header stand in as many lines, without empty ones at the end."""
    count = 1
    empty = 0  # line ends after which nothing but line ends has come
    with open_own(path, form) as stream:
        while piece := stream.read(_AT_ONCE):
            if piece.endswith(b"\r"):
                piece += stream.read(1)
            if piece.count(b"\r") != piece.count(b"\r\n"):
                return False
            filled = piece.rstrip(b"\r\n")
            if filled:
                count += empty + filled.count(b"\n")
                empty = 0
            empty += piece.count(b"\n", len(filled))
    return count == rows + 1


def _read_parquet(path: Path) -> Any:
    """A whole file, after counting what it takes: a value may stand in it once for many rows."""
    import pyarrow as pa
    from pyarrow import parquet

    allowed = unpacked_limit(path.stat().st_size)
    with parquet.ParquetFile(path) as file:
        allow(path, "columns", file.metadata.num_columns, COLUMNS)
        allow(path, "bytes of its values", _parquet_bytes(file), allowed)
        kinds = dict(zip(file.schema_arrow.names, file.schema_arrow.types, strict=True))
        _check_names(path, file.schema_arrow.names)
        columns = [file.schema.column(place) for place in range(file.metadata.num_columns)]
    texts = [column.path for column in columns if column.logical_type.type in _TEXTS]
    table = parquet.read_table(path, read_dictionary=texts)
    table.validate(full=True)  # texts that are not UTF-8, which are read unseen
    for place, name in enumerate(table.column_names):
        column = table[name]
        if pa.types.is_dictionary(column.type) and _is_text(column.type.value_type):
            allow(path, f"bytes of column {name[:40]!r}", _text_bytes(column), allowed)
            if column.type != kinds[name]:
                table = table.set_column(place, name, column.cast(kinds[name]))
    return table


def _parquet_bytes(file: Any) -> int:
    """What the values of a Parquet file take in memory; of texts their places alone."""
    total = 0
    columns = map(file.schema.column, range(file.metadata.num_columns))
    widths = [max(8, column.length) for column in columns]
    for group in range(file.metadata.num_row_groups):
        row_group = file.metadata.row_group(group)
        for place, width in enumerate(widths):
            column = row_group.column(place)
            total += column.total_uncompressed_size + column.num_values * width
    return max(total, file.metadata.num_rows * len(widths))


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    of_texts = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
    )
    return any(is_kind(kind) for is_kind in of_texts)


def _text_bytes(column: Any) -> int:
    """What a column of a dictionary of texts takes when each is written out."""
    from pyarrow import compute

    total = 0
    for chunk in column.chunks:
        lengths = compute.binary_length(chunk.dictionary)  # type: ignore[attr-defined]
        total += compute.sum(lengths.take(chunk.indices)).as_py() or 0  # type: ignore[attr-defined]
    return total


def _read_csv(path: Path, form: Form) -> Any:
    """All columns as texts: a label such as 01 stays what it is."""
    import pyarrow as pa
    from pyarrow import csv as arrow

    separator = separator_of(path, form)
    names = _header(path, separator)
    texts = {name: pa.string() for name in names}
    as_it_is = form.is_plain and path.suffix != ".gz"
    return arrow.read_csv(
        path if as_it_is else open_own(path, form),
        # a block has to hold a whole row
        arrow.ReadOptions(use_threads=False, column_names=names, skip_rows=1, block_size=LINE),
        arrow.ParseOptions(delimiter=separator, newlines_in_values=True),
        arrow.ConvertOptions(column_types=texts, strings_can_be_null=False),
    )


def _header(path: Path, separator: str) -> list[str]:
    for number, raw in own_lines(path):
        check_utf8(path, raw, number)
        allow(path, "columns", raw.count(separator.encode()), COLUMNS)
        try:
            names = next(csv.reader([raw.decode()], delimiter=separator, strict=True), [])
        except csv.Error as error:
            raise fault(path, number, f"not a line of column names ({error})") from None
        _check_names(path, names)
        return names
    raise fault(path, 1, "the file is empty")


def _check_names(path: Path, names: Sequence[str]) -> None:
    counts = Counter(names)
    if wrong := [name for name in names if not name.strip() or counts[name] > 1]:
        raise fault(path, 1, f"column name {wrong[0]!r} is empty or there twice")
