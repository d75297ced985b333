"""The order of a column of times: numbers, dates of one form, or texts that sort by time. R rows.

Text is the last resort, as it would put 10 before 9, and Friday before Monday, without a word. So
cells of several kinds are refused, and so are texts that differ in more than their numbers, or
whose order as text is not that of the numbers in them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np

from subquad_datasets.text.lines import plain_number

_NOTHING = frozenset({"?", "na", "nan", "null", "none", "nat"})
_DIGIT = re.compile(r"\d")
_NUMBER_IN = re.compile(r"[0-9]+")
_FRACTION = re.compile(r"[.,]\d+")
_OFFSET = re.compile(r"[+-](\d\d:?\d\d(:?\d\d)?)$")
_UNSORTED = re.compile(
    r"(?i)^\d{1,2}[./-]\d{1,2}[./-]\d{2,4}\b|\d\s*[ap]\.?m\b"
    r"|(?<![a-z])(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|mon|tue|wed|thu|f"
    r"ri|sat|sun)[a-z]*[\s,.-]*\d"
    r"|\d[\s,.-]*(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)"
)
"""Dates that begin with the day or the month, names of months and days with a number, and hours
with am and pm.
"""

_REMEDY = "write times as numbers, or as dates such as 2024-01-05T13:00:00"


class OddTime(ValueError):
    """A cell that does not fit.

    Attributes:
        row: its row, from 0.
    """

    def __init__(self, row: int, text: str):
        super().__init__(text)
        self.row = row


def ordered(words: Sequence[str]) -> tuple[np.ndarray, str]:
    """(R,) numbers that grow with time, and "numbers", "dates" or "text".

    Raises:
        OddTime: a cell is of another kind than most, is missing or not finite; or texts do not sort
            by time.
    """
    numbers = _integers(words)
    if numbers is not None:
        return numbers, "numbers"
    kinds = [_kind(word) for word in words]
    different = set(kinds)
    if len(different) > 1 or different <= {_MISSING, _INFINITE}:
        raise _odd(words, kinds)
    if different == {_NUMBER}:
        return np.array([float(word) for word in words]), "numbers"
    if different == {_TEXT}:
        return _ranks(words, _in_text_order(words)), "text"
    moments = [datetime.fromisoformat(word) for word in words]
    return _ranks(moments, sorted(set(moments))), "dates"


_NUMBER = "a number"
_TEXT = "text"
_MISSING = "missing"
_INFINITE = "not finite"


def _kind(word: str) -> str:
    """What a cell is; of a date also its form, such as "a date like 0000-00-00"."""
    if word.lower() in _NOTHING:
        return _MISSING
    try:
        number = float(plain_number(word))
    except ValueError:
        pass
    else:
        return _NUMBER if np.isfinite(number) else _INFINITE
    try:
        datetime.fromisoformat(word)
    except ValueError:
        return _TEXT
    form = _OFFSET.sub(r"+\1", _FRACTION.sub("", word))
    return f"a date like {_DIGIT.sub('0', form)}"


def _integers(words: Sequence[str]) -> np.ndarray | None:
    """Whole numbers, exactly: nanoseconds are more than float64 can tell apart. None where not
    all are such.
    """
    try:
        return np.array([int(plain_number(word)) for word in words], dtype=np.int64)
    except (ValueError, OverflowError):
        return None


def _odd(words: Sequence[str], kinds: Sequence[str]) -> OddTime:
    """The first cell of the rarest kind."""
    counts = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    most = max(counts, key=lambda kind: counts[kind])
    rare = next((kind for kind in (_MISSING, _INFINITE) if kind in counts), None)
    rare = rare or min((kind for kind in counts if kind != most), key=lambda kind: counts[kind])
    row = kinds.index(rare)
    if most != rare:
        beside = f", and {counts[most]} others are {most}"
    else:
        beside = ""
    return OddTime(row, f"{words[row][:40]!r} is {rare}{beside}; {_REMEDY}")


def _in_text_order(words: Sequence[str]) -> list[str]:
    """The different texts, sorted.

    Raises:
        OddTime: their order by time is another one.
    """
    known = sorted(set(words))
    unsorted = next((row for row, word in enumerate(words) if _UNSORTED.search(word)), None)
    if len(known) > 1 and unsorted is not None:
        raise OddTime(
            unsorted, f"{words[unsorted][:40]!r} does not sort by time as text; {_REMEDY}"
        )
    first_frame = _NUMBER_IN.sub("0", words[0])
    for row, word in enumerate(words):
        if _NUMBER_IN.sub("0", word) != first_frame:
            reason = f"{word[:40]!r} and {words[0][:40]!r} differ in more than their numbers"
            raise OddTime(row, f"{reason}, so their order is not known; {_REMEDY}")
    for first, second in zip(known, sorted(known, key=_natural), strict=True):
        if first != second:
            reason = (
                f"as text {first[:40]!r} comes before {second[:40]!r}; {_REMEDY}, or "
                "with as many digits in each"
            )
            raise OddTime(words.index(first), reason)
    return known


def _natural(word: str) -> list[tuple[str, int]]:
    """Text with its numbers as numbers."""
    parts = re.split(r"([0-9]+)", word)
    numbers = [int(part) for part in parts[1::2]]
    return list(zip(parts[::2], [*numbers, 0], strict=True))


def _ranks(values: Sequence[Any], known: Sequence[Any]) -> np.ndarray:
    """(R,) int64: the place of each value among the known ones."""
    places = {value: place for place, value in enumerate(known)}
    return np.array([places[value] for value in values], dtype=np.int64)
