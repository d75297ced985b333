"""Data sets that are drawn, not read: every split is a pure function of the parameters.

Letters: N sequences, L positions.
"""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path

import numpy as np

from subquad.data import ArrayBatch, ArraySplit, Dataset, Split, SplitName
from subquad.plugin import Config, param
from subquad_datasets.guesses import majority

TRAIN_STREAM, TEST_STREAM = 0, 1


class GeneratedConfig(Config):
    """The parameters that every generated data set has."""

    train_size: int = param(4096, meaning="sequences to train on", ge=1, le=10_000_000)
    validation_size: int = param(512, meaning="further sequences of TRAIN for validation", ge=1, le=10_000_000)
    test_size: int = param(
        1024, meaning="sequences of the sealed test split, from a stream of their own", ge=1, le=10_000_000
    )
    seed: int = param(0, meaning="of the data; independent of the training seed", ge=0, lt=2**32)


class Generated(Dataset):
    """Splits of drawn sequences: TRAIN and its validation part are one stream, TEST is another.

    Args:
        config: the parameters.
        root: not used, nothing is kept.
    """

    def __init__(self, config: GeneratedConfig, root: Path):
        super().__init__(config, root)
        self.counts = config

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

    def oracles(self, split: Split) -> dict[str, float]:
        """`majority`: always the commonest class."""
        return majority(self.load("trainval"), split)


def random_stream(seed: int, number: int) -> np.random.Generator:
    """One of many independent streams of a seed: the same numbers on every machine."""
    return np.random.Generator(np.random.Philox(key=np.array([seed, number], dtype=np.uint64)))
