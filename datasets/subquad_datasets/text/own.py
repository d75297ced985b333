"""Text files of one's own, as programs write them: with a byte order mark, in UTF-16 or UTF-32,
with the line ends of old Macs, with a spreadsheet's separators.

Only what a file says of itself beyond doubt is taken. Without a mark it is UTF-8.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from subquad.errors import DataError
from subquad.security.limits import LINE, open_unpacked
from subquad_datasets.text.lines import check_utf8, damage_named, fault, raw_lines, utf8_lines
from subquad_datasets.text.source import read_text

_MARKS = {
    codecs.BOM_UTF8: "UTF-8",
    codecs.BOM_UTF32_LE: "UTF-32-LE",
    codecs.BOM_UTF32_BE: "UTF-32-BE",
    codecs.BOM_UTF16_LE: "UTF-16-LE",
    codecs.BOM_UTF16_BE: "UTF-16-BE",
}
"""UTF-32 before UTF-16, as one of its marks begins with one of UTF-16."""

_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
_AT_ONCE = 1 << 16
_LINE_END = re.compile(r"\r\n|\n|\r")
_QUOTED = re.compile(r'"[^"]*("|$)')
_OF_QUOTES = "; a value that begins with a quote ends with one, and has each in it twice"
_EXCELS_LINE = re.compile(r'"?sep=.?"?', re.IGNORECASE)


@dataclass(frozen=True)
class Form:
    """How a text file is written.

    Attributes:
        encoding: its name for Python.
        mark: bytes of the byte order mark.
        has_mac_ends: whether lines end with CR alone; LF may then stand within quotes.
        header: the first line.
    """

    encoding: str
    mark: int
    has_mac_ends: bool
    header: str

    @property
    def is_plain(self) -> bool:
        """Whether it can be read as UTF-8, byte by byte."""
        return not self.mark and not self.has_mac_ends


def form_of(path: Path) -> Form:
    """How a plain or compressed text file is written, by its mark and its first line.

    Raises:
        DataError: it cannot be read.
    """
    with damage_named(path), open_unpacked(path) as stream:
        piece = stream.read(_AT_ONCE)
        encoding, mark = _marked(piece)
        decoder = codecs.getincrementaldecoder(encoding)("replace")
        texts = [decoder.decode(piece[mark:])]
        count = len(piece)
        while not _LINE_END.search(texts[-1]) and count <= LINE and piece:
            piece = stream.read(_AT_ONCE)
            texts.append(decoder.decode(piece))
            count += len(piece)
        if texts[-1].endswith("\r"):  # LF may follow
            texts.append(decoder.decode(stream.read(_AT_ONCE)))
    start = "".join(texts)
    end = _LINE_END.search(start)
    if end is None:
        return Form(encoding, mark, False, start)
    return Form(encoding, mark, end[0] == "\r", start[: end.start()])


def separator_of(path: Path, form: Form) -> str:
    """What stands between the names in the header of CSV: of comma, semicolon and tab the one that
    it has most often outside of quotes.

    Raises:
        DataError: two are there equally often; or it is Excel's line `sep=;`, which has no names.
    """
    if _EXCELS_LINE.fullmatch(form.header):
        raise fault(path, 1, "Excel's line sep= has no column names; take this line out")
    bare = _QUOTED.sub("", form.header)
    counts = {separator: bare.count(separator) for separator in _SEPARATORS}
    most = max(counts.values())
    common = [separator for separator, count in counts.items() if count == most]
    if len(common) > 1 and most:
        raise fault(
            path,
            1,
            f"as many {_SEPARATORS[common[0]]} as {_SEPARATORS[common[1]]} between column names; "
            "put each name that has one into quotes",
        )
    return common[0]


def told_of_csv(path: Path, form: Form) -> str:
    """How a file of CSV was read, in words."""
    encoding = form.encoding.removesuffix("-LE").removesuffix("-BE")
    return f"{encoding}{_separated(separator_of(path, form), ', ')}"


def other_length(path: Path, line: int, count: int, names: Sequence[str]) -> DataError:
    """That a row has another number of values than the header has names."""
    separated = _separated(separator_of(path, form_of(path)), " ")
    told = f"{count} values, the header has {len(names)} columns{separated}"
    return fault(path, line, told)


def _separated(separator: str, before: str) -> str:
    """What to say of a separator; nothing of commas."""
    return "" if separator == "," else f"{before}separated by {_SEPARATORS[separator]}"


def open_own(path: Path, form: Form) -> BinaryIO:
    """A plain or compressed text file as UTF-8 without a mark, with LF or CRLF at line ends.

    Raises:
        DataError: it becomes too large, or is not what its mark says; also while it is read.
        OSError: it cannot be opened.
    """
    stream = open_unpacked(path)
    if form.is_plain:
        return stream
    return io.BufferedReader(_Recoded(path, stream, form), _AT_ONCE)  # type: ignore[return-value]


def own_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """As `raw_lines`, of UTF-8."""
    yield from raw_lines(path, opened=partial(open_own, form=form_of(path)))


def own_text(path: Path) -> str:
    """One text, a file of its own.

    Raises:
        DataError: as `read_text`; or it is not what its mark says.
    """
    data = read_text(path, utf8=False)
    encoding, mark = _marked(data)
    data = data[mark:]
    if encoding != "UTF-8":
        data = _as_utf8(path, codecs.getincrementaldecoder(encoding)(), data, 1, final=True)
    check_utf8(path, data)
    if not data:
        raise fault(path, 1, "the text is empty")
    return data.decode()


def strict_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Rows of CSV with the line in which each starts; an empty line is a row without cells.

    Between tabs a quote opens a value too, as spreadsheets, pandas and pyarrow take it. There it
    may just as well be a letter of a text, and would swallow the rows up to the next quote: one
    that does is refused.

    Raises:
        DataError: as `utf8_lines` and `separator_of`; or a quote never ends, stands where none can,
            or holds rows between tabs.
    """
    csv.field_size_limit(LINE)
    form = form_of(path)
    lines = utf8_lines(path, opened=partial(open_own, form=form))
    separator = separator_of(path, form)
    started = 1
    reader = csv.reader((f"{line}\n" for _, line in lines), delimiter=separator, strict=True)
    try:
        for cells in reader:
            if separator == "\t" and any("\t" in cell and "\n" in cell for cell in cells):
                raise fault(
                    path,
                    started,
                    "a quote opens a value that holds tabs and goes on to line "
                    f"{reader.line_num}{_OF_QUOTES}",
                )
            yield started, cells
            started = reader.line_num + 1
    except csv.Error as error:
        raise fault(path, started, f"not CSV, from this row on: {error}{_OF_QUOTES}") from None


def _marked(data: bytes) -> tuple[str, int]:
    """The encoding that a mark says, and the bytes of the mark."""
    for mark, encoding in _MARKS.items():
        if data.startswith(mark):
            return encoding, len(mark)
    return "UTF-8", 0


def _as_utf8(path: Path, decoder: Any, data: bytes, line: int, *, final: bool) -> bytes:
    """What a decoder of UTF-16 or UTF-32 makes of bytes that start in a line."""
    try:
        return decoder.decode(data, final).encode()
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode(error.encoding, "replace")
        raise fault(
            path,
            line + before.count("\n"),
            f"not {error.encoding.upper()}, as its byte order mark says ({error.reason}); "
            "save the file as UTF-8",
        ) from None


class _Recoded(io.RawIOBase):
    """What a file says, as UTF-8 without a mark; CR at line ends becomes LF."""

    def __init__(self, path: Path, stream: BinaryIO, form: Form):
        self._path, self._stream, self._form = path, stream, form
        self._decoder = codecs.getincrementaldecoder(form.encoding)()
        self._ready = memoryview(b"")
        self._line = 1
        stream.read(form.mark)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = b"more"
        while piece and not self._ready:
            piece = self._stream.read(_AT_ONCE)
            self._ready = memoryview(self._recoded(piece))
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def close(self) -> None:
        self._stream.close()
        super().close()

    def _recoded(self, piece: bytes) -> bytes:
        if self._form.encoding != "UTF-8":
            piece = _as_utf8(self._path, self._decoder, piece, self._line, final=not piece)
        if self._form.has_mac_ends:
            piece = piece.replace(b"\r", b"\n")
        self._line += piece.count(b"\n")
        return piece
