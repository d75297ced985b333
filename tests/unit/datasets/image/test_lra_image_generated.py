"""LRA Image without files: shapes, balance, streams, and what gray values alone say."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from subquad.data import TestKey
from subquad_datasets.image import LEAST_SIDE, Config
from subquad_datasets.image.dataset import Image
from subquad_datasets.image.generate import BLOCK, CLASSES, GeneratedImages, draw_block

KEY = TestKey("lra-image", "test of the data set")
GRAY, DRAWN = draw_block(0, "train", 0, 32)


def make(root: Path, **params: Any) -> Image:
    return Image(Config.model_validate({"train_size": 40, "test_size": 11, **params}), root)


def of_class(name: str) -> np.ndarray:
    return GRAY[np.flatnonzero(CLASSES.index(name) == DRAWN)]


def contrast(gray: np.ndarray) -> np.ndarray:
    """(N, S, S): how much each pixel differs from the image's background, the median gray value."""
    pixels = gray.astype(np.int64)
    return (pixels - np.median(pixels, axis=1, keepdims=True)).reshape(len(gray), 32, 32)


def test_every_ten_images_hold_every_class():
    assert (np.sort(DRAWN.reshape(-1, 10), axis=1) == np.arange(10)).all()
    assert len(CLASSES) == 10


def test_mean_gray_hardly_depends_on_the_class():
    means = np.array([of_class(name).mean() for name in CLASSES])
    assert np.ptp(means) < GRAY.mean(axis=1).std()
    assert 0.4 < (contrast(GRAY).sum(axis=(1, 2)) > 0).mean() < 0.6


def test_shapes_cover_what_they_should():
    """Area over the square of the size, from the shapes' definitions, up to a common factor and what lies outside."""
    wanted = {"disc": np.pi * 0.81, "square": 2.56, "bar": 1.2, "ring": np.pi * 0.64, "chequer": 1.62}
    areas = {name: (abs(contrast(of_class(name))) > 33).mean() for name in wanted}
    scale = areas["disc"] / wanted["disc"]
    for name, area in wanted.items():
        assert areas[name] == pytest.approx(scale * area, rel=0.2)


def test_place_and_contrast_vary():
    disc = abs(contrast(of_class("disc"))) > 33
    centres = np.array([np.argwhere(one).mean(axis=0) for one in disc])
    assert (np.ptp(centres, axis=0) > 10).all()
    assert np.ptp(disc.mean(axis=(1, 2))) > 0.1


def test_a_longer_split_only_appends_and_the_pixels_are_pinned(tmp_path: Path):
    for size in (30, BLOCK + 10):
        folder = tmp_path / str(size)
        folder.mkdir()
        facts = GeneratedImages(0, {"train": size}, 32).pack(folder, "train")
        assert facts["counts"] == [size // 10] * 10
    short, long = (np.load(tmp_path / name / "pixels.npy") for name in ("30", str(BLOCK + 10)))
    assert (long[:30] == short).all()
    assert (long[:BLOCK] == GRAY).all()
    assert (long[BLOCK:] == draw_block(0, "train", 1, 32)[0][:10]).all()
    assert hashlib.sha256(GRAY.tobytes() + DRAWN.astype("<i8").tobytes()).hexdigest()[:16] == "a2f88a556b98a5c5"


def test_seed_and_split_give_other_images():
    others = [draw_block(1, "train", 0, 32)[0], draw_block(0, "test", 0, 32)[0]]
    assert all((other != GRAY).mean() > 0.9 for other in others)


@pytest.mark.parametrize("validation", ["stratified", "last"])
def test_the_data_set_without_a_path(tmp_path: Path, validation: str):
    dataset = make(tmp_path, validation=validation, validation_fraction=0.25)
    dataset.prepare()
    spec = dataset.describe()
    assert (spec.max_len, spec.vocab_size, spec.num_classes, spec.equal_length) == (1024, 257, 10, True)
    assert spec.sizes == {"train": 30, "validation": 10, "trainval": 40}
    assert spec.notes == ("stand-in data: generated images of ten shapes, not CIFAR-10",)
    batch = dataset.load("trainval").fetch(np.arange(40), epoch=0, seed=0)
    assert (batch["inputs"] == GRAY[:40].astype(np.int64) + 1).all()
    assert len(dataset.split("test", KEY)) == 11


def test_another_side(tmp_path: Path):
    dataset = make(tmp_path, side=LEAST_SIDE)
    assert dataset.load("train").fetch(np.arange(3), epoch=0, seed=0)["inputs"].shape == (3, LEAST_SIDE**2)
    with pytest.raises(ValidationError, match="side 15 is too small for generated shapes: use 16 or more, or a path"):
        Config(side=15)


@pytest.mark.parametrize("name", ["train_size", "test_size", "seed"])
def test_generator_settings_with_a_path_are_refused(name: str):
    with pytest.raises(ValidationError, match=f"{name} .* has no effect with path .*, or use path null"):
        Config.model_validate({"path": "x", name: 70})
