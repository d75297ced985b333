"""LRA Image without files: shapes, balance, streams, and what gray values alone say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError
from splits import dataset_of

from subquad_datasets.image import LEAST_SIDE, Config
from subquad_datasets.image.generate import CLASSES, draw_block

GRAY, DRAWN = draw_block(0, "train", 0, 32)


def of_class(name: str) -> np.ndarray:
    return GRAY[np.flatnonzero(CLASSES.index(name) == DRAWN)]


def contrast(gray: np.ndarray) -> np.ndarray:
    """(N, S, S): how much each pixel differs from the image's background, the median gray value."""
    pixels = gray.astype(np.int64)
    return (pixels - np.median(pixels, axis=1, keepdims=True)).reshape(len(gray), 32, 32)


def test_shapes_cover_what_they_should():
    """Area over the square of the size, from the shapes' definitions, up to a common factor and
    what lies outside.
    """
    wanted = {
        "disc": np.pi * 0.81,
        "square": 2.56,
        "bar": 1.2,
        "ring": np.pi * 0.64,
        "chequer": 1.62,
    }
    areas = {name: (abs(contrast(of_class(name))) > 33).mean() for name in wanted}
    scale = areas["disc"] / wanted["disc"]
    for name, area in wanted.items():
        assert areas[name] == pytest.approx(scale * area, rel=0.2)


def test_another_side(tmp_path: Path):
    dataset = dataset_of("lra-image", tmp_path, train_size=40, test_size=11, side=LEAST_SIDE)
    assert dataset.load("train").fetch(np.arange(3), epoch=0, seed=0)["inputs"].shape == (
        3,
        LEAST_SIDE**2,
    )
    with pytest.raises(
        ValidationError,
        match="side 15 is too small for generated shapes: use 16 or more, or a path",
    ):
        Config(side=15)
