"""Pairs of texts that are each kept once, memory-mapped. n pairs, B batch, L padded length."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from subquad.data import ArrayBatch, Split, hashed
from subquad.errors import DataError
from subquad_datasets.packed import PackedColumn
from subquad_datasets.prepared import prepared_content


@dataclass(frozen=True)
class PairSplit(Split):
    """Pairs of texts of one column; a text that stands in many pairs is stored once.

    Attributes:
        texts: the column.
        pairs: (n, 2) int64 rows of it.
        labels: (n,) int64.
        max_len: L.
    """

    texts: PackedColumn
    pairs: np.ndarray
    labels: np.ndarray
    max_len: int

    def __len__(self) -> int:
        return len(self.labels)

    def fetch(self, indices: np.ndarray, *, epoch: int, seed: int) -> ArrayBatch:
        """`inputs`, `inputs_b` (B, L) int64, `keep`, `keep_b` (B, L) bool, `labels` (B,) int64."""
        first, second = self.pairs[indices].T
        inputs, keep = self.texts.gather(first, self.max_len, shift=1)
        inputs_b, keep_b = self.texts.gather(second, self.max_len, shift=1)
        labels = self.labels[indices]
        return {
            "inputs": inputs,
            "keep": keep,
            "inputs_b": inputs_b,
            "keep_b": keep_b,
            "labels": labels,
        }

    def lengths(self) -> np.ndarray:
        return np.minimum(self.texts.lengths()[self.pairs].max(axis=1), self.max_len)

    def digests(self) -> np.ndarray:
        """(n,) uint64, of whole texts before anything is cut."""
        return hashed(self.texts.digests()[self.pairs])

    def content(self) -> str:
        return prepared_content(self.texts.folder, self.pairs)

    def clipped(self, cut: int) -> int:
        """How many of the pairs have a text of more than `cut` tokens, as far as texts were
        stored.
        """
        return int((self.texts.lengths() > cut)[self.pairs].any(axis=1).sum())


def write_pairs(folder: Path, name: str, pairs: np.ndarray, labels: np.ndarray) -> None:
    """Keep pairs and labels beside their texts."""
    np.save(folder / f"{name}.pairs.npy", np.asarray(pairs, dtype=np.int64).reshape(-1, 2))
    np.save(folder / f"{name}.labels.npy", np.asarray(labels, dtype=np.int64))


def open_pairs(folder: Path, names: tuple[str, ...], max_len: int) -> PairSplit:
    """The pairs of these names, one after the other, over the column `texts`.

    Raises:
        DataError: a file is missing or damaged.
    """
    try:
        pairs = np.concatenate(
            [np.load(folder / f"{name}.pairs.npy", allow_pickle=False) for name in names]
        )
        labels = np.concatenate(
            [np.load(folder / f"{name}.labels.npy", allow_pickle=False) for name in names]
        )
    except (OSError, ValueError, EOFError) as error:
        raise DataError(
            f"{folder}: missing or damaged ({error}); prepare the data again"
        ) from error
    return PairSplit(PackedColumn(folder, "texts"), pairs, labels, max_len)
