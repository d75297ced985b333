"""Sequences of independent tokens, labelled with one of them.

Token ids, 0 being padding (of which there is none): 1 + value. Letters: N sequences, L positions.
"""

from __future__ import annotations

import numpy as np

from subquad.data import ArrayBatch, DataSpec
from subquad_datasets.copy import Config
from subquad_datasets.generated import Generated, random_stream


class Copy(Generated):
    """The copy task."""

    config: Config

    def describe(self) -> DataSpec:
        config = self.config
        return self.spec(config.length, 1 + config.num_values, config.num_values)

    def sequences(self, stream: int, count: int) -> ArrayBatch:
        """`inputs` and `keep` (N, L), all real, `labels` (N,)."""
        config = self.config
        values = random_stream(config.seed, stream).integers(
            config.num_values, size=(count, config.length)
        )
        keep = np.ones(values.shape, dtype=bool)
        return {"inputs": 1 + values, "keep": keep, "labels": values[:, config.position].copy()}
