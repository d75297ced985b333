"""Text lines of a .ts file, plain or compressed, with the checks that belong to bytes."""

from __future__ import annotations

import codecs
import gzip
import lzma
import zlib
from collections.abc import Iterator
from io import BufferedIOBase
from pathlib import Path

from subquad.errors import DataError

SUFFIXES = (".ts", ".ts.xz", ".ts.gz")
"""File endings that are read, in the order in which they are looked for."""

_BYTE_ORDER_MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def fault(path: Path, line: int, text: str) -> DataError:
    """A DataError that starts with `file:line:`."""
    return DataError(f"{path}:{line}: {text}")


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines, from 1, stripped; empty ones are left out.

    Raises:
        DataError: a byte order mark, a NUL byte, bytes that are not UTF-8, a damaged or unreadable file.
    """
    number = 0
    try:
        with _open(path) as stream:
            for number, raw in enumerate(stream, start=1):
                if text := _decode(path, number, raw):
                    yield number, text
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise fault(path, number + 1, f"the compressed file is damaged or cut off ({error})") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


def _open(path: Path) -> BufferedIOBase:
    if path.name.endswith(".xz"):
        return lzma.open(path)
    if path.name.endswith(".gz"):
        return gzip.open(path)
    return path.open("rb")


def _decode(path: Path, number: int, raw: bytes) -> str:
    if number == 1 and raw.startswith(_BYTE_ORDER_MARKS):
        raise fault(path, number, "starts with a byte order mark; save the file as UTF-8 without one")
    if b"\0" in raw:
        raise fault(path, number, f"NUL byte at column {raw.index(0) + 1}; the file is binary or damaged")
    try:
        return raw.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        bad = raw[error.start]
        raise fault(path, number, f"byte 0x{bad:02x} at column {error.start + 1} is not UTF-8") from error
