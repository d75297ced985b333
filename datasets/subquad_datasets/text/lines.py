"""Lines of bytes and rows of JSON from plain or compressed files, with file:line in every error."""

from __future__ import annotations

import codecs
import gzip
import json
import lzma
import zlib
from collections.abc import Iterator
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from subquad.errors import DataError

COMPRESSED = ("", ".xz", ".gz")
"""What may follow a file's name, in the order in which it is looked for."""

_BYTE_ORDER_MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def fault(path: Path, line: int, text: str) -> DataError:
    """A DataError that starts with `file:line:`."""
    return DataError(f"{path}:{line}: {text}")


def find_file(folder: Path, *names: str) -> Path | None:
    """The first of the names that is a file of the folder, plain or compressed."""
    paths = (folder / f"{name}{ending}" for name in names for ending in COMPRESSED)
    return next((path for path in paths if path.is_file()), None)


def raw_lines(path: Path, *, ended: bool = False) -> Iterator[tuple[int, bytes]]:
    """Numbered lines, from 1, without their line ends.

    Args:
        ended: refuse a last line without an end; for files where nothing else tells that they were cut off.

    Raises:
        DataError: a byte order mark, or a damaged, unreadable or cut off file.
    """
    number = 0
    try:
        with _open(path) as stream:
            for number, raw in enumerate(stream, start=1):
                if number == 1 and raw.startswith(_BYTE_ORDER_MARKS):
                    raise fault(path, 1, "starts with a byte order mark; save the file as UTF-8 without one")
                if ended and not raw.endswith(b"\n"):
                    raise fault(path, number, "the line has no end: the file is cut off (if not, add a newline)")
                yield number, raw.rstrip(b"\r\n")
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise fault(path, number + 1, f"the compressed file is damaged or cut off ({error})") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


def json_rows(path: Path, *fields: str) -> Iterator[tuple[int, list[bytes]]]:
    """Numbered rows of a JSON Lines file: the named fields, texts that are not empty, as UTF-8."""
    for number, raw in raw_lines(path):
        try:
            row = json.loads(raw)
        except (ValueError, RecursionError) as error:  # bad UTF-8 too
            raise fault(path, number, f"not JSON: {error}") from error
        if not isinstance(row, dict):
            raise fault(path, number, f"a row must be a JSON object, not {type(row).__name__}")
        yield number, [_text(path, number, row, field) for field in fields]


def check_utf8(path: Path, data: bytes, first_line: int = 1) -> None:
    """Refuse bytes that are not UTF-8, naming their line; `data` starts at `first_line`."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = first_line + data.count(b"\n", 0, error.start)
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise fault(path, line, f"byte 0x{data[error.start]:02x} at column {column} is not UTF-8") from error


def _text(path: Path, number: int, row: dict[str, Any], field: str) -> bytes:
    value = row.get(field)
    if not isinstance(value, str) or not value:
        seen = f"holds {sorted(row)}" if field not in row else f"has {json.dumps(value)[:40]} there"
        raise fault(path, number, f"no text under {field!r}; the row {seen}")
    try:
        return value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise fault(path, number, f"{field!r} holds half a surrogate pair, which is no text") from error


def _open(path: Path) -> BufferedIOBase:
    if path.name.endswith(".xz"):
        return lzma.open(path)
    if path.name.endswith(".gz"):
        return gzip.open(path)
    return path.open("rb")
