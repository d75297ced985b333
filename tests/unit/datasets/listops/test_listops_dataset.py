"""The ListOps data set: splits, notes, the seal, refusals."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError
from splits import KEY, batch, everything

from subquad.errors import DataError
from subquad_datasets.listops import Config
from subquad_datasets.listops.guesses import counts_by_root, roots

DATASET = ("lra-listops", {})
SMALL = {
    "path": None,
    "train_size": 300,
    "validation_size": 60,
    "test_size": 40,
    "min_length": 10,
    "max_length": 60,
    "max_depth": 5,
}
"""Of what is generated."""


def prepared_folders(root: Path) -> list[Path]:
    return sorted(path for path in (root / "lra-listops").iterdir() if path.is_dir())


@pytest.mark.ci
def test_sizes_of_splits_only_append_and_processes_change_nothing(make):
    few = make(**{**SMALL, "validation_size": 30, "test_size": 10})
    many = make(**SMALL, processes=2)
    for name in ("train", "validation", "test"):
        first, second = (batch(dataset, name)["inputs"] for dataset in (few, many))
        assert np.array_equal(first, second[: len(first)])
    again = make(**SMALL, processes=1, max_len=17)
    again.prepare()
    assert len(prepared_folders(again.root)) == 2


def test_notes_say_what_the_data_are_and_what_guessing_scores(make):
    dataset = make(**SMALL, max_len=50)
    validation, train = dataset.split("validation"), dataset.split("train")
    table = np.zeros((16, 10), dtype=int)
    for tokens, label in zip(everything(train)["inputs"], train.labels, strict=True):
        table[tokens[0], label] += 1
    guess = table.argmax(1)[everything(validation)["inputs"][:, 0]]
    scores = dataset.reference_scores(validation)
    assert scores == {
        "majority": np.mean(validation.labels == np.bincount(train.labels).argmax()),
        "root_operator": np.mean(validation.labels == guess),
    }
    assert np.array_equal(counts_by_root(train), table)
    assert set(roots(validation)) == {11, 12, 13, 14}
    cut = int((dataset.split("trainval").uncut_lengths > 50).sum())
    assert dataset.describe().notes == (
        "stand-in data: generated ListOps, not the official files",
        f"{cut} sequences of TRAIN are cut at 50 tokens",
        f"on the validation part the commonest value scores {100 * scores['majority']:.1f} %, "
        f"the outermost operator alone {100 * scores['root_operator']:.1f} %",
    )


def test_official_files(make, official):
    dataset = make(path=str(official()))
    dataset.prepare()
    spec = dataset.describe()
    assert (spec.max_len, spec.sizes) == (2000, {"train": 4, "validation": 2, "trainval": 6})
    assert spec.notes == (
        "stand-in data: basic_train.tsv has 4 rows, the official file 96,000",
        "stand-in data: basic_val.tsv has 2 rows, the official file 2,000",
        "on the validation part the commonest value scores 50.0 %, the outermost "
        "operator alone 50.0 %",
    )
    train = everything(dataset.split("train"))
    assert train["inputs"][:, :6].tolist() == [
        [11, 4, 5, 15, 0, 0],
        [11, 4, 8, 15, 0, 0],
        [13, 2, 6, 10, 15, 0],
        [8, 0, 0, 0, 0, 0],
    ]
    assert train["inputs"].shape == (4, 2000)
    assert train["labels"].tolist() == [3, 3, 5, 7]
    assert everything(dataset.split("validation"))["labels"].tolist() == [3, 2]
    test = dataset.split("test", KEY)
    assert everything(test)["labels"].tolist() == [6]
    for split in (test, pickle.loads(pickle.dumps(test))):  # noqa: S301  (our own bytes)
        assert split.notes == ("stand-in data: basic_test.tsv has 1 rows, the official file 2,000",)


def test_files_of_the_official_sizes_are_no_stand_in(make, official, monkeypatch):
    monkeypatch.setattr(
        "subquad_datasets.listops.dataset.OFFICIAL_SIZES", {"train": 4, "validation": 2, "test": 1}
    )
    dataset = make(path=str(official()))
    assert not any("stand-in" in note for note in dataset.describe().notes)
    assert dataset.split("test", KEY).notes == ()


def test_the_official_test_file_is_read_when_it_is_opened(make, official):
    root = official(test=b"Source\tTarget\r\n12\t3\r\n")
    dataset = make(path=str(root))
    dataset.prepare()
    assert dataset.describe().sizes["train"] == 4
    with pytest.raises(DataError, match=r"basic_test\.tsv:2: word 1 is '12'"):
        dataset.split("test", KEY)
    official(test=["7\t7"])
    again = make(path=str(root))
    assert everything(again.split("test", KEY))["labels"].tolist() == [7]


def test_a_bad_file_leaves_nothing_and_a_mended_one_is_read(make, official, tmp_path):
    root = official(validation=["7\t7", "7\t12"])
    with pytest.raises(DataError, match=r"basic_val\.tsv:3: the label is '12', expected a digit"):
        make(path=str(root)).prepare()
    assert prepared_folders(tmp_path / "root") == []
    official()
    dataset = make(path=str(root))
    dataset.prepare()
    assert dataset.describe().sizes["validation"] == 2


def test_a_changed_file_is_read_anew(make, official):
    root = official()
    make(path=str(root)).prepare()
    official(train=["7\t7", "8\t8", "9\t9"])
    assert make(path=str(root)).describe().sizes["train"] == 3


def test_missing_files_are_refused_before_training(make, official):
    with pytest.raises(DataError, match=r"basic_test\.tsv: missing"):
        make(path=str(official(test=None))).prepare()


@pytest.mark.parametrize(
    ("params", "said"),
    [
        (
            {"min_length": 500, "max_length": 501},
            "leave no length between: use max_length 502 or more",
        ),
        (
            {"max_depth": 3},
            "min_length 500: the longest expression with max_depth 3 and max_args "
            "10 has 122 tokens",
        ),
    ],
)
def test_refusals(params, said):
    with pytest.raises(ValidationError, match=said):
        Config.model_validate(params)


def test_the_longest_possible_expression_may_be_asked_for():
    assert Config(max_depth=3, min_length=121).min_length == 121
