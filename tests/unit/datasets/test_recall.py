"""The recall task: what a sequence holds, splits that do not mix, and the proof that a lone
query says nothing.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from splits import batch, dataset_of

from subquad_datasets.recall import Config


def recall(**params):
    sizes = {"train_size": 60, "validation_size": 20, "test_size": 30}
    return dataset_of("recall", Path("unused"), **{**sizes, **params})


@settings(max_examples=30)
@given(
    num_pairs=st.integers(1, 9),
    spare=st.integers(0, 5),
    num_values=st.integers(2, 6),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_label_is_the_value_of_the_key_that_is_asked_for(num_pairs, spare, num_values, seed):
    keys = num_pairs + spare
    dataset = recall(num_pairs=num_pairs, num_keys=keys, num_values=num_values, seed=seed)
    rows = batch(dataset, "train")
    pairs, query = rows["inputs"][:, :-1] - 1, rows["inputs"][:, -1] - 1 - keys * num_values
    found = pairs // num_values == query[:, None]
    assert (found.sum(1) == 1).all()
    assert np.array_equal((pairs % num_values)[found], rows["labels"])
    assert all(len(set(row)) == num_pairs for row in pairs // num_values)
    assert rows["inputs"].min() >= 1
    assert rows["inputs"].max() < dataset.describe().vocab_size


def test_the_query_alone_says_nothing_about_the_label():
    rows = batch(recall(num_pairs=4, num_keys=4, num_values=2, train_size=20_000), "train")
    for key in range(4):
        labels = rows["labels"][rows["inputs"][:, -1] == 1 + 4 * 2 + key]
        assert len(labels) > 4_000
        assert abs(labels.mean() - 0.5) < 0.04  # five standard deviations


def test_refusals():
    with pytest.raises(
        ValidationError,
        match="num_pairs 5 is more than num_keys 3, but the keys of a sequence are "
        "distinct: use num_keys 5 or more",
    ):
        Config(num_pairs=5, num_keys=3)
