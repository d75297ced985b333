"""Data sets that are drawn, not read: every split is a pure function of the parameters.

Letters: N sequences, L positions.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property

import numpy as np

from subquad.data import ArrayBatch, ArraySplit, Dataset, DataSpec, Split, SplitName
from subquad.plugin import Config, param
from subquad.security.limits import allow_memory
from subquad_datasets.guesses import majority

_TOKEN_BYTES = 48
"""That drawing takes at a time: five arrays of int64 and one of bool."""

TRAIN_STREAM = 0
TEST_STREAM = 1


class GeneratedConfig(Config):
    """The parameters that every generated data set has."""

    train_size: int = param(4096, meaning="sequences to train on", ge=1, le=10_000_000)
    validation_size: int = param(
        512, meaning="further sequences of TRAIN for validation", ge=1, le=10_000_000
    )
    test_size: int = param(
        1024,
        meaning="sequences of the sealed test split, from a stream of their own",
        ge=1,
        le=10_000_000,
    )
    seed: int = param(
        0, meaning="seed of the data; independent of the training seed", ge=0, lt=2**32
    )


class Generated(Dataset):
    """Splits of drawn sequences: TRAIN and its validation part are one stream, TEST is another.

    Nothing is kept on disk.
    """

    @property
    def counts(self) -> GeneratedConfig:
        """The parameters that say how many sequences there are."""
        assert isinstance(self.config, GeneratedConfig)
        return self.config

    @abstractmethod
    def sequences(self, stream: int, count: int) -> ArrayBatch:
        """`inputs` (N, L) int64, `keep` (N, L) bool and `labels` (N,) int64; a larger `count`
        only appends rows.
        """

    def spec(
        self, length: int, vocab_size: int, num_values: int, target: str = "class"
    ) -> DataSpec:
        """What a task with sequences of one length, and the values 0 .. num_values - 1 as
        classes, is described by.
        """
        train = self.counts.train_size
        validation = self.counts.validation_size
        return DataSpec.tokens(
            length,
            vocab_size,
            target=target,
            num_classes=num_values,
            class_names=tuple(str(value) for value in range(num_values)),
            sizes={"train": train, "validation": validation, "trainval": train + validation},
            equal_length=True,
            notes=(f"synthetic control task, chance is {1 / num_values:.4g}",),
        )

    def load(self, name: SplitName) -> ArraySplit:
        train = self.counts.train_size
        rows = {"train": slice(train), "validation": slice(train, None)}.get(name, slice(None))
        drawn = self._test if name == "test" else self._both
        return ArraySplit({key: values[rows] for key, values in drawn.items()})

    @cached_property
    def _both(self) -> ArrayBatch:
        counts = self.counts
        return self._drawn(TRAIN_STREAM, counts.train_size + counts.validation_size)

    @cached_property
    def _test(self) -> ArrayBatch:
        return self._drawn(TEST_STREAM, self.counts.test_size)

    def _drawn(self, stream: int, count: int) -> ArrayBatch:
        length = self.describe().lengths["length"]
        allow_memory(
            f"{type(self).__name__}: {count:,} sequences of {length:,} tokens",
            _TOKEN_BYTES * count * length,
        )
        return self.sequences(stream, count)

    def prepared_test(self) -> ArraySplit:
        return self.load("test")

    def reference_scores(self, split: Split) -> dict[str, float]:
        """`majority`: always the commonest class."""
        return majority(self.load("trainval"), split)


def random_stream(seed: int, number: int) -> np.random.Generator:
    """One of many independent streams of a seed: the same numbers on every machine."""
    return np.random.Generator(np.random.Philox(key=np.array([seed, number], dtype=np.uint64)))
