"""Columns of a CSV or Parquet file, with the place of each value for messages.

R rows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from subquad.errors import DataError
from subquad.security.limits import MEMBER, allow
from subquad.suggest import did_you_mean
from subquad_datasets.class_names import first_alike
from subquad_datasets.table.times import OddTime, ordered
from subquad_datasets.text.lines import fault, plain_number
from subquad_datasets.text.own import Form, strict_rows

MISSING = frozenset({"", "?", "na", "nan", "null", "none"})
"""What stands for a missing value, in any case."""

LARGEST = float(np.finfo(np.float32).max)
"""Values are float32 in the end."""

_WITH_COMMA = re.compile(r"[+-]?[\d.]*\d,\d+")

_FLAGS = {"true": 1.0, "false": 0.0}
_LOOKED_AT = 1000
"""Cells that tell a column of true and false, which has no numbers, from one of numbers."""


@dataclass(frozen=True)
class Columns:
    """A file in memory.

    Attributes:
        path: the file.
        names: of its columns.
        table: pyarrow's; of CSV all columns are texts.
        form: how a file of CSV is written, whose rows are lines; None of Parquet.
        broken: whether a value of CSV has a line end in it, or lines between rows are empty, so
            that rows are not lines.
    """

    path: Path
    names: tuple[str, ...]
    table: Any
    form: Form | None
    broken: bool = False

    def __len__(self) -> int:
        return self.table.num_rows

    @property
    def is_text(self) -> bool:
        """Whether it is CSV."""
        return self.form is not None

    @cached_property
    def _lines(self) -> list[int]:
        """The line in which each row starts, where rows are not lines."""
        return [line for line, cells in strict_rows(self.path) if cells][1:]

    def fault(self, row: int, text: str) -> DataError:
        """An error that names a row, counted from 0."""
        if not self.is_text:
            return DataError(f"{self.path}: row {row + 1}: {text}")
        return fault(self.path, self._lines[row] if self.broken else row + 2, text)

    def no_channel(self, text: str) -> DataError:
        """An error about the names of columns."""
        if self.is_text:
            return fault(self.path, 1, text)
        return DataError(f"{self.path}: {text}")

    def kind(self, name: str) -> str:
        """What a column of numbers holds, in a word."""
        if not self.is_text:
            return str(self.table[name].type)
        first = {
            _word(value).lower() for value in self.table[name].slice(0, _LOOKED_AT).to_pylist()
        }
        return "true, false" if first & _FLAGS.keys() else "numbers"

    def need(self, name: str, key: str) -> None:
        """Refuse a setting that names no column.

        Raises:
            DataError: it names the nearest column.
        """
        if name not in self.names:
            known = f"it has {', '.join(self.names[:20])}{did_you_mean(name, self.names)}"
            if self.is_text:
                place = f"{self.path}:1"
            else:
                place = self.path
            raise DataError(f"dataset.params.{key}: {place}: no column {name!r}; {known}")

    def words(self, name: str) -> np.ndarray:
        """(R,) texts without blanks around them.

        Raises:
            DataError: one is missing, or has a line end or NUL in it.
        """
        words = [_word(value) for value in self.table[name].to_pylist()]
        for row, word in enumerate(words):
            if not word:
                raise self.fault(row, f"column {name!r} is empty")
            if "\0" in word or "\n" in word or "\r" in word:
                raise self.fault(
                    row,
                    f"column {name!r}: {word[:40]!r} has a "
                    "line end or NUL in it; is a quote amiss?",
                )
        longest = max(map(len, words), default=0)
        allow(
            f"{self.path}: column {name!r}",
            "bytes, each text with room for the longest",
            4 * longest * len(words),
            MEMBER,
        )
        return np.array(words, dtype=object).astype(np.str_)

    def names_of(self, name: str, *, numbers_only: bool = False) -> np.ndarray:
        """As `words`, where equal ones mean the same: of classes, series or groups.

        Args:
            numbers_only: as for `first_alike`.

        Raises:
            DataError: also, two look alike.
        """
        names = self.words(name)
        known, first = np.unique(names, return_index=True)
        in_order = np.argsort(first)
        if alike := first_alike(known[in_order].tolist(), numbers_only=numbers_only):
            row = int(np.argmax(names == alike[1]))
            raise self.fault(
                row,
                f"column {name!r}: {alike[1]!r} and {alike[0]!r} "
                "look alike; write them the same way",
            )
        return names

    def times(self, name: str) -> tuple[np.ndarray, str]:
        """(R,) numbers that grow with time, and what the column holds: see
        `subquad_datasets.table.times`.

        Raises:
            DataError: cells of several kinds, one that is missing or not finite, or texts that do
                not sort by time.
        """
        import pyarrow as pa

        column = self.table[name]
        if pa.types.is_temporal(column.type):
            if column.null_count:
                raise self.fault(
                    int(np.argmax(column.is_null().to_numpy())), f"column {name!r} is empty"
                )
            return np.unique(column.to_numpy(), return_inverse=True)[1], "dates"
        if (fast := _fast_times(column)) is not None:
            return fast, "numbers"
        words = self.words(name).tolist()
        try:
            return ordered(words)
        except OddTime as odd:
            raise self.fault(odd.row, f"column {name!r}: {odd}") from None

    def numbers(self, name: str) -> np.ndarray:
        """(R,) float64, finite, or NaN where missing. A column of true and false alone is one of 1
        and 0.

        Raises:
            DataError: a value is no finite number, or is too large for float32.
        """
        import pyarrow as pa

        column = self.table[name]
        try:
            if not self.is_text:
                numbers = column.cast(pa.float64()).to_numpy()
            else:
                numbers = _fast(column)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            words = [_word(value) for value in column.to_pylist()]
            numbers = _flags(words)
            if numbers is None:
                numbers = np.array(
                    [self._number(name, row, word) for row, word in enumerate(words)]
                )
        if (wrong := np.flatnonzero(np.abs(numbers) > LARGEST)).size:
            value = numbers[wrong[0]]
            reason = (
                "is not finite"
                if np.isinf(value)
                else "is too large for float32; rescale the column"
            )
            raise self.fault(int(wrong[0]), f"column {name!r}: {value} {reason}")
        return numbers

    def _number(self, name: str, row: int, text: str) -> float:
        if text.lower() in MISSING:
            return math.nan
        try:
            return float(plain_number(text))
        except ValueError:
            reason = f"column {name!r}: {text[:40]!r} is not a number"
            if _WITH_COMMA.fullmatch(text):
                reason += "; a comma may be a decimal point or mean thousands: write 1.5 or 1000"
            raise self.fault(row, reason) from None


def _word(value: Any) -> str:
    """A cell as text without blanks around it; "" for a missing one."""
    if value is None or value != value:
        return ""
    return str(value).strip()


def _flags(words: Sequence[str]) -> np.ndarray | None:
    """1 for true, 0 for false, NaN for what is missing; None where there is anything else, or
    neither.
    """
    lower = [word.lower() for word in words]
    if not set(lower) <= _FLAGS.keys() | MISSING or not _FLAGS.keys() & set(lower):
        return None
    return np.array([_FLAGS.get(word, math.nan) for word in lower])


def _fast_times(column: Any) -> np.ndarray | None:
    """A column of whole numbers, or else of finite ones, without a look at each cell; None where
    it is no such.
    """
    import pyarrow as pa
    from pyarrow import compute

    if column.null_count:
        return None
    if pa.types.is_string(column.type):
        column = compute.utf8_trim_whitespace(column)  # type: ignore[attr-defined]
        if compute.any(compute.match_substring(column, "x", ignore_case=True)).as_py():  # type: ignore[attr-defined]
            return None  # pyarrow reads 0x1A as a whole number
    for kind in (pa.int64(), pa.float64()):
        if pa.types.is_floating(column.type) and kind == pa.int64():
            continue
        try:
            numbers = column.cast(kind).to_numpy()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
        return numbers if np.isfinite(numbers).all() else None
    return None


def _fast(column: Any) -> np.ndarray:
    """Texts as numbers.

    Raises:
        ArrowInvalid: one is none, or is missing.
    """
    import pyarrow as pa
    from pyarrow import compute

    return compute.utf8_trim_whitespace(column).cast(pa.float64()).to_numpy()  # type: ignore[attr-defined]
