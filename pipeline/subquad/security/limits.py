"""What a file of somebody else may ask of this machine: each limit once, and the readers that keep
to them.

A file is judged by what it says before memory is taken for it, and by what comes out of it while it
is read. Every refusal tells where, what, how much, and what is allowed.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import math
import os
import pickletools
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import psutil
from numpy.lib import format as npy

from subquad.errors import DataError

LINE = 32 << 20
"""Bytes of a line, and of a file that is one text or one picture. EigenWorms has lines of 2 MB."""

UNPACKED = 32 << 20
"""Bytes that a compressed file may always become."""
RATIO = 100
"""Times its own size that a larger one may become. Texts and series become 3 to 20 times as
large.
"""

MEMBER = 256 << 20
"""Bytes of a file in an archive. A batch of CIFAR-10 has 31 MB."""
MEMBERS = 200_000
"""Files of an archive. CIFAR-10 has 60,000 pictures."""
HEADER = 8 << 20
"""Bytes of what stands before the data: of a tensor file, an index, a member of a tar."""

VALUES = 2_000_000
"""Values of a line of JSON or of a pickle, as if each were written out."""
DEPTH = 100
"""Lists or tuples in one another. ListOps has 10."""
COLUMNS = 100_000
"""Columns of a table, and classes of series."""

DOWNLOAD = 8 << 30
"""Bytes of a file that is fetched over http. The archive of Long Range Arena has 7.7 GB."""
UNSTATED = 1 << 30
"""Bytes of such a file where its server does not say beforehand how many there are."""

ANSWER = 32 << 20
"""Bytes of an answer that is no file: what a cluster knows of its jobs, or a job has said."""

_NPY_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
"""Versions of the .npy format that are read."""
_OPENED = {".xz": lzma.open, ".gz": gzip.open, ".bz2": bz2.open}
PACKED = tuple(_OPENED)
"""Endings of compressed files that are read."""


def allow(where: object, what: str, amount: int, allowed: int, are: str = "read") -> None:
    """Refuse what is more than is allowed.

    Raises:
        DataError: where, what, how much, and what is allowed.
    """
    if amount > allowed:
        raise DataError(f"{where}: {what}: {amount:,}, at most {allowed:,} are {are}")


def allow_memory(where: object, size: int) -> None:
    """Refuse to make, from sizes that somebody gave, what does not fit into memory.

    Args:
        where: what is made, of which sizes.
        size: bytes that it takes at a time.

    Raises:
        DataError: it does not fit.
    """
    allow(where, "bytes of memory", size, psutil.virtual_memory().available, "free")


def allow_disk(where: object, size: int, folder: Path) -> None:
    """The same for a folder's disk.

    Raises:
        DataError: it does not fit.
    """
    allow(where, "bytes of the disk", size, shutil.disk_usage(folder).free, "free")


def read_whole(path: Path, allowed: int = MEMBER) -> bytes:
    """The bytes of a file.

    Raises:
        DataError: it is too large.
        OSError: it cannot be read.
    """
    allow(path, "bytes", path.stat().st_size, allowed)
    return path.read_bytes()


def unpacked_limit(size: int) -> int:
    """Bytes that a compressed file of this size may become."""
    return max(UNPACKED, RATIO * size)


def open_unpacked(path: Path, ending: str | None = None) -> BinaryIO:
    """A plain or compressed file.

    Args:
        ending: which of `PACKED` it is, "" for none; None: as its name says.

    Raises:
        DataError: it becomes too large; also while it is read.
        OSError: it cannot be opened.
    """
    kind = path.suffix if ending is None else ending
    if kind not in _OPENED:
        return path.open("rb")
    return io.BufferedReader(_Unpacked(path, _OPENED[kind](path)))  # type: ignore[return-value]


class _Unpacked(io.RawIOBase):
    """What comes out of a compressed file, no more than is allowed."""

    def __init__(self, path: Path, stream: Any):
        self._path = path
        self._stream = stream
        self._allowed = unpacked_limit(os.path.getsize(path))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read1(len(buffer))  # what comes before damage is still given
        self._hold(self._stream.tell())
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place, which is looked at before anything up to it is unpacked."""
        if whence == os.SEEK_CUR:
            offset += self._stream.tell()
        elif whence != os.SEEK_SET:
            raise io.UnsupportedOperation("the end of a compressed file is not known")
        self._hold(offset)
        return self._stream.seek(offset)

    def tell(self) -> int:
        return self._stream.tell()

    def close(self) -> None:
        self._stream.close()
        super().close()

    def _hold(self, place: int) -> None:
        allow(self._path, "bytes unpacked", place, self._allowed)


@contextmanager
def open_zip(where: object, stream: BinaryIO) -> Iterator[zipfile.ZipFile]:
    """A zip file whose members are not too many, do not overlap, and do not become too large.

    Raises:
        DataError: they do.
        BadZipFile: it is none.
    """
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    with zipfile.ZipFile(stream) as found:
        members = found.infolist()
        allow(where, "files in the zip", len(members), MEMBERS)
        if sum(member.compress_size for member in members) > size:
            raise DataError(f"{where}: files in the zip lie over one another")
        allow(
            where,
            "bytes unpacked",
            sum(member.file_size for member in members),
            unpacked_limit(size),
        )
        yield found


def check_npy(stream: BinaryIO, size: int) -> int:
    """Elements of an .npy file, by its header, which must ask for as many bytes as the file has.

    Args:
        stream: at the file's start.
        size: of the file.

    Raises:
        ValueError: no such file, another size, objects, or types without a size.
    """
    head = io.BytesIO(stream.read(1 << 16))
    try:
        shape, _, kind = _NPY_HEADERS[npy.read_magic(head)](head)
    except Exception as error:  # the header is text of a Python literal, wrong in any way there is
        raise ValueError(f"no readable array: {error}") from None
    description = f"shape {str(shape)[:100]} and type {str(kind)[:100]}"
    if kind.hasobject or not kind.itemsize or min(shape, default=0) < 0:
        raise ValueError(f"{description}: only arrays of numbers and texts are read")
    count = math.prod(shape)
    wanted = head.tell() + count * kind.itemsize
    if wanted != size:
        raise ValueError(f"{description} need {wanted:,} bytes, the file has {size:,}")
    return count


def check_safetensors(where: object, content: bytes) -> None:
    """Refuse a safetensors file with a header that no model has; the library checks the places of
    its tensors.

    Raises:
        DataError: it has one.
    """
    allow(where, "bytes of the header", int.from_bytes(content[:8], "little"), HEADER)


def check_pickle(where: object, stream: BinaryIO) -> set[str]:
    """Go through the steps of a pickle without building anything, up to its end.

    A tuple is hashed and shown by functions of C that follow what it holds without an end. So
    nothing may be nested deeply, and nothing may be many times as large written out as in the file.

    Returns:
        what it names, `module name`.

    Raises:
        DataError: too many steps, too deep, or too large when written out.
        ValueError: damaged.
    """
    names = set[str]()
    stack = list[Any]()
    memo = dict[Any, Any]()
    try:
        for count, (step, argument, _) in enumerate(pickletools.genops(stream), 1):
            allow(where, "steps of the pickle", count, VALUES)
            if step.name == "GLOBAL":
                names.add(str(argument))
            if found := _pickle_step(step, argument, stack, memo):
                allow(where, "lists and tuples in one another", found[0], DEPTH)
                allow(where, "values", found[1], VALUES)
    except DataError:
        raise
    except Exception as error:  # a damaged pickle fails in any way there is
        raise ValueError(f"{type(error).__name__}: {error}") from error
    return names


def _pickle_step(
    step: Any, argument: Any, stack: list[Any], memo: dict[Any, Any]
) -> tuple[int, int] | None:
    """Take from the stack and put there what a step does: (depth, values) of each; None is a mark.

    Returns:
        the last thing put there.
    """
    if step.name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
        memo[len(memo) if argument is None else argument] = stack[-1]
        return None
    if step.name in ("GET", "BINGET", "LONG_BINGET"):
        stack.append(memo[argument])
        return None
    taken = list[tuple[int, int]]()
    wanted = [kind.name for kind in step.stack_before]
    if "mark" in wanted:
        while (top := stack.pop()) is not None:
            taken.append(top)
        wanted = wanted[: wanted.index("mark")]
    fixed = [stack.pop() for _ in wanted]
    if not step.stack_after:
        return None
    if step.stack_after[0].name == "mark":
        stack.append(None)
        return None
    # What is put into a list again and again makes it no deeper.
    adds = step.name.startswith(("APPEND", "SETITEM", "ADDITEM"))
    depth, values = fixed.pop() if adds else (0, 1)
    for inner_depth, inner_values in [*taken, *fixed]:
        depth = max(depth, 1 + inner_depth)
        values += inner_values
    stack.extend([(depth, values)] * len(step.stack_after))
    return depth, values
