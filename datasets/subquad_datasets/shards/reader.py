"""Samples of many shards behind one number, read by their place. N samples of S shards."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from subquad.errors import DataError
from subquad_datasets.decode import UnreadableImage
from subquad_datasets.prepared import sha256_of
from subquad_datasets.shards.index import read_index, row_type


class Shards:
    """Shards in a given order, by their indices. Pickles as their names: a loader process opens
    them itself.

    Args:
        paths: at least one.

    Attributes:
        rows: (N,) of all indices, one after the other: see `ShardIndex`.
        shard: (N,) int64, the position of each sample's shard.

    Raises:
        DataError: a shard or an index is missing, not readable, damaged, or they do not belong
            together.
    """

    def __init__(self, paths: Sequence[Path]):
        self.paths = tuple(paths)
        self._indices = [read_index(path) for path in self.paths]
        sizes = [len(index.rows) for index in self._indices]
        width = max(index.rows.dtype["key"].itemsize for index in self._indices)
        self.rows = np.empty(sum(sizes), row_type(width))
        self.shard = np.repeat(np.arange(len(sizes)), sizes)
        np.concatenate([index.rows for index in self._indices], out=self.rows)

    def __reduce__(self) -> Any:
        return type(self), (self.paths,)

    def __len__(self) -> int:
        return len(self.rows)

    def name(self, row: int) -> str:
        """Shard and key of a sample."""
        return (
            f"{self.paths[self.shard[row]]}: "
            f"{self.rows['key'][row].decode(errors='backslashreplace')}"
        )

    def read(self, row: int, *, verify: bool) -> bytes:
        """The picture's file.

        Args:
            verify: compare its sha256 with the index.

        Raises:
            UnreadableImage: the shard cannot be read, has become shorter, or the bytes have
                changed.
        """
        place = self.rows[row]
        try:
            with open(self.paths[self.shard[row]], "rb", buffering=0) as stream:
                stream.seek(int(place["offset"]))
                data = stream.read(int(place["size"]))
        except OSError as error:
            raise UnreadableImage(f"cannot be read: {error.strerror or error}") from error
        if len(data) != place["size"]:
            raise UnreadableImage(f"cut off: {len(data)} of {place['size']} bytes")
        if verify and hashlib.sha256(data).digest() != place["sha256"].tobytes():
            raise UnreadableImage("its bytes have changed since the index was made (sha256)")
        return data

    @property
    def sums(self) -> list[str]:
        """sha256 of each shard, as its index has it."""
        return [index.sha256 for index in self._indices]

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
