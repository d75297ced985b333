"""The data set: both pixel rules, splits, the seal, and preparation that is all or nothing."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from splits import KEY, everything

from subquad.errors import DataError
from subquad_datasets.pathfinder import dataset as module
from subquad_datasets.pathfinder import worker
from subquad_datasets.pathfinder.drawing import drawing
from subquad_datasets.pathfinder.generate import draw_images
from subquad_datasets.pathfinder.pixels import PixelSplit, write_pixels

DISCS = "where the two discs stand says something about the label: see the reference disc positions"


def test_shifted_pixels_are_all_real(pathfinder):
    dataset = pathfinder()
    dataset.prepare()
    spec, rows = dataset.describe(), everything(dataset.split("train"))
    assert rows["inputs"].shape == (12, spec.max_len) == (12, 1024)
    assert [rows[key].dtype for key in ("inputs", "keep", "labels")] == [
        np.int64,
        np.bool_,
        np.int64,
    ]
    assert (rows["inputs"].min(), rows["inputs"].max()) == (1, 256)
    assert rows["keep"].all()
    assert (spec.target, spec.vocab_size, spec.num_classes, spec.equal_length) == (
        "class",
        257,
        2,
        True,
    )
    assert spec.class_names == ("apart", "connected")
    assert spec.sizes == {"train": 12, "validation": 4, "trainval": 16}
    assert spec.notes == (
        "Pathfinder 32, easy",
        "stand-in data: generated Pathfinder, not the official files",
        DISCS,
    )
    assert rows["labels"].sum() == 6


def test_official_pixels_count_black_as_padding(pathfinder):
    shifted, official = (
        everything(pathfinder(pixels=rule).split("validation")) for rule in ("shifted", "official")
    )
    assert np.array_equal(shifted["inputs"] - 1, official["inputs"])
    assert np.array_equal(official["keep"], official["inputs"] > 0)
    assert 0.1 < official["keep"].mean() < 0.5
    spec = pathfinder(pixels="official").describe()
    assert (spec.vocab_size, spec.equal_length) == (256, False)
    assert spec.notes[-1] == "black pixels count as padding, as in the published code"


def test_prepared_images_are_the_generators(pathfinder):
    rows = everything(pathfinder(seed=4).split("validation"))
    pixels, labels = draw_images(drawing(32, "easy"), 4, 1, np.arange(4))
    assert np.array_equal(rows["inputs"], pixels.astype(np.int64) + 1)
    assert np.array_equal(rows["labels"], labels)


def test_what_cannot_change_an_image_does_not_prepare_anew(pathfinder, monkeypatch):
    pathfinder().prepare()
    monkeypatch.setattr(module, "blocks", lambda *_: pytest.fail("drawn again"))
    for params in ({}, {"pixels": "official"}, {"processes": 2}):
        pathfinder(**params).prepare()


def test_an_interrupted_preparation_is_started_anew(pathfinder, monkeypatch):
    def stops(order, processes):
        yield next(worker.blocks(order, 1))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "blocks", stops)
        with pytest.raises(KeyboardInterrupt):
            pathfinder().prepare()
    assert len(pathfinder().split("train")) == 12


def test_a_process_that_dies_is_named(pathfinder, monkeypatch):
    monkeypatch.setattr(worker.sys, "executable", "false")
    monkeypatch.setitem(worker.IMAGES_IN_BLOCK, 32, 4)
    with pytest.raises(
        DataError, match="a generating process died; try again, or with processes 1"
    ):
        pathfinder(processes=2).prepare()


def test_splits_travel_by_name_and_damage_is_named(tmp_path):
    images = np.arange(24, dtype=np.uint8).reshape(6, 4)
    write_pixels(tmp_path, "x", 6, 4, [(images[:4], np.ones(4)), (images[4:], np.zeros(2))])
    split = PixelSplit(tmp_path, "x", "official", (1, 5))
    again = pickle.loads(pickle.dumps(split))  # noqa: S301  (our own bytes)
    assert len(pickle.dumps(split)) < 1000
    assert np.array_equal(everything(again)["inputs"], images[1:5])
    assert everything(again)["labels"].tolist() == [1, 1, 1, 0]
    np.save(tmp_path / "x.labels.npy", np.zeros(5))
    with pytest.raises(DataError, match="6 images, 5 labels"):
        PixelSplit(tmp_path, "x", "official")
    (tmp_path / "x.pixels.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(
        DataError, match=r"x.pixels.npy: missing or damaged .*; prepare the data again"
    ):
        PixelSplit(tmp_path, "x", "official")


def test_writing_refuses_what_does_not_fit(tmp_path):
    block = np.zeros((2, 4), np.uint8), np.zeros(2)
    with pytest.raises(ValueError, match="2 images, 3 were announced"):
        write_pixels(tmp_path, "x", 3, 4, [block])
    with pytest.raises(ValueError, match=r"a block \(2, 4\) of uint8 for 2 labels"):
        write_pixels(tmp_path, "x", 2, 5, [block])


def test_the_commonest_class_as_a_reference_score(pathfinder):
    dataset = pathfinder()
    test = dataset.split("test", KEY)
    commonest = np.bincount(everything(dataset.split("trainval"))["labels"]).argmax()
    scores = dataset.reference_scores(test)
    assert scores.pop("disc_positions") in {right / 6 for right in range(7)}
    assert scores == {"majority": np.mean(everything(test)["labels"] == commonest)}
