"""Members of a tar, read in place: nothing is ever extracted to the disk, so no name in it can lead anywhere."""

from __future__ import annotations

import gzip
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from subquad.errors import DataError

_DAMAGED = (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, OSError)


@contextmanager
def open_tar(path: Path) -> Iterator[tarfile.TarFile]:
    """A tar, plain or compressed.

    Raises:
        DataError: not a tar, or cut off; also while it is read.
    """
    try:
        with tarfile.open(path, "r:*") as tar:
            yield tar
    except _DAMAGED as error:
        raise DataError(f"{path}: not a readable tar, or cut off ({error})") from error


def list_members(path: Path) -> list[tarfile.TarInfo]:
    """All members of a tar."""
    with open_tar(path) as tar:
        return tar.getmembers()


def read_member(path: Path, tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    """A member's bytes.

    Raises:
        DataError: it is cut off.
    """
    stream = tar.extractfile(member)
    data = stream.read() if stream else b""
    if len(data) != member.size:
        raise DataError(f"{path}: member {member.name} has {len(data)} of {member.size} bytes")
    return data
