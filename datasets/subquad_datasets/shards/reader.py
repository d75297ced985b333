"""Samples of many shards behind one number, read by their place. N samples of S shards.

Their indices are made one table, which all processes of a machine map. Of shards in an object store
each sample is read by its range; those of the first shards are kept on this machine's disk.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from subquad.errors import DataError
from subquad.record.storage import is_remote, marks_of, read_ranges
from subquad_datasets.decode import UnreadableImage
from subquad_datasets.prepared import fingerprint, prepare_once, read_manifest, sha256_of
from subquad_datasets.shards.index import files_of, index_path, read_indices, row_type

_ROWS = "rows.npy"


def open_shards(paths: Sequence[Path], root: Path, cache_gb: float = 0.0) -> Shards:
    """Shards in a given order.

    Args:
        paths: at least one.
        root: folder for prepared data.
        cache_gb: of shards in an object store, GB that are kept on this machine at most.

    Raises:
        DataError: a shard or an index is missing, not readable, damaged, or they do not belong
            together.
    """
    files = files_of(paths)
    both = [path for shard in paths for path in (shard, index_path(shard))]
    if files:
        marks: Any = [[str(path), marks_of(files.get(str(path), {}))] for path in both]
    else:
        for path in both:
            if not path.exists():  # said with what to do
                list(read_indices(paths, files))
        marks = fingerprint(both)
    key = {"set": "shards", "files": marks}
    table = prepare_once(root / "shards", key, partial(_make_table, paths, files))
    cache = None
    if files and cache_gb:
        key = {"set": "cached shards", "table": table.name, "cache_gb": cache_gb}
        sizes = read_manifest(table).facts["sizes"]
        cache = prepare_once(root / "shards", key, partial(_plan_cache, sizes, cache_gb))
    return Shards(paths, table, cache)


def _make_table(paths: Sequence[Path], files: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    indices = list(read_indices(paths, files))
    width = max(index.rows.dtype["key"].itemsize for index in indices)
    ends = list(accumulate(len(index.rows) for index in indices))
    rows = np.lib.format.open_memmap(folder / _ROWS, "w+", row_type(width), (ends[-1],))
    for index, end in zip(indices, ends, strict=True):
        rows[end - len(index.rows) : end] = index.rows
    rows.flush()
    sums = [index.sha256 for index in indices]
    return {"ends": ends, "sums": sums, "sizes": [index.size for index in indices]}


def _plan_cache(sizes: Sequence[int], cache_gb: float, folder: Path) -> Mapping[str, Any]:
    """How many shards, from the first on, have room: in `cache_gb`, and in half of what is free.

    An order that goes through all again and again would not find what was read last, so nothing
    is ever given up for something else.
    """
    room = min(cache_gb * 1e9, shutil.disk_usage(folder).free / 2)
    return {"shards": sum(end <= room for end in accumulate(sizes))}


class Shards:
    """Shards in a given order, of one machine or one object store. Pickles as its names: a loader
    process maps the table itself.

    Args:
        paths: at least one.
        table: prepared folder with the rows of all indices.
        cache: prepared folder for what is kept of a store; None: nothing.

    Attributes:
        rows: (N,) of all indices, one after the other: see `ShardIndex`.
        sums: sha256 of each shard, as its index has it.
    """

    def __init__(self, paths: Sequence[Path], table: Path, cache: Path | None):
        self.paths = tuple(paths)
        self._table = table
        self._cache = cache
        facts = read_manifest(table).facts
        self.rows = np.asarray(np.load(table / _ROWS, mmap_mode="r"))
        self.sums: list[str] = facts["sums"]
        self._ends = np.array(facts["ends"])
        self._kept = read_manifest(cache).facts["shards"] if cache else 0
        self._ahead: dict[int, bytes] = {}

    def __reduce__(self) -> Any:
        return type(self), (self.paths, self._table, self._cache)

    def __len__(self) -> int:
        return len(self.rows)

    def shard_of(self, rows: np.ndarray) -> np.ndarray:
        """The position of each sample's shard."""
        return np.searchsorted(self._ends, rows, side="right")

    def _place(self, row: int) -> tuple[int, Any]:
        """The number of a sample's shard, and what the index says of it."""
        return int(self.shard_of(np.array(row))), self.rows[row]

    def name(self, row: int) -> str:
        """Shard and key of a sample."""
        shard, place = self._place(row)
        return f"{self.paths[shard]}: {place['key'].decode(errors='backslashreplace')}"

    @contextmanager
    def ahead(self, rows: Iterable[int]) -> Iterator[None]:
        """Samples of a store that are read in the block come at once, not one after the other.

        Raises:
            DataError: the store does not give one.
        """
        if is_remote(self.paths[0]):
            self._ahead = self._from_store(dict.fromkeys(rows))
        try:
            yield
        finally:
            self._ahead = {}

    def read(self, row: int, *, verify: bool) -> bytes:
        """The picture's file.

        Args:
            verify: compare its sha256 with the index.

        Raises:
            UnreadableImage: the shard cannot be read, has become shorter, or the bytes have
                changed.
            DataError: the object store does not give it.
        """
        shard, place = self._place(row)
        if row in self._ahead:
            data = self._ahead[row]
        elif is_remote(self.paths[0]):
            data = self._from_store([row])[row]
        else:
            try:
                data = _part_of(self.paths[shard], place)
            except OSError as error:
                raise UnreadableImage(f"cannot be read: {error.strerror or error}") from error
        if len(data) != place["size"]:
            raise UnreadableImage(f"cut off: {len(data)} of {place['size']} bytes")
        if verify and not _is_whole(data, place):
            raise UnreadableImage("its bytes have changed since the index was made (sha256)")
        return data

    def _from_store(self, rows: Iterable[int]) -> dict[int, bytes]:
        found = {}
        wanted = {}
        for row in rows:
            shard, place = self._place(row)
            data = self._from_cache(shard, place)
            if data is None:
                start = int(place["offset"])
                wanted[row] = (self.paths[shard], start, start + int(place["size"]))
            else:
                found[row] = data
        for row, data in zip(wanted, read_ranges(list(wanted.values())), strict=True):
            found[row] = data
            self._keep(*self._place(row), data)
        return found

    def _from_cache(self, shard: int, place: Any) -> bytes | None:
        """The bytes of a sample that were kept: what was never written, or not whole, has another
        sha256.
        """
        if not place["size"]:
            return b""
        if shard >= self._kept:
            return None
        assert self._cache is not None
        with suppress(OSError):
            data = _part_of(self._cache / str(shard), place)
            if _is_whole(data, place):
                return data
        return None

    def _keep(self, shard: int, place: Any, data: bytes) -> None:
        """Write a sample where it lies in its shard, into a file that has nothing else of it."""
        if shard >= self._kept:
            return
        assert self._cache is not None
        with suppress(OSError):  # a full disk
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW
            descriptor = os.open(self._cache / str(shard), flags, 0o600)
            try:
                os.pwrite(descriptor, data, int(place["offset"]))
            finally:
                os.close(descriptor)

    def check_sums(self) -> None:
        """Read all shards and compare their sums.

        Raises:
            DataError: a shard has changed.
        """
        for path, wanted in zip(self.paths, self.sums, strict=True):
            if (actual := sha256_of(path)) != wanted:
                raise DataError(
                    f"{path}: has sha256 {actual}, its index says {wanted}: "
                    "it has changed; bring it here again, or use verify "
                    "always, which leaves out the pictures that changed"
                )


def _part_of(path: Path, place: Any) -> bytes:
    with open(path, "rb", buffering=0) as stream:
        stream.seek(int(place["offset"]))
        return stream.read(int(place["size"]))


def _is_whole(data: bytes, place: Any) -> bool:
    return hashlib.sha256(data).digest() == place["sha256"].tobytes()
