"""Exact copies between TRAIN, validation and TEST: counted, kept on one side of a cut, refused
where they are most.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from splits import dataset_of

from subquad.data import (
    ArraySplit,
    Dataset,
    DataSpec,
    SplitName,
    stratified_validation,
)
from subquad.data.copies import check_copies
from subquad.engine.result import Seal
from subquad.errors import DataError
from subquad.experiment import load_study
from subquad.plugin import Config
from subquad.preparation.preflight import check_parts
from subquad.record.run_folder import RunFolder

MOST = r"^dataset: 4 of 4 TEST samples are exact copies of training samples; use other files"
PAIRS = ("one\ttwo", "three\tfour", "five\tsix", "seven\teight")


class Numbers(Dataset):
    """Series of one number each."""

    parts: dict[str, list[int]]

    def describe(self) -> DataSpec:
        return DataSpec.series(max_len=1, channels=1)

    def load(self, name: SplitName) -> ArraySplit:
        values = np.array(self.parts[name], dtype=np.float32)
        return ArraySplit(
            {"inputs": values[:, None, None], "keep": values[:, None] >= 0, "labels": values % 2}
        )


def numbers(**parts: list[int]) -> Numbers:
    made = Numbers(Config(), Path())
    made.parts = {**parts, "trainval": [*parts["train"], *parts.get("validation", [])]}
    return made


def ts_files(folder: Path, rows: list[str], test: list[str]) -> Dataset:
    head = "@dimensions 1\n@equalLength true\n@classLabel true up down\n@data\n"
    for name, lines in (("TRAIN", rows), ("TEST", test)):
        (folder / f"Toy_{name}.ts").write_text(head + "".join(f"{line}\n" for line in lines))
    return dataset_of("uea", folder / "root", problem="Toy", path=str(folder))


def series(folder: Path) -> Dataset:
    rows = ["1,2:up", "3,4:up", "5,6:down", "7,8:down"]
    return ts_files(folder, rows, rows[::-1])


def texts(folder: Path) -> Dataset:
    for split, order in (("train", 1), ("test", -1)):
        for name in ("neg", "pos"):
            (folder / f"{split}_{name}.jsonl").write_text(
                "".join(f'{{"text": "{name}{n}"}}\n' for n in "ab"[::order])
            )
    given = {"max_len": 4, "validation_fraction": 0.5}
    return dataset_of("lra-text", folder / "root", path=str(folder), **given)


def pairs(folder: Path) -> Dataset:
    for split, rows in (("train", PAIRS), ("eval", ("nine\tten",)), ("test", PAIRS[::-1])):
        # the labels of TEST are others
        lines = [f"{n % 2}.0\ta\tb\t{row}\n" for n, row in enumerate(rows)]
        (folder / f"new_aan_pairs.{split}.tsv").write_text("".join(lines))
    return dataset_of("lra-retrieval", folder / "root", path=str(folder), max_len=4)


def expressions(folder: Path) -> Dataset:
    rows = [
        "( ( [MAX 1 ) 2 ] )\t2\n",
        "( ( [MIN 1 ) 2 ] )\t1\n",
        "( ( [SM 1 ) 2 ] )\t3\n",
        "( ( [MED 1 ) 1 ] )\t1\n",
    ]
    for split, own in (("train", rows), ("val", ["( ( [MAX 7 ) 2 ] )\t7\n"]), ("test", rows[::-1])):
        (folder / f"basic_{split}.tsv").write_text("Source\tTarget\n" + "".join(own))
    return dataset_of("lra-listops", folder / "root", path=str(folder))


def images(folder: Path) -> Dataset:
    pillow = pytest.importorskip("PIL.Image")
    for split, order in (("train", 1), ("test", -1)):
        for number, name in enumerate("ab"):
            (folder / split / name).mkdir(parents=True)
            for place, value in enumerate((0, 100)[::order]):
                pillow.new("RGB", (4, 4), (value, 80 * number, 9)).save(
                    folder / split / name / f"{place}.png"
                )
    given = {"side": 4, "validation_fraction": 0.5}
    return dataset_of("lra-image", folder / "root", path=str(folder), **given)


@pytest.mark.parametrize("write", [series, texts, pairs, expressions, images])
def test_train_again_in_another_order_is_refused_before_training(tmp_path, write):
    dataset = write(tmp_path)
    dataset.prepare()
    with pytest.raises(DataError, match=MOST):
        check_copies(dataset, dataset.prepared_test(), validation=True)


def test_copies_are_counted_whatever_their_order_and_label():
    dataset = numbers(train=[1, 2, 3, 4, 4], validation=[5, 2, 9], test=[5, 6, 4, 7, 8])
    assert check_copies(dataset, dataset.load("test"), validation=True) == (
        "1 of 3 validation samples are exact copies of training samples",
        "2 of 5 TEST samples are exact copies of training samples",
    )
    assert check_copies(dataset, None, validation=False) == ()
    with pytest.raises(DataError, match="2 of 3 validation samples are exact copies"):
        check_copies(numbers(train=[1, 2], validation=[1, 3, 2]), None, validation=True)


def test_a_sealed_test_file_of_another_size_is_looked_at_when_it_opens(tmp_path: Path):
    dataset = ts_files(
        tmp_path, ["1,2:up", "3,4:up", "5,6:down", "7,8:down"], ["3,4:up", "1,2:up", "99,9:down"]
    )
    assert dataset.prepared_test() is None
    experiment = SimpleNamespace(protocol="fixed")
    run: Any = SimpleNamespace(
        dataset_label="Toy", digest="", experiment=experiment, files=RunFolder(tmp_path)
    )
    seal = Seal(dataset, run, 1, [tmp_path / "ledger"])
    with pytest.raises(DataError, match="2 of 3 TEST samples are exact copies of training samples"):
        seal.open("final evaluation")
    assert (tmp_path / "ledger").read_text().count("\n") == 1


def test_a_drawn_task_with_few_possible_sequences_is_refused_before_training(tmp_path, monkeypatch):
    monkeypatch.setenv("SUBQUAD_DATA", str(tmp_path))
    (tmp_path / "one.yaml").write_text(
        "dataset: {name: copy, params: {length: 2, num_values: 3}}\ntask: "
        "classification\nmixer: identity\n"
        "backbone: {name: encoder, params: {num_layers: 1, dim: 16, num_heads: 2}}\n"
        "train: {steps: 1, batch_size: 8, lr: 1e-3}\n"
    )
    with pytest.raises(
        DataError, match=r"512 of 512 validation samples are exact .* or generate longer sequences$"
    ):
        check_parts(load_study(str(tmp_path / "one.yaml")))


@pytest.mark.ci
@given(st.lists(st.integers(0, 2), min_size=8, max_size=40), st.integers(0, 5), st.data())
def test_a_cut_keeps_copies_on_one_side_and_is_the_same_without_any(classes, seed, data):
    labels = np.array([*classes, 0, 0, 0, 1, 1, 1, 2, 2, 2])
    alone = np.arange(len(labels)) * 7
    plain, same = (stratified_validation(labels, 0.4, seed, groups) for groups in (None, alone))
    assert all(np.array_equal(part, same_part) for part, same_part in zip(plain, same, strict=True))
    digests = alone.copy()
    copied = data.draw(st.lists(st.integers(0, len(classes) - 1), max_size=8))
    digests[copied] = digests[[data.draw(st.integers(0, len(labels) - 1)) for _ in copied]]
    training, validation = stratified_validation(labels, 0.4, seed, digests)
    assert not set(digests[training]) & set(digests[validation])
    assert sorted([*training, *validation]) == list(range(len(labels)))


@pytest.mark.parametrize("seed", range(8))
def test_copies_do_not_fill_the_validation_part(seed):
    labels = np.repeat([0, 1], 20)
    digests = np.array([9] * 18 + [*range(10, 32)])
    training, validation = stratified_validation(labels, 0.2, seed, digests)
    assert np.bincount(labels[validation]).tolist() == [1, 4]
    assert set(digests[training][:18]) == {9}
    alone = np.where(labels == 0, digests.clip(9, 10), digests)
    training, validation = stratified_validation(labels, 0.2, seed, alone)
    assert np.bincount(labels[validation]).tolist() == [2, 4]
    threes = np.arange(40) // 3
    assert len(stratified_validation(labels, 0.2, seed, threes)[1]) <= 2 * (1 + 1.5 * 0.2 * 20)


@pytest.mark.parametrize("seed", range(8))
def test_groups_that_have_all_classes_can_be_cut(seed):
    people = np.repeat(np.arange(10), 12)
    labels = np.tile(np.arange(6), 20)
    training, validation = stratified_validation(labels, 0.2, seed, people)
    assert len(set(people[validation])) == 2
    assert not set(people[training]) & set(people[validation])
    assert np.bincount(labels[validation]).tolist() == [4] * 6


def test_a_class_of_copies_cannot_be_cut():
    with pytest.raises(DataError, match="class 1 has 1 different training sample: too few"):
        stratified_validation(np.array([0, 0, 1, 1]), 0.5, 0, np.array([1, 2, 3, 3]))
