"""Gray images as token sequences, memory-mapped. N images of the file, n of the split, B batch,
L = side * side.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from subquad.data import ArrayBatch, Split, hashed
from subquad.errors import DataError
from subquad_datasets.prepared import prepared_content

PIXELS = "pixels.npy"
LABELS = "labels.npy"


@dataclass(frozen=True)
class PixelSplit(Split):
    """Images of a prepared folder. Pickles as its place: a loader process maps the file itself.

    Attributes:
        folder: holds `pixels.npy` (N, L) uint8 and `labels.npy` (N,) int64.
        shifted: token = value + 1 and nothing is padding; else token = value and 0 is padding.
        rows: (n,) int64, the images of this split; None: all.
        notes: what a reader of a number on this split needs.
    """

    folder: Path
    shifted: bool
    rows: np.ndarray | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)

    def __reduce__(self) -> Any:
        return type(self), (self.folder, self.shifted, self.rows, self.notes)

    @cached_property
    def labels(self) -> np.ndarray:
        """(n,) int64."""
        labels = np.asarray(_open(self.folder / LABELS))
        if self.rows is None:
            return labels
        return labels[self.rows]

    def fetch(self, indices: np.ndarray, *, epoch: int, seed: int) -> ArrayBatch:
        """`inputs` (B, L) int64, `keep` (B, L) bool, `labels` (B,) int64."""
        inputs = self._pixels[indices if self.rows is None else self.rows[indices]].astype(np.int64)
        inputs += self.shifted
        if self.shifted:
            keep = np.ones(inputs.shape, dtype=bool)
        else:
            keep = inputs != 0
        return {"inputs": inputs, "keep": keep, "labels": self.labels[indices]}

    def digests(self) -> np.ndarray:
        return hashed(
            self._pixels if self.rows is None else (self._pixels[row] for row in self.rows)
        )

    def content(self) -> str:
        return prepared_content(self.folder, self.rows)

    @cached_property
    def _pixels(self) -> np.ndarray:
        return _open(self.folder / PIXELS).view(np.ndarray)


def write_images(folder: Path, pixels: np.ndarray, labels: np.ndarray) -> None:
    """Keep (N, L) uint8 gray values and (N,) labels."""
    np.save(folder / PIXELS, pixels)
    write_labels(folder, labels)


def write_labels(folder: Path, labels: np.ndarray) -> None:
    """Keep (N,) labels beside pixels that are written already."""
    np.save(folder / LABELS, np.asarray(labels, dtype=np.int64))


def _open(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path}: missing or damaged ({error}); prepare the data again") from error
