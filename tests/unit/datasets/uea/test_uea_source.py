"""Finding the files of a problem."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from subquad.errors import DataError
from subquad_datasets.uea import UeaConfig, source
from subquad_datasets.uea.dataset import UeaDataset
from subquad_datasets.uea.source import (
    archive_problems,
    bundled_problems,
    find_below,
    find_in,
    not_here,
)


def test_names_come_from_sktime() -> None:
    assert len(archive_problems()) == 33
    assert {"JapaneseVowels", "FaceDetection", "PEMS-SF"} <= set(archive_problems())
    assert {"JapaneseVowels", "BasicMotions"} <= set(bundled_problems())


def test_files_are_found_below_or_in_the_folder(write, tmp_path: Path) -> None:
    write("Toy/Toy_TRAIN.ts", "")
    write("Flat_TRAIN.ts.xz", "")
    write("Flat_TEST.ts.gz", "")
    toy, flat = find_below(tmp_path, "Toy"), find_below(tmp_path, "Flat")
    assert toy.train == tmp_path / "Toy" / "Toy_TRAIN.ts"
    assert toy.test is None
    assert (flat.train.name, flat.test and flat.test.name) == (
        "Flat_TRAIN.ts.xz",
        "Flat_TEST.ts.gz",
    )


def test_plain_file_goes_before_a_compressed_one(write, tmp_path: Path) -> None:
    for ending in (".ts.gz", ".ts", ".ts.xz"):
        write(f"Toy_TRAIN{ending}", "")
    assert find_below(tmp_path, "Toy").train.name == "Toy_TRAIN.ts"


def test_folder_may_be_named_otherwise_than_its_files(write, tmp_path: Path) -> None:
    write("Heartbeat_train204/Heartbeat_TRAIN.ts", "")
    found = find_below(tmp_path, "Heartbeat_train204")
    assert (found.problem, found.stem) == ("Heartbeat_train204", "Heartbeat")


def test_two_candidates_are_not_guessed_between(write, tmp_path: Path) -> None:
    write("Mine/A_TRAIN.ts", "")
    write("Mine/B_TRAIN.ts", "")
    assert find_in(tmp_path / "Mine", "Mine") is None


def test_test_file_is_never_taken_for_train(write, tmp_path: Path) -> None:
    write("SpokenArabicDigits/SpokenArabicDigits_TEST.ts", "")
    write("SpokenArabicDigits/SpokenArabicDigits.ts", "")
    with pytest.raises(
        DataError, match=r"has neither SpokenArabicDigits/SpokenArabicDigits_TRAIN\.ts nor"
    ):
        find_below(tmp_path, "SpokenArabicDigits")


def test_path_that_does_not_hold_the_problem(write, tmp_path: Path) -> None:
    write("Handwriting/Handwriting_TRAIN.ts", "")
    with pytest.raises(
        DataError, match=r"dataset\.params\.path: .*; did you mean 'Handwriting'\?$"
    ):
        find_below(tmp_path, "Handwritting")
    with pytest.raises(DataError, match=r"dataset\.params\.path: .*/nowhere is not a folder$"):
        find_below(tmp_path / "nowhere", "Handwriting")


def test_name_that_goes_on_is_suggested(write, tmp_path: Path) -> None:
    write("Heartbeat_train204/Heartbeat_TRAIN.ts", "")
    with pytest.raises(DataError, match=r"; did you mean 'Heartbeat_train204'\?$"):
        find_below(tmp_path, "Heartbeat")


def test_unknown_problem_names_the_nearest(tmp_path: Path) -> None:
    dataset = UeaDataset(UeaConfig(problem="JapaneseVowles"), tmp_path)
    with pytest.raises(
        DataError,
        match=r"^unknown uea problem 'JapaneseVowles'; did you mean 'JapaneseVowels'\?; "
        r"for files of your own "
        r"give dataset\.params\.path=FOLDER with JapaneseVowles_TRAIN\.ts$",
    ):
        dataset.describe()


def test_known_problem_that_is_not_here_says_how_to_get_it(tmp_path: Path) -> None:
    dataset = UeaDataset(UeaConfig(problem="FaceDetection"), tmp_path)
    dataset.prepare()
    with pytest.raises(
        DataError,
        match=r"^uea problem 'FaceDetection' is not here \(only BasicMotions and "
        r"JapaneseVowels ship with sktime\): "
        r"give dataset\.params\.path=FOLDER with FaceDetection_TRAIN\.ts, or "
        r"dataset\.params\.download=true$",
    ):
        dataset.describe()


def test_without_sktime_the_message_says_so(monkeypatch) -> None:
    monkeypatch.setattr(source, "_sktime", lambda: None)
    with pytest.raises(
        DataError,
        match=r"install sktime \(pip install 'subquad\[uea\]'\) or give dataset\.params\.path",
    ):
        raise not_here("JapaneseVowels")


def test_users_own_files_need_no_sktime(monkeypatch, toy) -> None:
    monkeypatch.setattr(source, "_sktime", lambda: None)
    assert toy().describe().sizes["trainval"] == 4


def test_regression_problem_of_sktime_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"Tecator_TRAIN\.ts:\d+: @targetLabel: a regression problem"
    ):
        UeaDataset(UeaConfig(problem="Tecator"), tmp_path).describe()


@pytest.mark.parametrize("problem", ["../JapaneseVowels", "/etc/passwd", "", ".hidden", "a/b"])
def test_problem_is_a_name_and_not_a_path(problem: str) -> None:
    with pytest.raises(ValueError, match="problem"):
        UeaConfig(problem=problem)


def test_bundled_data_load_without_importing_sktime_or_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from subquad_datasets.uea import PLUGIN, UeaConfig\n"
        "assert not {'numpy', 'torch', 'sktime', 'pandas'} & set(sys.modules), "
        "'the descriptor is light'\n"
        "from subquad_datasets.uea.dataset import UeaDataset\n"
        "UeaDataset(UeaConfig(problem='BasicMotions'), Path(sys.argv[1])).load('train')\n"
        "assert not {'torch', 'sktime', 'pandas'} & set(sys.modules), 'reading is light'\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_missing_folder_of_a_problem_holds_no_files(tmp_path: Path) -> None:
    assert find_in(tmp_path / "Toy", "Toy") is None
