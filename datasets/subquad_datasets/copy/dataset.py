"""Sequences of independent tokens, labelled with one of them.

Token ids, 0 being padding (of which there is none): 1 + value. Letters: N sequences, L positions.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from subquad.data import ArrayBatch, DataSpec
from subquad_datasets.copy import Config
from subquad_datasets.generated import Generated, random_stream


class Copy(Generated):
    """The copy task.

    Args:
        config: see `Config`.
        root: not used, nothing is kept.
    """

    def __init__(self, config: Config, root: Path):
        super().__init__(config, root)
        self.copy = config

    def describe(self) -> DataSpec:
        config = self.copy
        return DataSpec.tokens(
            max_len=config.length,
            vocab_size=1 + config.num_values,
            num_classes=config.num_values,
            class_names=tuple(str(value) for value in range(config.num_values)),
            sizes=self.sizes(),
            equal_length=True,
            notes=(f"synthetic control task, chance is {1 / config.num_values:.4g}",),
        )

    def sequences(self, stream: int, count: int) -> ArrayBatch:
        """`inputs` and `keep` (N, L), all real, `labels` (N,)."""
        config = self.copy
        values = random_stream(config.seed, stream).integers(config.num_values, size=(count, config.length))
        keep = np.ones(values.shape, dtype=bool)
        return {"inputs": 1 + values, "keep": keep, "labels": values[:, config.position].copy()}
