"""Associative recall as a data set: a label for every query, or one a sequence. N sequences, L
positions.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from subquad.data import NO_LABEL, ArrayBatch, DataSpec, Split
from subquad_datasets.generated import Generated
from subquad_datasets.guesses import labels_of
from subquad_datasets.mqar import Config
from subquad_datasets.mqar.draw import FIRST_KEY, draw


class Mqar(Generated):
    """Associative recall, every query classified at its position, or the sequence at its last
    one.
    """

    config: Config

    def describe(self) -> DataSpec:
        config = self.config
        target = "positions" if config.labels == "every" else "class"
        vocabulary = FIRST_KEY + config.num_keys + config.num_values
        return replace(
            self.spec(config.length, vocabulary, config.num_values, target), notes=(_note(config),)
        )

    def sequences(self, stream: int, count: int) -> ArrayBatch:
        """`inputs` and `keep` (N, L), all real, `labels` (N, L) or (N,)."""
        drawn = draw(self.config, stream, count)
        keep = np.ones(drawn.inputs.shape, dtype=bool)
        if self.config.labels == "every":
            labels = drawn.targets
        else:
            labels = drawn.targets[:, -1].copy()
        return {"inputs": drawn.inputs, "keep": keep, "labels": labels}

    def reference_scores(self, split: Split) -> dict[str, float]:
        """`majority`: always the commonest class, at every label."""
        known, answers = (
            labels[labels != NO_LABEL]
            for labels in (labels_of(self.load("trainval")), labels_of(split))
        )
        return {"majority": float(np.mean(answers == np.bincount(known).argmax()))}


def _note(config: Config) -> str:
    what = "every query labelled" if config.labels == "every" else "one labelled query a sequence"
    return (
        f"synthetic control task: associative recall, {what}; chance is "
        f"{1 / config.num_values:.4g}, "
        f"knowing the values but not their keys gives {1 / config.num_pairs:.4g}"
    )
