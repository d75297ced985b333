"""The recall task: what a sequence holds, splits that do not mix, and the proof that a lone query says nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from subquad.data import TestKey
from subquad.errors import DataError
from subquad_datasets.recall import PLUGIN, Config
from subquad_datasets.recall.dataset import Recall


def recall(**params) -> Recall:
    small = {"train_size": 60, "validation_size": 20, "test_size": 30, **params}
    return Recall(Config(**small), Path("unused"))


def everything(dataset: Recall, name) -> dict[str, np.ndarray]:
    split = dataset.split(name, TestKey("recall", "test of the data set") if name == "test" else None)
    return split.fetch(np.arange(len(split)), epoch=0, seed=0)


@settings(deadline=None, max_examples=30)
@given(
    num_pairs=st.integers(1, 9), spare=st.integers(0, 5), num_values=st.integers(2, 6), seed=st.integers(0, 2**32 - 1)
)
def test_the_label_is_the_value_of_the_key_that_is_asked_for(num_pairs, spare, num_values, seed):
    keys = num_pairs + spare
    dataset = recall(num_pairs=num_pairs, num_keys=keys, num_values=num_values, seed=seed)
    rows = everything(dataset, "train")
    pairs, query = rows["inputs"][:, :-1] - 1, rows["inputs"][:, -1] - 1 - keys * num_values
    found = pairs // num_values == query[:, None]
    assert (found.sum(1) == 1).all()
    assert np.array_equal((pairs % num_values)[found], rows["labels"])
    assert all(len(set(row)) == num_pairs for row in pairs // num_values)
    assert rows["inputs"].min() >= 1
    assert rows["inputs"].max() < dataset.describe().vocab_size


def test_shapes_types_and_description():
    dataset = recall()
    spec, rows = dataset.describe(), everything(dataset, "validation")
    assert rows["inputs"].shape == (20, spec.max_len) == (20, 17)
    assert [rows[key].dtype for key in ("inputs", "keep", "labels")] == [np.int64, np.bool_, np.int64]
    assert rows["keep"].all()
    assert (spec.target, spec.num_classes, spec.vocab_size) == ("class", 8, 1 + 16 * 8 + 16)
    assert spec.sizes == {"train": 60, "validation": 20, "trainval": 80}
    assert spec.notes == ("synthetic control task, chance is 0.125",)


def test_generation_is_deterministic_and_the_seed_matters():
    first, second, other = (everything(recall(seed=seed), "train")["inputs"] for seed in (3, 3, 4))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


def test_train_and_validation_are_the_two_parts_of_trainval():
    train, validation, both = (everything(recall(), name)["inputs"] for name in ("train", "validation", "trainval"))
    assert np.array_equal(np.concatenate([train, validation]), both)


def test_larger_splits_only_append_rows():
    few, many = recall(validation_size=5, test_size=5), recall(validation_size=50, test_size=50)
    for key in ("inputs", "labels"):
        assert np.array_equal(everything(few, "train")[key], everything(many, "train")[key])
    assert np.array_equal(everything(few, "test")["inputs"], everything(many, "test")["inputs"][:5])


def test_the_test_split_is_sealed_and_shares_no_sequence_with_training():
    with pytest.raises(DataError, match="the test split is sealed"):
        recall().split("test")
    training = {tuple(row) for row in everything(recall(), "trainval")["inputs"]}
    assert not training & {tuple(row) for row in everything(recall(), "test")["inputs"]}


def test_the_query_alone_says_nothing_about_the_label():
    rows = everything(recall(num_pairs=4, num_keys=4, num_values=2, train_size=20_000), "train")
    for key in range(4):
        labels = rows["labels"][rows["inputs"][:, -1] == 1 + 4 * 2 + key]
        assert len(labels) > 4_000
        assert abs(labels.mean() - 0.5) < 0.04  # five standard deviations


def test_refusals():
    with pytest.raises(
        ValidationError,
        match="num_pairs 5 is more than num_keys 3, but the keys of a sequence are distinct: use num_keys 5 or more",
    ):
        Config(num_pairs=5, num_keys=3)
    with pytest.raises(ValidationError, match="num_values\n  Input should be greater than or equal to 2"):
        Config(num_values=1)
    assert (PLUGIN.inputs, PLUGIN.targets) == ("tokens", ("class", "next-token"))
