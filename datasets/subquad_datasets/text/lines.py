"""Lines of bytes and rows of JSON from plain or compressed files, with file:line in every error."""

from __future__ import annotations

import bz2
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

COMPRESSED = ("", ".xz", ".gz", ".bz2")
"""What may follow a file's name, in the order in which it is looked for."""

_LONG = 65_536
"""Bytes of a line after which `text_lines` goes on with another piece."""

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
    for number, raw in _pieces(path, -1):
        if ended and not raw.endswith(b"\n"):
            raise fault(path, number, "the line has no end: the file is cut off (if not, add a newline)")
        yield number, raw.rstrip(b"\r\n")


def text_lines(path: Path) -> Iterator[str]:
    """Lines of UTF-8 text with their ends; a line of more than 64 KiB comes in pieces.

    Raises:
        DataError: as `raw_lines`; or the file is empty or not UTF-8.
    """
    number, decoder = 0, codecs.getincrementaldecoder("utf-8")()
    try:
        for number, raw in _pieces(path, _LONG):  # noqa: B007  (named in errors)
            yield decoder.decode(raw)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise fault(path, number, f"byte 0x{error.object[error.start]:02x} is not UTF-8") from error
    if not number:
        raise fault(path, 1, "the file is empty")


def utf8_lines(path: Path) -> Iterator[tuple[int, str]]:
    """As `raw_lines`, decoded.

    Raises:
        DataError: as `raw_lines`; or the file is empty or not UTF-8.
    """
    number = 0
    for number, raw in raw_lines(path):
        check_utf8(path, raw, number)
        yield number, raw.decode()
    if not number:
        raise fault(path, 1, "the file is empty")


def json_rows(path: Path, *fields: str) -> Iterator[tuple[int, list[bytes]]]:
    """Numbered rows of a JSON Lines file: the named fields, texts that are not empty, as UTF-8."""
    for number, raw in raw_lines(path):
        row = json_object(path, number, raw)
        yield number, [_text(path, number, row, field) for field in fields]


def json_object(path: Path, number: int, raw: bytes) -> dict[str, Any]:
    """The JSON object of one line."""
    try:
        row = json.loads(raw)
    except (ValueError, RecursionError) as error:  # bad UTF-8 too
        raise fault(path, number, f"not JSON: {error}") from error
    if not isinstance(row, dict):
        raise fault(path, number, f"a row must be a JSON object, not {type(row).__name__}")
    return row


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


def _pieces(path: Path, limit: int) -> Iterator[tuple[int, bytes]]:
    """Numbered lines with their ends, in pieces of at most `limit` bytes; -1: whole."""
    number = 1
    try:
        with _open(path) as stream:
            while raw := stream.readline(limit):
                if number == 1 and raw.startswith(_BYTE_ORDER_MARKS):
                    raise fault(path, 1, "starts with a byte order mark; save the file as UTF-8 without one")
                yield number, raw
                number += raw.endswith(b"\n")
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise fault(path, number, f"the compressed file is damaged or cut off ({error})") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


def _open(path: Path) -> BufferedIOBase:
    opened = {".xz": lzma.open, ".gz": gzip.open, ".bz2": bz2.open}.get(path.suffix)
    return opened(path) if opened else path.open("rb")
