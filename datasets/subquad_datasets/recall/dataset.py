"""Sequences of pair tokens followed by one query token, generated from counter-based random streams.

Token ids, 0 being padding (of which there is none): 1 + key * V + value for a pair, 1 + K V + key for a query.
Letters: N sequences, P pairs, K keys, V values.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from subquad.data import ArrayBatch, ArraySplit, Dataset, DataSpec, SplitName
from subquad_datasets.recall import Config

TRAIN_STREAM, TEST_STREAM = 0, 1


class Recall(Dataset):
    """The recall task; every split is a pure function of the parameters.

    Args:
        config: see `Config`.
        root: not used, nothing is kept.
    """

    def __init__(self, config: Config, root: Path):
        super().__init__(config, root)
        self.recall = config

    def describe(self) -> DataSpec:
        config = self.recall
        return DataSpec(
            modality="tokens",
            max_len=config.num_pairs + 1,
            vocab_size=1 + config.num_keys * config.num_values + config.num_keys,
            num_classes=config.num_values,
            class_names=tuple(str(value) for value in range(config.num_values)),
            sizes={
                "train": config.train_size,
                "validation": config.validation_size,
                "trainval": config.train_size + config.validation_size,
            },
            notes=(f"synthetic control task, chance is {1 / config.num_values:.4g}",),
        )

    def load(self, name: SplitName) -> ArraySplit:
        config = self.recall
        if name == "test":
            return ArraySplit(sequences(config, TEST_STREAM, config.test_size))
        both = sequences(config, TRAIN_STREAM, config.train_size + config.validation_size)
        rows = {
            "train": slice(config.train_size),
            "validation": slice(config.train_size, None),
            "trainval": slice(None),
        }[name]
        return ArraySplit({key: values[rows] for key, values in both.items()})


def sequences(config: Config, stream: int, count: int) -> ArrayBatch:
    """`inputs` (N, P + 1) int64, `keep` (N, P + 1) bool, all True, and `labels` (N,) int64.

    Keys, values and queries are drawn from streams of their own, so that a larger `count` only appends rows.
    """
    of_keys, of_values, of_queries = (random_stream(config.seed, 3 * stream + part) for part in range(3))
    keys = distinct_keys(of_keys, count, config.num_pairs, config.num_keys)
    values = of_values.integers(config.num_values, size=keys.shape)
    asked = of_queries.integers(config.num_pairs, size=count)
    rows = np.arange(count)
    pairs = 1 + keys * config.num_values + values
    queries = 1 + config.num_keys * config.num_values + keys[rows, asked]
    inputs = np.concatenate([pairs, queries[:, None]], axis=1)
    return {"inputs": inputs, "keep": np.ones(inputs.shape, dtype=bool), "labels": values[rows, asked]}


def random_stream(seed: int, number: int) -> np.random.Generator:
    """One of many independent streams of a seed: the same numbers on every machine."""
    return np.random.Generator(np.random.Philox(key=np.array([seed, number], dtype=np.uint64)))


def distinct_keys(random: np.random.Generator, count: int, num_pairs: int, num_keys: int) -> np.ndarray:
    """(N, P) int64: in each row P of the K keys, in random order."""
    keys = np.empty((count, num_pairs), dtype=np.int64)
    for row in range(count):
        keys[row] = random.choice(num_keys, num_pairs, replace=False, shuffle=True)
    return keys
