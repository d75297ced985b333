"""Windows over a text's tokens. B batch, C context, N windows, T tokens of the split, S stride."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from subquad.data import NO_LABEL, ArrayBatch, Split, hashed
from subquad_datasets.packed import PackedColumn
from subquad_datasets.prepared import prepared_content
from subquad_datasets.tokenizer import END_TOKEN

_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class Windows(Split):
    """Windows of C tokens, each predicted from the tokens before it in the window and the one
    before the window.

    Trained on: windows lie side by side from an offset on that is drawn for each (seed, epoch);
    less than 2 C tokens are left at the two ends. Evaluated (`stride`): every token of the split
    has its label in exactly one window; the last window is moved back to the end of the text.

    Attributes:
        column: holds the tokens, of this split and of others.
        first: place of the split's first token, and
        last: one after its last.
        context: C, at most last - first.
        stride: S, at most C; None: windows to train on.
        notes: what a reader of a number on this split needs.
    """

    column: PackedColumn
    first: int
    last: int
    context: int
    stride: int | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        size = self.last - self.first
        if self.stride is None:
            return max(1, size // self.context - 1)
        return 1 - (self.context - size) // self.stride

    def fetch(self, indices: np.ndarray, *, epoch: int, seed: int) -> ArrayBatch:
        """`inputs`, `labels` (B, C) int64 and `keep` (B, C): the split's first token follows the
        end token.
        """
        starts = self._starts(indices, epoch, seed)
        places = starts[:, None] + np.arange(-1, self.context)
        tokens = self.column.tokens.take(self.first + np.maximum(places, 0)).astype(np.int64)
        tokens[places < 0] = END_TOKEN
        inputs = tokens[:, :-1]
        labels = tokens[:, 1:].copy()
        if self.stride is not None:
            before = np.where(indices > 0, self._starts(indices - 1, epoch, seed) + self.context, 0)
            labels[places[:, 1:] < before[:, None]] = NO_LABEL
        return {"inputs": inputs, "keep": np.ones(inputs.shape, dtype=bool), "labels": labels}

    def lengths(self) -> np.ndarray:
        return np.full(len(self), self.context)

    def digests(self) -> np.ndarray:
        """(N,) uint64, of windows from the split's first token on, so that a file that stands
        for two splits shows.
        """
        starts = self.first + np.arange(len(self)) * (self.stride or self.context)
        return hashed(
            self.column.tokens[start : start + self.context].tobytes() for start in starts
        )

    def content(self) -> str:
        return prepared_content(self.column.folder, np.array([self.first, self.last]))

    def tokens(self) -> Iterator[np.ndarray]:
        """All tokens of the split, some millions at a time."""
        for start in range(self.first, self.last, _AT_ONCE):
            yield self.column.tokens[start : min(start + _AT_ONCE, self.last)]

    def _starts(self, indices: np.ndarray, epoch: int, seed: int) -> np.ndarray:
        """(B,) int64: a window's place in the split."""
        size = self.last - self.first
        if self.stride is not None:
            return np.minimum(indices * self.stride, size - self.context)
        left = size - len(self) * self.context
        return indices * self.context + _draw(seed, epoch, left + 1)


def _draw(seed: int, epoch: int, count: int) -> int:
    """One of 0 .. count - 1; words of Philox far from those that order the epoch's samples."""
    key = np.array([seed, epoch], dtype=np.uint64)
    far = np.array([0, 0, 0, 1], dtype=np.uint64)
    return int(np.random.Philox(key=key, counter=far).random_raw()) % count


def token_counts(split: Windows, vocab_size: int) -> np.ndarray:
    """(V,) int64: how often each token is in a split."""
    counts = np.zeros(vocab_size, dtype=np.int64)
    for tokens in split.tokens():
        counts += np.bincount(tokens, minlength=vocab_size)
    return counts
