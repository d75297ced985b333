"""Lines of bytes and rows of JSON from plain or compressed files, with file:line in every error."""

from __future__ import annotations

import codecs
import gzip
import json
import lzma
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from subquad.errors import DataError
from subquad.security.limits import LINE, PACKED, VALUES, allow, open_unpacked
from subquad.suggest import did_you_mean

COMPRESSED = ("", *PACKED)
"""What may follow a file's name, in the order in which it is looked for."""

_NO_TEXT = "the file is binary or damaged"
_MAYBE_UTF16 = "or UTF-16 without its mark: if it is text, save it as UTF-8"

_LONG = 65_536
"""Bytes of a line after which `text_lines` goes on with another piece."""

_KINDS = {
    type(None): ", no value",
    bool: ", a truth value",
    int: ", a whole number",
    float: ", a number with a fraction",
    list: ", a list",
    dict: ", an object",
}
"""What values of JSON are called that are no texts."""

Opener = Callable[[Path], BinaryIO]
"""Opens a file as bytes of UTF-8."""

_BYTE_ORDER_MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def fault(path: Path, line: int, text: str) -> DataError:
    """A DataError that starts with `file:line:`."""
    return DataError(f"{path}:{line}: {text}")


def is_hidden(name: str) -> bool:
    """Whether a file, or a folder above it, has a name that begins with a dot, as those of editors
    and desktops: what has is no data of anybody's.

    Args:
        name: a path below the folder or the archive that is read.
    """
    parts = PurePosixPath(name).parts
    return any(part.startswith(".") and part != ".." for part in parts)


def listed(folder: Path) -> list[os.DirEntry[str]]:
    """What lies in a folder and is not hidden, by name; nothing where there is no folder. All
    readers list folders by it; it is several times as fast as a glob.
    """
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        return sorted(
            (entry for entry in entries if not is_hidden(entry.name)), key=lambda entry: entry.name
        )


def find_file(folder: Path, *names: str, endings: Sequence[str] = COMPRESSED) -> Path | None:
    """The first of the names that is a file of the folder, with the first of the endings; None
    where none is.

    Raises:
        DataError: files with two of the names are there; or a name is that of a link that leads
            nowhere, or has letters of the other case.
    """
    there = {entry.name for entry in listed(folder)}
    files = list[Path]()
    for name in names:
        ended = [f"{name}{ending}" for ending in endings]
        paths = [path for name in ended if name in there and is_file(path := folder / name)]
        files += paths[:1]
        odd = sorted(
            {name for name in there if name.lower() in map(str.lower, ended)}.difference(ended)
        )
        if odd and not paths and is_file(folder / odd[0]):
            right = next(name for name in ended if name.lower() == odd[0].lower())
            advice = f"such a file is called {right}; rename it, or take it away"
            raise DataError(f"{folder / odd[0]}: {advice}")
    if len(files) > 1:
        raise DataError(f"{files[0]}: is there twice, also as {files[1].name}")
    if files:
        return files[0]
    return None


def is_file(path: Path) -> bool:
    """Whether a listed path is a file; a folder is none.

    Raises:
        DataError: it is a link that leads nowhere, or no file to read, such as a pipe.
    """
    if not path.is_file() and not path.is_dir():
        kind = "a link that leads nowhere" if path.is_symlink() else "no file"
        raise DataError(f"{path}: is {kind}; mend it, or take it away")
    return path.is_file()


def raw_lines(
    path: Path, *, ended: bool = False, opened: Opener = open_unpacked
) -> Iterator[tuple[int, bytes]]:
    """Numbered lines, from 1, without their line ends.

    Args:
        path: a plain or compressed file.
        ended: refuse a last line without an end; for files where nothing else tells that they were
            cut off.
        opened: how the file is opened.

    Raises:
        DataError: a byte order mark, or a damaged, unreadable or cut off file.
    """
    for number, raw in whole_lines(path, opened):
        if ended and not raw.endswith(b"\n"):
            raise fault(
                path, number, "the line has no end: the file is cut off (if not, add a newline)"
            )
        yield number, raw.rstrip(b"\r\n")


def whole_lines(path: Path, opened: Opener = open_unpacked) -> Iterator[tuple[int, bytes]]:
    """As `raw_lines`, with their line ends.

    Raises:
        DataError: also, a line is too long.
    """
    for number, raw in _pieces(path, LINE + 1, opened):
        if len(raw) > LINE:
            allow(f"{path}:{number}", "bytes of a line, or more", len(raw), LINE)
        yield number, raw


def text_lines(path: Path) -> Iterator[str]:
    """Lines of UTF-8 text with their ends; a line of more than 64 KiB comes in pieces.

    Raises:
        DataError: as `raw_lines`; or the file is empty or not UTF-8.
    """
    number = 0
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for number, raw in _pieces(path, _LONG):
            if b"\0" in raw:
                raise fault(path, number, f"a NUL byte; {_NO_TEXT}")
            yield decoder.decode(raw)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise fault(path, number, f"byte 0x{error.object[error.start]:02x} is not UTF-8") from error
    if not number:
        raise fault(path, 1, "the file is empty")


def utf8_lines(path: Path, opened: Opener = open_unpacked) -> Iterator[tuple[int, str]]:
    """As `raw_lines`, decoded.

    Raises:
        DataError: as `raw_lines`; or the file is empty or not UTF-8.
    """
    number = 0
    for number, raw in raw_lines(path, opened=opened):
        check_utf8(path, raw, number)
        yield number, raw.decode()
    if not number:
        raise fault(path, 1, "the file is empty")


def json_rows(path: Path, *fields: str) -> Iterator[tuple[int, list[bytes]]]:
    """Numbered rows of a JSON Lines file: the named fields, texts that are not empty, as UTF-8."""
    for number, raw in raw_lines(path):
        row = json_object(path, number, raw)
        yield number, [json_text(path, number, row, field).encode() for field in fields]


def json_object(path: Path, number: int, raw: bytes) -> dict[str, Any]:
    """The JSON object of one line, whose texts can be written as UTF-8."""
    if len(raw) > VALUES:  # a shorter line cannot have as many
        allow(f"{path}:{number}", "values", sum(map(raw.count, (b",", b"[", b"{"))), VALUES)
    try:
        row = json.loads(raw.decode(), object_pairs_hook=_fields)
    except (ValueError, RecursionError) as error:  # bad UTF-8 too
        raise fault(path, number, f"not JSON: {error}") from error
    if not isinstance(row, dict):
        raise fault(path, number, f"a row must be a JSON object, not {type(row).__name__}")
    for name, value in row.items() if b"\\u" in raw else ():
        try:
            json.dumps((name, value), ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = f"{name!r} holds half a surrogate pair, which is no text"
            raise fault(path, number, half) from error
    return row


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        name = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"{name[:40]!r} is there twice")
    return fields


def plain_number(text: str) -> str:
    """What is to become a number, if other programs would take it for one.

    Raises:
        ValueError: it has digits of other scripts, such as full-width ones, or underscores, which
            Python alone takes.
    """
    if not text.isascii() or "_" in text:
        raise ValueError(f"{text[:40]!r} is no number")
    return text


def check_start(path: Path, data: bytes) -> None:
    """Refuse a byte order mark at the start of a file."""
    if data.startswith(_BYTE_ORDER_MARKS):
        raise fault(path, 1, "starts with a byte order mark; save the file as UTF-8 without one")


def check_utf8(path: Path, data: bytes, first_line: int = 1) -> None:
    """Refuse bytes that are not UTF-8, and NUL, which no text has; `data` starts at
    `first_line`.
    """
    if b"\0" in data:
        place = data.index(b"\0")
        line = first_line + data.count(b"\n", 0, place)
        column = place - data.rfind(b"\n", 0, place)
        raise fault(path, line, f"NUL byte at column {column}; {_NO_TEXT}, {_MAYBE_UTF16}")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = first_line + data.count(b"\n", 0, error.start)
        column = error.start - data.rfind(b"\n", 0, error.start)
        reason = f"byte 0x{data[error.start]:02x} at column {column} is not UTF-8"
        raise fault(path, line, f"{reason}; save the file as UTF-8") from error


def json_text(path: Path, number: int, row: dict[str, Any], field: str) -> str:
    """A field that must be a text, and not empty.

    Raises:
        DataError: it is not there, or what is there.
    """
    value = row.get(field)
    if not isinstance(value, str) or not value:
        raise fault(path, number, f"no text under {field!r}; {told_field(row, field)}")
    return value


def told_field(row: dict[str, Any], field: str) -> str:
    """What a row has where a field is not as it must be, in words."""
    if field not in row:
        return f"the row holds {sorted(row)}{did_you_mean(field, row)}"
    shown = json.dumps(row[field], ensure_ascii=False)[:40]
    return f"the row has {shown} there{_KINDS.get(type(row[field]), '')}"


def _pieces(path: Path, limit: int, opened: Opener = open_unpacked) -> Iterator[tuple[int, bytes]]:
    """Numbered lines with their ends, in pieces of at most `limit` bytes."""
    number = 1
    with damage_named(path, lambda: number), opened(path) as stream:
        while raw := stream.readline(limit):
            if number == 1:
                check_start(path, raw)
            yield number, raw
            number += raw.endswith(b"\n")


@contextmanager
def damage_named(path: Path, number: Callable[[], int] = lambda: 1) -> Iterator[None]:
    """Turn what goes wrong while a plain or compressed file is read into a DataError.

    Args:
        path: the file.
        number: says the line that is being read.

    Raises:
        DataError: the file is damaged, cut off or cannot be read.
    """
    try:
        yield
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise fault(
            path, number(), f"the compressed file is damaged or cut off ({error})"
        ) from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
