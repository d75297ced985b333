"""Associative recall as a data set: one label a sequence, that of the query at its end. N sequences, L positions."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from subquad.data import ArrayBatch, DataSpec
from subquad_datasets.generated import Generated
from subquad_datasets.mqar import Config
from subquad_datasets.mqar.draw import FIRST_KEY, draw


class Mqar(Generated):
    """Associative recall, classified at the last query.

    Args:
        config: see `Config`.
        root: not used, nothing is kept.
    """

    def __init__(self, config: Config, root: Path):
        super().__init__(config, root)
        self.mqar = config

    def describe(self) -> DataSpec:
        config = self.mqar
        return DataSpec(
            modality="tokens",
            max_len=config.length,
            vocab_size=FIRST_KEY + config.num_keys + config.num_values,
            num_classes=config.num_values,
            class_names=tuple(str(value) for value in range(config.num_values)),
            sizes=self.sizes(),
            equal_length=True,
            notes=(
                "synthetic control task: associative recall with one labelled query a sequence (the published task "
                f"labels several); chance is {1 / config.num_values:.4g}, "
                f"knowing the values but not their keys gives {1 / config.num_pairs:.4g}",
            ),
        )

    def sequences(self, stream: int, count: int) -> ArrayBatch:
        """`inputs` and `keep` (N, L), all real, `labels` (N,)."""
        drawn = draw(self.mqar, stream, count)
        keep = np.ones(drawn.inputs.shape, dtype=bool)
        return {"inputs": drawn.inputs, "keep": keep, "labels": drawn.targets[:, -1].copy()}
