"""Folders of pictures: classes, splits, copies, files of users, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import encoded, pixels, write_folder
from PIL import Image
from splits import KEY, opened

from subquad.data import NO_LABEL
from subquad.errors import DataError
from subquad_datasets.image_folder import PLUGIN, Config

DATASET = ("image-folder", {"size": 8, "validation_fraction": 0.2})


@pytest.fixture
def data(tmp_path) -> Path:
    folder = tmp_path / "pets"
    write_folder(folder / "train", {"dog": 10, "cat": 6})
    write_folder(folder / "test", {"dog": 3, "cat": 2}, seed=1)
    return folder


def names(dataset, name: str) -> list[str]:
    split: Any = opened(dataset, name)
    return ["/".join(Path(split.name(row)).parts[-3:]) for row in range(len(split))]


def test_classes_are_sorted_and_parts_hold_each_in_proportion(make):
    dataset = make()
    spec = dataset.describe()
    assert (spec.class_names, spec.num_classes, spec.target) == (("cat", "dog"), 2, "class")
    assert spec.sizes == {"train": 13, "validation": 3, "trainval": 16}
    assert spec.lengths == {"channels": 3, "height": 8, "width": 8}
    assert names(dataset, "test") == [f"test/cat/00{n}.png" for n in range(2)] + [
        f"test/dog/00{n}.png" for n in range(3)
    ]
    validation = names(dataset, "validation")
    assert [part.split("/")[1] for part in validation] == ["cat", "dog", "dog"]


def test_only_training_parts_are_random(make):
    dataset = make(mixup=1.0)
    for name, changes in (("train", True), ("trainval", True), ("validation", False)):
        split = dataset.split(name)
        first, second = (
            split.fetch(np.arange(2), epoch=epoch, seed=0)["inputs"] for epoch in (0, 1)
        )
        assert np.array_equal(first, second) != changes
        assert split.together == 1 + changes


def test_a_folder_validation_is_the_validation_part(make, data):
    write_folder(data / "validation", {"cat": 2, "dog": 1}, seed=2)
    dataset = make(validation_fraction=0.1)
    assert dataset.describe().sizes == {"train": 16, "validation": 3, "trainval": 19}
    assert {name.split("/")[0] for name in names(dataset, "validation")} == {"validation"}
    assert {name.split("/")[0] for name in names(dataset, "train")} == {"train"}


def test_one_folder_is_cut_by_class_and_says_so(make, data):
    dataset = make(path=str(data / "train"), test_fraction=0.25, split_seed=3)
    assert len(names(dataset, "test")) == 4
    assert not set(names(dataset, "test")) & set(names(dataset, "trainval"))
    assert dataset.describe().notes == (
        "TEST is a part of the pictures (4 of 16), drawn with seed 3",
    )
    assert names(make(path=str(data / "train"), test_fraction=0.25, split_seed=4), "test") != names(
        dataset, "test"
    )


def test_unreadable_pictures_are_bad_and_named(make, data):
    (data / "train/cat/000.png").write_bytes(encoded(1)[:100])
    split = make().split("trainval")
    batch = split.fetch(np.arange(3), epoch=0, seed=0)
    assert batch["bad"].tolist() == [True, False, False]
    assert batch["labels"].tolist() == [NO_LABEL, 0, 0]
    assert split.name(0).endswith("train/cat/000.png")
    assert split.name(len(split)) == split.name(0)  # a repeated copy


def test_a_picture_that_went_away_is_bad(make, data):
    split = make().split("trainval")
    (data / "train/cat/001.png").unlink()
    assert split.fetch(np.arange(3), epoch=0, seed=0)["bad"].tolist() == [False, True, False]


def test_guesses_and_label(make):
    dataset = make()
    assert dataset.reference_scores(dataset.split("test", KEY)) == {"majority": 0.6}
    assert PLUGIN.label(Config(path="/data/pets")) == "pets"


def test_files_of_a_user(make, data, tmp_path):
    dataset = make()
    sample = dataset.open_file(data / "test/dog/000.png", labelled=False)
    assert (len(sample), sample.fetch(np.arange(1), epoch=0, seed=0)["labels"].tolist()) == (
        1,
        [NO_LABEL],
    )
    assert len(dataset.open_file(data / "test/dog", labelled=False)) == 3
    labelled = dataset.open_file(data / "test", labelled=True)
    assert labelled.labels.tolist() == [0, 0, 1, 1, 1]
    wrong = tmp_path / "wrong.png"
    wrong.write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"wrong\.png: no JPEG, PNG, GIF or WebP"):
        dataset.open_file(wrong, labelled=False).fetch(np.arange(1), epoch=0, seed=0)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty: no pictures \(\.png"):
        dataset.open_file(tmp_path / "empty", labelled=False)


def test_max_pixels_is_a_limit(make):
    assert (
        make(max_pixels=pixels(0).size // 3 - 1)
        .split("trainval")
        .fetch(np.arange(1), epoch=0, seed=0)["bad"][0]
    )


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda data: (data / "test").rename(data.parent / "elsewhere"),
            r"pets/test: no such folder, and every .* tests on it: add it, or give "
            r".*test_fraction=0.2",
        ),
        (
            lambda data: (data / "train").rename(data.parent / "elsewhere"),
            r"dataset.params.path: .*pets has a folder test, but none train",
        ),
        (
            lambda data: (data / "train/bird").mkdir(),
            r"train/bird: no pictures \(\.png, \.jpg, .*\.webp\) of this class",
        ),
        (
            lambda data: (data / "test/cat").rename(data / "test/cats"),
            r"test/cats: no class of TRAIN; did you mean 'cat'\?; TRAIN has cat, dog",
        ),
    ],
)
def test_a_folder_that_is_refused(make, data, spoil, message: str):
    spoil(data)
    with pytest.raises(DataError, match=message):
        make().prepare()


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("", r"test_fraction: got 0.5, but there is .*pets/test; leave it null"),
        ("nowhere", r"pets/nowhere is not a folder"),
        ("train/cat", r"train/cat: no folders of classes"),
    ],
)
def test_a_place_to_cut_from_that_is_refused(make, data, place: str, message: str):
    with pytest.raises(DataError, match=message):
        make(path=str(data / place), test_fraction=0.5).prepare()


@pytest.mark.parametrize("place", ["train/cat/gone.PNG", "train/bird", "test/dog/gone.jpg"])
def test_a_link_that_leads_nowhere_is_refused_by_name(make, data, place: str):
    (data / place).symlink_to(data / "nowhere")
    with pytest.raises(DataError, match=rf"{place}: is a link that leads nowhere"):
        make().prepare()


def test_folders_whose_names_look_alike_are_refused(make, data):
    write_folder(data / "train", {"Cat": 2}, seed=2)
    with pytest.raises(DataError, match=r"train/cat: looks like the class Cat"):
        make().describe()


def test_gif_and_webp_are_pictures(make, data, tmp_path):
    picture = Image.fromarray(pixels(99))
    picture.save(data / "train/cat/new.GIF", "GIF")
    picture.save(data / "test/dog/new.webp", lossless=True)
    dataset = make()
    assert "train/cat/new.GIF" in names(dataset, "trainval")
    assert "test/dog/new.webp" in names(dataset, "test")
    assert dataset.files_read() == (
        "pictures that cannot be read: 0 of 17",
        "other files in train, not read: 0",
    )
    found = dataset.open_file(data / "test/dog", labelled=False)
    assert len(found) == 4
    assert np.array_equal(found.picture(3), pixels(99))


def test_what_is_not_read_is_told(make, data):
    (data / "train/cat/000.png").write_bytes(b"no picture")
    (data / "train/cat/notes.bmp").write_bytes(b"BM")
    (data / "train/.hidden").mkdir()
    dataset = make()
    assert dataset.files_read() == (
        f"pictures that cannot be read: 1 of 16 ({data}/train/cat/000.png)",
        "other files in train, not read: 2 (.hidden, cat/notes.bmp)",
    )
    assert dataset.load("trainval").unreadable().tolist() == [0]
    parts = [dataset.load(name) for name in ("train", "validation")]
    assert sum(len(part.unreadable()) for part in parts) == 1
