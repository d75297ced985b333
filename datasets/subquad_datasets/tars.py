"""Tars, read in place: nothing is ever extracted to the disk, so no name in one can lead anywhere.
A tar is judged by its headers before memory is taken for what it holds.
"""

from __future__ import annotations

import gzip
import itertools
import lzma
import re
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from subquad.errors import DataError
from subquad.security.limits import HEADER, MEMBER, MEMBERS, allow, open_unpacked
from subquad_datasets.text.lines import is_hidden

_DAMAGED = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, OSError)
_STARTS = {rb"\xfd7zXZ\0|]\0\0": ".xz", rb"\x1f\x8b": ".gz", rb"BZh[1-9]1AY&SY": ".bz2"}
"""What compressed files begin with, whatever they are called."""
_LONG_NAMES = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_AT_ONCE = 1 << 16


class _Member(tarfile.TarInfo):
    """A member of a tar, whose long names are not read unless they are short; sparse ones are
    refused.
    """

    @classmethod
    def frombuf(cls, buf: Any, encoding: str, errors: str) -> Any:
        """A header; only an empty block is the end. Python also takes a damaged one as the end, or
        no more bytes, and so loses what follows.
        """
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if buf == bytes(tarfile.BLOCKSIZE):
                raise
            raise tarfile.ReadError(str(error)) from None

    def _proc_member(self, tar: Any) -> Any:
        if self.type in _LONG_NAMES:
            allow(tar.name, "bytes of a name in the tar", self.size, HEADER)
        return super()._proc_member(tar)  # type: ignore[misc]

    def _no_sparse(self, *_: Any) -> Any:
        raise tarfile.ReadError("a file with holes, which is not read")

    _proc_sparse = _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _no_sparse


@contextmanager
def open_tar(
    path: Path, stream: BinaryIO, mode: str = "r:", fault: str = "not a readable tar, or cut off"
) -> Iterator[tarfile.TarFile]:
    """A tar in a stream that is not compressed, or unpacked by `open_unpacked`; `tar_files` lists
    it.

    Args:
        path: its name in messages.
        mode: as of `tarfile.open`: "r:", or "r|" for a stream that is read once.
        fault: what is said of one that cannot be read.

    Raises:
        DataError: not a tar, damaged, or beyond a limit; also while it is read.
    """
    try:
        with tarfile.open(str(path), mode, stream, tarinfo=_Member) as tar:  # type: ignore[call-overload]
            yield tar
    except RecursionError as error:
        raise DataError(f"{path}: {fault} (too many headers before a file)") from error
    except (tarfile.TarError, OverflowError) as error:
        raise DataError(f"{path}: {fault} ({error})") from error


def tar_files(
    path: Path, tar: tarfile.TarFile, start: int = 0, stop: int | None = None
) -> Iterator[tarfile.TarInfo]:
    """The members of a tar that are not hidden, one by one; the tar does not keep them.

    Args:
        start: where the tar begins in its stream, and
        stop: where it ends, if it is a part of another.

    Raises:
        DataError: too many, they do not follow one another, or the tar goes on behind its end.
    """
    end = start
    for count in itertools.count(1):
        member = tar.next()
        tar.members.clear()  # type: ignore[attr-defined]
        if member is None:
            _check_end(path, tar.fileobj, stop)
            return
        allow(path, "files in the tar", count, MEMBERS)
        begin = member.offset_data
        is_apart = member.size >= 0 and begin >= end
        end = begin + (member.size if member.isreg() else 0)
        if not is_apart or (stop is not None and end > stop):
            raise DataError(
                f"{path}: not a readable tar: {member.name[:100]!r} lies where another file is"
            )
        if not is_hidden(member.name):
            yield member


def _check_end(path: Path, stream: Any, stop: int | None) -> None:
    """Refuse a tar that does not end with two empty blocks, the first of which was read, and
    nothing but zeros behind them.
    """
    size = 0
    piece = b"more"
    while piece:
        left = _AT_ONCE if stop is None else stop - stream.tell()
        piece = stream.read(max(0, min(left, _AT_ONCE)))
        size += len(piece)
        if piece.strip(b"\0"):
            raise DataError(
                f"{path}: goes on behind the end of a tar, as tars do that were joined by cat: "
                "pack all files into one tar"
            )
    if size < tarfile.BLOCKSIZE:
        raise DataError(f"{path}: cut off: a tar ends with two empty blocks")


def tar_content(path: Path, tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    """The bytes of a file in a tar.

    Raises:
        DataError: it is too large, or cut off.
    """
    name = member.name[:100]
    size = member.size
    allow(f"{path}: {name}", "bytes", size, MEMBER)
    stream = tar.extractfile(member)
    data = b""
    if stream:
        data = stream.read()
    if len(data) != size:
        raise DataError(f"{path}: member {name} has {len(data)} of {size} bytes")
    return data


@contextmanager
def in_tar(path: Path) -> Iterator[tarfile.TarFile]:
    """A tar, plain or compressed.

    Raises:
        DataError: not a tar, cut off, or beyond a limit; also while it is read.
    """
    try:
        with path.open("rb") as stream:
            start = stream.read(16)
        ending = next((_STARTS[mark] for mark in _STARTS if re.match(mark, start)), "")
        with open_unpacked(path, ending) as stream, open_tar(path, stream) as tar:
            yield tar
    except _DAMAGED as error:
        raise DataError(f"{path}: not a readable tar, or cut off ({error})") from error


def list_members(path: Path) -> list[tarfile.TarInfo]:
    """All members of a tar."""
    with in_tar(path) as tar:
        return list(tar_files(path, tar))
