"""Read JSON strictly: bounded in bytes, values, depth and digits; finite; each key once; UTF-8
without lone surrogates.

What is read of a file that others wrote has the shape that its name promises (`shapes`), so its
readers need not ask.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import accumulate
from typing import IO, Any

from pydantic import TypeAdapter, ValidationError

from subquad.errors import escaped

MAX_BYTES = 200_000_000
MAX_VALUES = 5_000_000
MAX_DEPTH = 50
MAX_DIGITS = 40
"""The largest file is the state of a checkpoint, with 700 numbers and some 35 kB a process."""

MAX_LINE = 10_000_000
"""Bytes of a line of metrics.jsonl and the like."""


def parse_json(text: str | bytes) -> Any:
    """The values of a JSON text.

    Raises:
        ValueError: in one line: it is no strict JSON.
    """
    if len(text) > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES:,} bytes")
    if isinstance(text, bytes):
        text = text.decode()
    opened = text.count("[") + text.count("{")
    if opened + text.count(",") > MAX_VALUES:
        raise ValueError(f"more than {MAX_VALUES:,} values")
    if opened > MAX_DEPTH and _depth_of(text) > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    return json.loads(
        text,
        parse_int=_whole,
        parse_float=_finite,
        parse_constant=_finite,
        object_pairs_hook=_once,
    )


def _depth_of(text: str) -> int:
    """How deep lists and objects lie in one another, up to where a text is no JSON any more."""
    signs = (sign for sign in _STRING_OR_BRACKET.findall(text) if sign[0] != '"')
    return max(accumulate(1 if sign in "[{" else -1 for sign in signs), default=0)


_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+"|[][{}]', re.DOTALL)


def _whole(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number of {len(text):,} digits, at most {MAX_DIGITS} are read")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{escaped(text, 30)} is not a finite number")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = {}
    for key, value in pairs:
        if key in data:
            raise ValueError(f"key {escaped(key, 60)!r} is given twice")
        data[key] = value
    return data


def lines_of(stream: IO[bytes]) -> Iterator[bytes]:
    """The lines of a file of JSON lines; of one that is longer than `MAX_LINE` pieces, which are
    no JSON.
    """
    return iter(partial(stream.readline, MAX_LINE), b"")


def shaped(data: Mapping[str, Any], shape: TypeAdapter[Any]) -> None:
    """Refuse values that have not the shape of their file.

    Raises:
        ValueError: the first key that is wrong, and why.
    """
    try:
        shape.validate_python(data, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = escaped(".".join(map(str, first["loc"])), 200)
        raise ValueError(f"{where}: {first['msg'].lower()}") from None
