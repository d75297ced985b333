"""Members of a tar, read in place: nothing is ever extracted to the disk, so no name in it can
lead anywhere.
"""

from __future__ import annotations

import gzip
import lzma
import re
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from subquad.errors import DataError
from subquad.limits import open_tar, open_unpacked, tar_files

_DAMAGED = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, OSError)
_STARTS = {rb"\xfd7zXZ\0|]\0\0": ".xz", rb"\x1f\x8b": ".gz", rb"BZh[1-9]1AY&SY": ".bz2"}
"""What compressed files begin with, whatever they are called."""


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
