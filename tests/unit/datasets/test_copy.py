"""The copy task: labels, splits that do not mix, and the independence that makes it a control."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from splits import batch, dataset_of

from subquad_datasets.copy import Config


def copy(**params):
    sizes = {"train_size": 60, "validation_size": 20, "test_size": 30}
    return dataset_of("copy", Path("unused"), **{**sizes, **params})


@settings(max_examples=30)
@given(
    length=st.integers(2, 40),
    num_values=st.integers(2, 9),
    seed=st.integers(0, 2**32 - 1),
    data=st.data(),
)
def test_the_label_is_the_token_at_the_position(length, num_values, seed, data):
    position = data.draw(st.integers(0, length - 2))
    dataset = copy(length=length, position=position, num_values=num_values, seed=seed)
    spec, rows = dataset.describe(), batch(dataset, "train")
    assert rows["inputs"].shape == (60, length) == (60, spec.max_len)
    assert np.array_equal(rows["inputs"][:, position] - 1, rows["labels"])
    assert rows["inputs"].min() >= 1
    assert rows["inputs"].max() < spec.vocab_size
    assert rows["keep"].all()


def test_the_token_that_is_read_says_nothing_about_the_label():
    """Every pair of last token and label is about equally frequent: 64 cells of 1,000 draws
    each, 6 deviations wide.
    """
    rows = batch(copy(train_size=64_000), "train")
    cells = np.histogram2d(rows["inputs"][:, -1], rows["labels"], bins=(8, 8))[0]
    assert np.abs(cells - 1000).max() < 6 * 1000**0.5


def test_the_position_that_is_read_cannot_be_copied():
    with pytest.raises(
        ValidationError, match="position 16 must lie before the last place: 0 to 15 with length 17"
    ):
        Config(position=16)
