"""Data sets that are drawn, not read: every split is a pure function of the parameters.

Letters: N sequences, L positions.
"""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Protocol, cast

import numpy as np

from subquad.data import ArrayBatch, ArraySplit, Dataset, SplitName
from subquad.plugin import Config

TRAIN_STREAM, TEST_STREAM = 0, 1


class Sizes(Protocol):
    """The parameters that every generated data set has."""

    @property
    def train_size(self) -> int: ...
    @property
    def validation_size(self) -> int: ...
    @property
    def test_size(self) -> int: ...


class Generated(Dataset):
    """Splits of drawn sequences: TRAIN and its validation part are one stream, TEST is another.

    Args:
        config: the parameters, with `Sizes` among them.
        root: not used, nothing is kept.
    """

    def __init__(self, config: Config, root: Path):
        super().__init__(config, root)
        self.counts = cast(Sizes, config)

    @abstractmethod
    def sequences(self, stream: int, count: int) -> ArrayBatch:
        """`inputs` (N, L) int64, `keep` (N, L) bool and `labels` (N,) int64; a larger `count` only appends rows."""

    def sizes(self) -> dict[str, int]:
        """Sequences in each split but TEST."""
        train, validation = self.counts.train_size, self.counts.validation_size
        return {"train": train, "validation": validation, "trainval": train + validation}

    def load(self, name: SplitName) -> ArraySplit:
        counts = self.counts
        if name == "test":
            return ArraySplit(self.sequences(TEST_STREAM, counts.test_size))
        both = self.sequences(TRAIN_STREAM, counts.train_size + counts.validation_size)
        rows = {
            "train": slice(counts.train_size),
            "validation": slice(counts.train_size, None),
            "trainval": slice(None),
        }[name]
        return ArraySplit({key: values[rows] for key, values in both.items()})


def random_stream(seed: int, number: int) -> np.random.Generator:
    """One of many independent streams of a seed: the same numbers on every machine."""
    return np.random.Generator(np.random.Philox(key=np.array([seed, number], dtype=np.uint64)))
