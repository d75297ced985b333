"""Data sets by name, and their splits, opened and read whole, TEST too."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from subquad.data import ArrayBatch, Dataset, Split, TestKey
from subquad.registry import build_class, resolve

KEY = TestKey("run", "a test of data sets")
REAL_DATA = Path(os.environ.get("SUBQUAD_REAL_DATA", "nowhere"))


def of_real_data(test: Callable[..., Any]) -> Callable[..., Any]:
    """A test by hand, where there are real data."""
    there = pytest.mark.skipif(
        "SUBQUAD_REAL_DATA" not in os.environ,
        reason="SUBQUAD_REAL_DATA is not set: the folder with real data",
    )
    return pytest.mark.extended(there(test))


def dataset_of(name: str, root: Path, **params: Any) -> Any:
    """A built-in data set, which keeps in `root` what it prepares."""
    found = resolve("dataset", f"subquad:{name}")
    return build_class(found)(found.plugin.config.model_validate(params), root)


def opened(dataset: Dataset, name: str) -> Split:
    """A split by its name."""
    return dataset.split(name, KEY if name == "test" else None)  # type: ignore[arg-type]


def everything(split: Split) -> ArrayBatch:
    """All its samples as one batch, in their order."""
    return split.fetch(np.arange(len(split)), epoch=0, seed=0)


def batch(dataset: Dataset, name: str) -> ArrayBatch:
    """All samples of a split by its name."""
    return everything(opened(dataset, name))


def bytes_of(found: ArrayBatch, side: str = "") -> list[bytes]:
    """The texts of tokens that are bytes and one."""
    rows = zip(found[f"inputs{side}"], found[f"keep{side}"], strict=True)
    return [(row[keep] - 1).astype(np.uint8).tobytes() for row, keep in rows]


def texts_of(dataset: Dataset, found: ArrayBatch) -> list[str]:
    """The texts of tokens, as the data set tells them."""
    text: Any = dataset.describe().text
    rows = zip(found["inputs"], found["keep"], strict=True)
    return [text(row[keep].tolist()) for row, keep in rows]
