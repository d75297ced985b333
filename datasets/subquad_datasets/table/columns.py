"""Columns of a CSV or Parquet file, with the place of each value for messages. The only place that needs pyarrow.

R rows.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from subquad.errors import DataError
from subquad.suggest import did_you_mean
from subquad_datasets.text.lines import fault, raw_lines

MISSING = frozenset({"", "?", "na", "nan", "null", "none"})
"""What stands for a missing value, in any case."""


@dataclass(frozen=True)
class Columns:
    """A file in memory.

    Attributes:
        path: the file.
        names: of its columns.
        table: pyarrow's; of CSV all columns are texts.
        is_text: whether it is CSV, whose rows are lines.
    """

    path: Path
    names: tuple[str, ...]
    table: Any
    is_text: bool

    def __len__(self) -> int:
        return self.table.num_rows

    def fault(self, row: int, text: str) -> DataError:
        """An error that names a row, counted from 0."""
        return fault(self.path, row + 2, text) if self.is_text else DataError(f"{self.path}: row {row + 1}: {text}")

    def need(self, name: str, key: str) -> None:
        """Refuse a setting that names no column.

        Raises:
            DataError: it names the nearest column.
        """
        if name not in self.names:
            known = f"it has {', '.join(self.names[:20])}{did_you_mean(name, self.names)}"
            raise DataError(f"dataset.params.{key}: {self.path} has no column {name!r}; {known}")

    def words(self, name: str) -> np.ndarray:
        """(R,) texts without blanks around them.

        Raises:
            DataError: one is missing.
        """
        found = np.array(
            ["" if one is None else str(one).strip() for one in self.table[name].to_pylist()], dtype=object
        )
        if empty := np.flatnonzero(found == "").tolist():
            raise self.fault(empty[0], f"column {name!r} is empty")
        return found.astype(np.str_)

    def numbers(self, name: str) -> np.ndarray:
        """(R,) float64, finite, or NaN where missing.

        Raises:
            DataError: a value is no finite number.
        """
        import pyarrow as pa

        column = self.table[name]
        try:
            found = column.cast(pa.float64()).to_numpy() if not self.is_text else _fast(column)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            found = np.array([self._number(name, row, one) for row, one in enumerate(column.to_pylist())])
        if (infinite := np.flatnonzero(np.isinf(found))).size:
            raise self.fault(int(infinite[0]), f"column {name!r}: {found[infinite[0]]} is not finite")
        return found

    def _number(self, name: str, row: int, value: Any) -> float:
        text = "" if value is None else str(value).strip()
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
        raise DataError(f"{path}: cannot be read: {' '.join(str(error).split())[:200]}") from None
    found = Columns(path, tuple(table.column_names), table, is_text)
    if not len(found):
        raise found.fault(0, "no rows")
    return found


def _read_parquet(path: Path) -> Any:
    from pyarrow import parquet

    table = parquet.read_table(path)
    _check_names(path, table.column_names)
    return table


def _read_csv(path: Path) -> Any:
    """All columns as texts: a label such as 01 stays what it is."""
    import pyarrow as pa
    from pyarrow import csv as arrow

    names, wrong = _header(path), list[Any]()
    kept = arrow.ConvertOptions(column_types={name: pa.string() for name in names}, strings_can_be_null=False)
    try:
        return arrow.read_csv(
            path,
            arrow.ReadOptions(use_threads=False, column_names=names, skip_rows=1),
            arrow.ParseOptions(ignore_empty_lines=False, invalid_row_handler=lambda row: wrong.append(row) or "error"),
            kept,
        )
    except pa.ArrowInvalid:
        if not wrong:
            raise
        number = wrong[0].number
        line = number if number is not None else 2
        raise fault(path, line, f"{wrong[0].actual_columns} values, the header has {len(names)} columns") from None


def _header(path: Path) -> list[str]:
    for number, raw in raw_lines(path):
        try:
            names = next(csv.reader([raw.decode("utf-8")]), [])
        except (UnicodeDecodeError, csv.Error) as error:
            raise fault(path, number, f"not a line of column names ({error})") from None
        _check_names(path, names)
        return names
    raise fault(path, 1, "the file is empty")


def _check_names(path: Path, names: Sequence[str]) -> None:
    if wrong := [name for name in names if not name.strip() or list(names).count(name) > 1]:
        raise fault(path, 1, f"column name {wrong[0]!r} is empty or there twice")


def _fast(column: Any) -> np.ndarray:
    """Texts as numbers.

    Raises:
        ArrowInvalid: one is none, or is missing.
    """
    import pyarrow as pa
    from pyarrow import compute

    return compute.utf8_trim_whitespace(column).cast(pa.float64()).to_numpy()  # type: ignore[attr-defined]
