"""What a plain YAML scalar means: numbers, true, false, null, or text. Close to YAML 1.2, and never surprising.

`1e-3` is a number; `no`, `on`, `1:30` and `2026-01-01` are text; `010`, `.inf` and numbers that do not fit 64 bits are
refused, because each of them means something else to some reader.
"""

from __future__ import annotations

import math
import re

Scalar = str | int | float | bool | None

_WORDS: dict[str, Scalar] = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
_WORDS |= {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


def scalar(text: str) -> Scalar:
    """The value of a plain (unquoted) scalar.

    Raises:
        ValueError: it looks like a number and cannot be used as one; the message says what to write.
    """
    if text in _WORDS:
        return _WORDS[text]
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"{text} is not a finite number")
    if not _NUMBER.fullmatch(text):
        return text
    if _LEADING_ZERO.match(text):
        raise ValueError(
            f"{_cut(text)} has a leading zero: write {_plain(text)} for the number, '{_cut(text)}' for text"
        )
    return _integer(text) if _INTEGER.fullmatch(text) else _float(text)


def _integer(text: str) -> int:
    if len(text) > 20 or not -(2**63) <= int(text) < 2**63:
        raise ValueError(f"{_cut(text)} does not fit 64 bits")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{_cut(text)} does not fit 64 bits")
    return value


def _plain(text: str) -> str:
    sign = "-" if text.startswith("-") else ""
    return _cut(sign + (re.sub(r"^0+(?=[0-9])", "", text.lstrip("+-"))))


def _cut(text: str) -> str:
    return text if len(text) <= 30 else f"{text[:27]}..."
