"""Splits of data sets, opened and read whole, TEST too."""

from __future__ import annotations

import numpy as np

from subquad.data import ArrayBatch, Dataset, Split, TestKey

KEY = TestKey("run", "a test of data sets")


def opened(dataset: Dataset, name: str) -> Split:
    """A split by its name."""
    return dataset.split(name, KEY if name == "test" else None)  # type: ignore[arg-type]


def everything(split: Split) -> ArrayBatch:
    """All its samples as one batch, in their order."""
    return split.fetch(np.arange(len(split)), epoch=0, seed=0)


def batch(dataset: Dataset, name: str) -> ArrayBatch:
    """All samples of a split by its name."""
    return everything(opened(dataset, name))
