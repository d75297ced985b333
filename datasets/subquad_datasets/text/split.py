"""A packed split of which only the first tokens of each sequence are read. B batch, L padded
length.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from subquad.data import ArrayBatch, Split
from subquad_datasets.guesses import labels_of


@dataclass(frozen=True)
class CutSplit(Split):
    """What `inner` gives, with everything from token `cut` on turned into padding.

    Attributes:
        inner: a split of tokens; may hold pairs.
        cut: tokens kept of a sequence.
        notes: what a reader of a number on this split needs.
    """

    inner: Split
    cut: int
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.inner)

    @property
    def labels(self) -> np.ndarray:
        """(n,) integer labels."""
        return labels_of(self.inner)

    def lengths(self) -> np.ndarray | None:
        lengths = self.inner.lengths()
        if lengths is None:
            return None
        return np.minimum(lengths, self.cut)

    def digests(self) -> np.ndarray:
        return self.inner.digests()

    def content(self) -> str:
        return self.inner.content()

    def fetch(self, indices: np.ndarray, *, epoch: int, seed: int) -> ArrayBatch:
        batch = self.inner.fetch(indices, epoch=epoch, seed=seed)
        for name in batch:
            if name.startswith(("inputs", "keep")):
                batch[name][:, self.cut :] = 0
        return batch
