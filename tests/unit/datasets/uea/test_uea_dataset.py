"""Splits, the sealed test file, statistics, clipping and notes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from splits import KEY, REAL_DATA

from subquad.errors import DataError
from subquad_datasets.uea import UeaConfig
from subquad_datasets.uea.dataset import UeaDataset

HEADER = "@dimensions 2\n@classLabel true up down\n@data\n"


def bundled(problem: str, root: Path, **params: object) -> UeaDataset:
    return UeaDataset(UeaConfig.model_validate({"problem": problem, **params}), root)


def test_japanese_vowels(tmp_path: Path) -> None:
    dataset = bundled("JapaneseVowels", tmp_path)
    dataset.prepare()
    spec = dataset.describe()
    assert (spec.target, spec.max_len, spec.channels, spec.num_classes) == ("class", 26, 12, 9)
    assert spec.sizes == {"train": 216, "validation": 54, "trainval": 270}
    assert spec.class_names == tuple("123456789")
    assert spec.notes == ()
    batch = dataset.load("trainval").fetch(np.arange(270), epoch=0, seed=0)
    assert (batch["inputs"].dtype, batch["inputs"].shape) == (np.float32, (270, 26, 12))
    assert (batch["keep"].dtype, batch["labels"].dtype) == (np.bool_, np.int64)
    np.testing.assert_array_equal(np.bincount(batch["labels"]), [30] * 9)
    assert list(tmp_path.iterdir()) == []


def test_tiny_train_keeps_every_class_in_validation(tmp_path: Path) -> None:
    dataset = bundled("BasicMotions", tmp_path)
    assert dataset.describe().sizes == {"train": 32, "validation": 8, "trainval": 40}
    labels = dataset.load("validation").fetch(np.arange(8), epoch=0, seed=0)["labels"]
    np.testing.assert_array_equal(np.bincount(labels), [2] * 4)


def test_statistics_are_those_of_all_of_train(tmp_path: Path) -> None:
    arrays = (
        bundled("BasicMotions", tmp_path)
        .load("trainval")
        .arrays["inputs"]
        .reshape(-1, 6)
        .astype(np.float64)
    )
    np.testing.assert_allclose(arrays.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(arrays.std(axis=0, ddof=1), 1, atol=1e-6)


def test_without_normalisation_the_values_are_the_files(toy) -> None:
    arrays = toy(normalize=False).load("trainval").arrays
    np.testing.assert_array_equal(arrays["inputs"][1], [[7, 9], [8, 10], [0, 0]])
    np.testing.assert_array_equal(arrays["keep"][1], [True, True, False])


def test_longer_test_series_are_clipped_and_counted(toy) -> None:
    test = toy(normalize=False).load("test")
    np.testing.assert_array_equal(test.arrays["inputs"][0], [[2, 1], [3, 2], [4, 3]])
    assert test.notes == ("1 of 2 TEST series clipped to 3 steps",)


def test_max_len_clips_train_too_and_says_so(toy) -> None:
    dataset = toy(max_len=2)
    assert dataset.describe().max_len == 2
    assert dataset.describe().notes == ("2 of 4 TRAIN series clipped to 2 steps",)
    longer = toy(max_len=5)
    assert longer.load("test").notes == ()
    assert longer.load("trainval").arrays["keep"].sum(axis=1).tolist() == [3, 2, 3, 2]


def test_statistics_do_not_depend_on_max_len(toy) -> None:
    short, full = toy(max_len=2).load("trainval").arrays, toy().load("trainval").arrays
    np.testing.assert_array_equal(short["inputs"], full["inputs"][:, :2])


def test_train_only_folder_cannot_be_tested(write, tmp_path: Path) -> None:
    write("Heartbeat_train204/Heartbeat_TRAIN.ts", "1:2:up\n3:4:down\n" * 2, HEADER)
    dataset = bundled("Heartbeat_train204", tmp_path / "root", path=str(tmp_path))
    assert dataset.describe().notes == (
        "the files of Heartbeat_train204 are named Heartbeat",
        "no TEST file: not to be reported as Heartbeat",
    )
    assert len(dataset.load("trainval")) == 4
    with pytest.raises(
        DataError,
        match=r"Heartbeat_train204: Heartbeat_TEST\.ts is missing, and every protocol "
        r"tests on it: add the file, "
        r"or give dataset\.params\.test_fraction=0\.3 to hold back a part of TRAIN "
        r"\(stand-in data\)$",
    ):
        dataset.split("test", KEY)
    with pytest.raises(DataError, match=r"Heartbeat_TEST\.ts is missing"):
        dataset.prepare()


def test_test_file_with_other_classes(toy, write) -> None:
    dataset = toy()
    write("data/Toy/Toy_TEST.ts", "1,2:3,4:up\n", "@classLabel true up sideways\n@data\n")
    with pytest.raises(
        DataError,
        match=r"Toy_TEST\.ts: @classLabel differs .* TRAIN has \['down'\], .*\['sideways'\]$",
    ):
        dataset.load("test")


def test_test_file_with_other_channels(toy, write) -> None:
    dataset = toy()
    write("data/Toy/Toy_TEST.ts", "1,2:up\n", "@classLabel true up down\n@data\n")
    with pytest.raises(DataError, match=r"Toy_TEST\.ts: 1 channels, TRAIN has 2$"):
        dataset.load("test")


def test_class_with_one_series_works_for_the_fixed_protocol_only(toy) -> None:
    dataset = toy(train="1,2:3,4:up\n5,6:7,9:down\n8,9:1,2:up\n")
    assert dataset.describe().sizes == {"trainval": 3}
    assert len(dataset.load("trainval")) == 3
    with pytest.raises(
        DataError, match=r"class 0 has 1 training sample: too few .* use protocol: fixed"
    ):
        dataset.load("train")


def test_facts_that_a_reader_needs_are_noted(toy) -> None:
    header = "@classLabel true up down left\n@data\n"
    dataset = toy(
        train="1,?:5,5:up\n3,4:5,5:up\n0,1:5,5:down\n3,9:5,5:down\n",
        header=header,
        missing="interpolate",
    )
    assert dataset.describe().notes == (
        "no TRAIN series of class left",
        "constant in TRAIN, set to 0: channel 2",
        "1 TRAIN values interpolated",
    )
    assert dataset.describe().num_classes == 3


TOO_LARGE = "channel 2 holds values too large for float32 arithmetic; rescale them$"


@pytest.mark.parametrize(
    ("value", "normalize"), [("1e39", False), ("1e300", False), ("1e300", True), ("1.7e308", True)]
)
def test_train_values_that_overflow_are_refused(toy, value: str, normalize: bool) -> None:
    dataset = toy(train=f"1,2:3,{value}:up\n-1,5:{value},6:down\n" * 2, normalize=normalize)
    with pytest.raises(DataError, match=rf"Toy_TRAIN\.ts: {TOO_LARGE}"):
        dataset.load("trainval")


def test_large_values_that_normalisation_brings_back_are_fine(toy) -> None:
    inputs = toy(train="1,2:3,1e39:up\n-1,5:-1e39,6:down\n" * 2).load("trainval").arrays["inputs"]
    assert 0.5 < np.abs(inputs[..., 1]).max() < 2


def test_test_values_that_overflow_are_refused(toy) -> None:
    with pytest.raises(DataError, match=rf"Toy_TEST\.ts: {TOO_LARGE}"):
        toy(test="1,2:3,1e300:up\n").load("test")


SHARED = REAL_DATA / "uea"
ARCHIVE = {  # TRAIN, TEST, channels, length, classes
    "ArticularyWordRecognition": (275, 300, 9, 144, 25),
    "AtrialFibrillation": (15, 15, 2, 640, 3),
    "BasicMotions": (40, 40, 6, 100, 4),
    "ERing": (30, 270, 4, 65, 6),
    "Handwriting": (150, 850, 3, 152, 26),
    "JapaneseVowels": (270, 370, 12, 26, 9),
    "Libras": (180, 180, 2, 45, 15),
    "NATOPS": (180, 180, 24, 51, 6),
    "PenDigits": (7494, 3498, 2, 8, 10),
    "UWaveGestureLibrary": (120, 320, 3, 315, 8),
}


@pytest.mark.extended
@pytest.mark.parametrize("problem", ARCHIVE)
def test_archive_problem_from_a_folder(problem: str, tmp_path: Path) -> None:
    dataset = bundled(problem, tmp_path, path=str(SHARED))
    spec, test = dataset.describe(), dataset.load("test")
    sizes = (spec.sizes["trainval"], len(test), spec.channels, spec.max_len, spec.num_classes)
    assert sizes == ARCHIVE[problem]
    assert set(dataset.load("validation").arrays["labels"]) == set(range(spec.num_classes))
    assert np.isfinite(test.arrays["inputs"]).all()


@pytest.mark.extended
def test_heartbeat_without_its_test_file(tmp_path: Path) -> None:
    dataset = bundled("Heartbeat_train204", tmp_path, path=str(SHARED))
    spec = dataset.describe()
    assert (spec.channels, spec.max_len, spec.class_names) == (61, 405, ("abnormal", "normal"))
    np.testing.assert_array_equal(np.bincount(dataset.load("trainval").arrays["labels"]), [147, 57])
    with pytest.raises(DataError, match=r"Heartbeat_TEST\.ts is missing"):
        dataset.load("test")
