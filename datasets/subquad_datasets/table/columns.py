"""Columns of a CSV or Parquet file, with the place of each value for messages. The only place that needs pyarrow.

R rows.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from subquad.errors import DataError
from subquad.limits import COLUMNS, MEMBER, allow, open_unpacked, unpacked_limit
from subquad.suggest import did_you_mean
from subquad_datasets.class_names import first_alike
from subquad_datasets.table.times import OddTime, ordered
from subquad_datasets.text.lines import check_utf8, fault, raw_lines, strict_rows

MISSING = frozenset({"", "?", "na", "nan", "null", "none"})
"""What stands for a missing value, in any case."""

LARGEST = float(np.finfo(np.float32).max)
"""Values are float32 in the end."""

_TEXTS = ("STRING", "JSON", "ENUM", "NONE")
"""Kinds of columns of a Parquet file that may hold a text once for many rows."""
_FLAGS = {"true": 1.0, "false": 0.0}
_AT_ONCE = 1 << 20
_LOOKED_AT = 1000
"""Cells that tell a column of true and false, which has no numbers, from one of numbers."""


@dataclass(frozen=True)
class Columns:
    """A file in memory.

    Attributes:
        path: the file.
        names: of its columns.
        table: pyarrow's; of CSV all columns are texts.
        is_text: whether it is CSV, whose rows are lines.
        broken: whether a value of CSV has a line end in it, so that rows are not lines.
    """

    path: Path
    names: tuple[str, ...]
    table: Any
    is_text: bool
    broken: bool = False

    def __len__(self) -> int:
        return self.table.num_rows

    @cached_property
    def _lines(self) -> list[int]:
        """The line in which each row starts, where rows are not lines."""
        return [line for line, _ in strict_rows(self.path)][1:]

    def fault(self, row: int, text: str) -> DataError:
        """An error that names a row, counted from 0."""
        if not self.is_text:
            return DataError(f"{self.path}: row {row + 1}: {text}")
        return fault(self.path, self._lines[row] if self.broken else row + 2, text)

    def no_channel(self, text: str) -> DataError:
        """An error about the names of columns."""
        return fault(self.path, 1, text) if self.is_text else DataError(f"{self.path}: {text}")

    def kind(self, name: str) -> str:
        """What a column of numbers holds, in a word."""
        if not self.is_text:
            return str(self.table[name].type)
        first = {_word(value).lower() for value in self.table[name].slice(0, _LOOKED_AT).to_pylist()}
        return "true, false" if first & _FLAGS.keys() else "numbers"

    def need(self, name: str, key: str) -> None:
        """Refuse a setting that names no column.

        Raises:
            DataError: it names the nearest column.
        """
        if name not in self.names:
            known = f"it has {', '.join(self.names[:20])}{did_you_mean(name, self.names)}"
            place = f"{self.path}:1" if self.is_text else self.path
            raise DataError(f"dataset.params.{key}: {place}: no column {name!r}; {known}")

    def words(self, name: str) -> np.ndarray:
        """(R,) texts without blanks around them.

        Raises:
            DataError: one is missing, or has a line end or NUL in it.
        """
        found = [_word(value) for value in self.table[name].to_pylist()]
        for row, word in enumerate(found):
            if not word:
                raise self.fault(row, f"column {name!r} is empty")
            if "\0" in word or "\n" in word or "\r" in word:
                raise self.fault(row, f"column {name!r}: {word[:40]!r} has a line end or NUL in it; is a quote amiss?")
        longest = max(map(len, found), default=0)
        allow(
            f"{self.path}: column {name!r}",
            "bytes, each text with room for the longest",
            4 * longest * len(found),
            MEMBER,
        )
        return np.array(found, dtype=object).astype(np.str_)

    def names_of(self, name: str, *, numbers_only: bool = False) -> np.ndarray:
        """As `words`, where equal ones mean the same: of classes, series or groups.

        Args:
            numbers_only: as for `first_alike`.

        Raises:
            DataError: also, two look alike.
        """
        found = self.words(name)
        known, first = np.unique(found, return_index=True)
        in_order = np.argsort(first)
        if alike := first_alike(known[in_order].tolist(), numbers_only=numbers_only):
            row = int(np.argmax(found == alike[1]))
            raise self.fault(row, f"column {name!r}: {alike[1]!r} and {alike[0]!r} look alike; write them the same way")
        return found

    def times(self, name: str) -> tuple[np.ndarray, str]:
        """(R,) numbers that grow with time, and what the column holds: see `subquad_datasets.table.times`.

        Raises:
            DataError: cells of several kinds, one that is missing or not finite, or texts that do not sort by time.
        """
        import pyarrow as pa

        column = self.table[name]
        if pa.types.is_temporal(column.type):
            if column.null_count:
                raise self.fault(int(np.argmax(column.is_null().to_numpy())), f"column {name!r} is empty")
            return np.unique(column.to_numpy(), return_inverse=True)[1], "dates"
        if (fast := _fast_times(column)) is not None:
            return fast, "numbers"
        words = self.words(name).tolist()
        try:
            return ordered(words)
        except OddTime as odd:
            raise self.fault(odd.row, f"column {name!r}: {odd}") from None

    def numbers(self, name: str) -> np.ndarray:
        """(R,) float64, finite, or NaN where missing. A column of true and false alone is one of 1 and 0.

        Raises:
            DataError: a value is no finite number, or is too large for float32.
        """
        import pyarrow as pa

        column = self.table[name]
        try:
            found = column.cast(pa.float64()).to_numpy() if not self.is_text else _fast(column)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            words = [_word(value) for value in column.to_pylist()]
            found = _flags(words)
            if found is None:
                found = np.array([self._number(name, row, word) for row, word in enumerate(words)])
        if (wrong := np.flatnonzero(np.abs(found) > LARGEST)).size:
            value = found[wrong[0]]
            told = "is not finite" if np.isinf(value) else "is too large for float32; rescale the column"
            raise self.fault(int(wrong[0]), f"column {name!r}: {value} {told}")
        return found

    def _number(self, name: str, row: int, text: str) -> float:
        if text.lower() in MISSING:
            return math.nan
        try:
            return float(text.replace("_", "no number"))
        except ValueError:
            raise self.fault(row, f"column {name!r}: {text[:40]!r} is not a number") from None


def read_columns(path: Path) -> Columns:
    """A whole file.

    Raises:
        DataError: pyarrow is not installed; or it cannot be read, a row is too short or too long, there are no rows, or
            a name of a column is empty or there twice.
    """
    try:
        import pyarrow as pa
    except ImportError:
        raise DataError("tables need pyarrow, which is not installed: pip install 'subquad[table]'") from None
    is_text = path.suffix != ".parquet"
    try:
        table = _read_csv(path) if is_text else _read_parquet(path)
    except (pa.ArrowException, OSError) as error:
        if is_text:
            _check_csv(path)
        raise DataError(f"{path}: cannot be read: {' '.join(str(error).split())[:200]}") from None
    if not table.num_rows:
        raise fault(path, 2, "no rows") if is_text else DataError(f"{path}: no rows")
    broken = is_text and table.num_rows + 1 != _count_lines(path)
    if broken:
        _check_csv(path)
    return Columns(path, tuple(table.column_names), table, is_text, broken)


def _check_csv(path: Path) -> None:
    """Say where a file is no CSV: slower than pyarrow, and exact.

    Raises:
        DataError: text that is not UTF-8, a quote that never ends, a row of another length.
    """
    names = list[str]()
    for line, cells in strict_rows(path):
        names = names or cells
        if len(cells) != len(names):
            raise fault(path, line, f"{len(cells)} values, the header has {len(names)} columns")


def _count_lines(path: Path) -> int:
    """How many lines end with a newline, and one more where the last does not."""
    count, end = 0, b"\n"
    with open_unpacked(path) as stream:
        while piece := stream.read(_AT_ONCE):
            count += piece.count(b"\n")
            end = piece[-1:]
    return count + (end != b"\n")


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

    of_texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(is_kind(kind) for is_kind in of_texts)


def _text_bytes(column: Any) -> int:
    """What a column of a dictionary of texts takes when each is written out."""
    from pyarrow import compute

    total = 0
    for chunk in column.chunks:
        lengths = compute.binary_length(chunk.dictionary)  # type: ignore[attr-defined]
        total += compute.sum(lengths.take(chunk.indices)).as_py() or 0  # type: ignore[attr-defined]
    return total


def _read_csv(path: Path) -> Any:
    """All columns as texts: a label such as 01 stays what it is."""
    import pyarrow as pa
    from pyarrow import csv as arrow

    names = _header(path)
    texts = {name: pa.string() for name in names}
    return arrow.read_csv(
        path if path.suffix == ".csv" else open_unpacked(path),
        arrow.ReadOptions(use_threads=False, column_names=names, skip_rows=1),
        arrow.ParseOptions(ignore_empty_lines=False, newlines_in_values=True),
        arrow.ConvertOptions(column_types=texts, strings_can_be_null=False),
    )


def _header(path: Path) -> list[str]:
    for number, raw in raw_lines(path):
        check_utf8(path, raw, number)
        allow(path, "columns", raw.count(b","), COLUMNS)
        try:
            names = next(csv.reader([raw.decode()], strict=True), [])
        except csv.Error as error:
            raise fault(path, number, f"not a line of column names ({error})") from None
        _check_names(path, names)
        return names
    raise fault(path, 1, "the file is empty")


def _check_names(path: Path, names: Sequence[str]) -> None:
    counts = Counter(names)
    if wrong := [name for name in names if not name.strip() or counts[name] > 1]:
        raise fault(path, 1, f"column name {wrong[0]!r} is empty or there twice")


def _word(value: Any) -> str:
    """A cell as text without blanks around it; "" for a missing one."""
    return "" if value is None or value != value else str(value).strip()


def _flags(words: Sequence[str]) -> np.ndarray | None:
    """1 for true, 0 for false, NaN for what is missing; None where there is anything else, or neither."""
    lower = [word.lower() for word in words]
    if not set(lower) <= _FLAGS.keys() | MISSING or not _FLAGS.keys() & set(lower):
        return None
    return np.array([_FLAGS.get(word, math.nan) for word in lower])


def _fast_times(column: Any) -> np.ndarray | None:
    """A column of whole numbers, or else of finite ones, without a look at each cell; None where it is no such."""
    import pyarrow as pa
    from pyarrow import compute

    if column.null_count:
        return None
    if pa.types.is_string(column.type):
        column = compute.utf8_trim_whitespace(column)  # type: ignore[attr-defined]
    for kind in (pa.int64(), pa.float64()):
        if pa.types.is_floating(column.type) and kind == pa.int64():
            continue
        try:
            found = column.cast(kind).to_numpy()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
        return found if np.isfinite(found).all() else None
    return None


def _fast(column: Any) -> np.ndarray:
    """Texts as numbers.

    Raises:
        ArrowInvalid: one is none, or is missing.
    """
    import pyarrow as pa
    from pyarrow import compute

    return compute.utf8_trim_whitespace(column).cast(pa.float64()).to_numpy()  # type: ignore[attr-defined]
