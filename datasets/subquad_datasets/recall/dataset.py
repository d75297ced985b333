"""Sequences of pair tokens followed by one query token, generated from counter-based random
streams.

Token ids, 0 being padding (of which there is none): 1 + key * V + value for a pair, 1 + K V + key
for a query. Letters: N sequences, P pairs, K keys, V values.
"""

from __future__ import annotations

import numpy as np

from subquad.data import ArrayBatch, DataSpec
from subquad_datasets.generated import Generated, random_stream
from subquad_datasets.recall import Config


class Recall(Generated):
    """The recall task."""

    config: Config

    def describe(self) -> DataSpec:
        config = self.config
        vocabulary = 1 + config.num_keys * config.num_values + config.num_keys
        return self.spec(config.num_pairs + 1, vocabulary, config.num_values)

    def sequences(self, stream: int, count: int) -> ArrayBatch:
        """`inputs` and `keep` (N, P + 1), all real, `labels` (N,).

        Keys, values and queries are drawn from streams of their own, so that a larger `count` only
        appends rows.
        """
        config = self.config
        of_keys, of_values, of_queries = (
            random_stream(config.seed, 3 * stream + part) for part in range(3)
        )
        keys = distinct_keys(of_keys, count, config.num_pairs, config.num_keys)
        values = of_values.integers(config.num_values, size=keys.shape)
        queried = of_queries.integers(config.num_pairs, size=count)
        rows = np.arange(count)
        pairs = 1 + keys * config.num_values + values
        queries = 1 + config.num_keys * config.num_values + keys[rows, queried]
        inputs = np.concatenate([pairs, queries[:, None]], axis=1)
        return {
            "inputs": inputs,
            "keep": np.ones(inputs.shape, dtype=bool),
            "labels": values[rows, queried],
        }


def distinct_keys(
    random: np.random.Generator, count: int, num_pairs: int, num_keys: int
) -> np.ndarray:
    """(N, P) int64: in each row P of the K keys, in random order."""
    keys = np.empty((count, num_pairs), dtype=np.int64)
    for row in range(count):
        keys[row] = random.choice(num_keys, num_pairs, replace=False, shuffle=True)
    return keys
