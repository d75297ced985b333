"""What a data set says of its batches: named axes with lengths, and a batch made from them."""

from __future__ import annotations

import numpy as np
import pytest

from subquad.data import Array, ArraySplit, DataSpec, Subset
from subquad.plugin import Config, DatasetConfig, DatasetPlugin

IMAGES = DataSpec(
    arrays={"inputs": Array(("height", "width", "channels")), "labels": Array(dtype="int64")},
    lengths={"height": 4, "width": 6, "channels": 3},
)
TRANSLATION = DataSpec(
    arrays={
        "inputs": Array(("length",), "int64"),
        "keep": Array(("length",), "bool"),
        "labels": Array(("labels_length",), "int64"),
    },
    lengths={"length": 5, "labels_length": 7},
    target="sequence",
)


def shapes(spec: DataSpec, *args, **kwargs) -> dict:
    return {
        name: (values.shape, str(values.dtype))
        for name, values in spec.example(*args, **kwargs).items()
    }


def test_series_and_tokens_with_their_targets():
    series = DataSpec.series(max_len=9, channels=3, num_classes=4)
    assert shapes(series) == {
        "inputs": ((2, 9, 3), "float32"),
        "keep": ((2, 9), "bool"),
        "labels": ((2,), "int64"),
    }
    assert (series.max_len, series.channels, series.target, series.vocab_size) == (9, 3, "class", 0)
    tokens = DataSpec.tokens(max_len=9, vocab_size=20, target="positions")
    assert shapes(tokens, 3) == {
        "inputs": ((3, 9), "int64"),
        "keep": ((3, 9), "bool"),
        "labels": ((3, 9), "int64"),
    }
    assert (tokens.max_len, tokens.channels, tokens.vocab_size) == (9, 0, 20)
    pairs = DataSpec.tokens(max_len=9, vocab_size=20, target="pair")
    assert shapes(pairs)["inputs_b"] == shapes(pairs)["inputs"]
    assert shapes(pairs)["keep_b"] == shapes(pairs)["keep"]


def test_images_and_sequences_with_another_axis():
    assert shapes(IMAGES)["inputs"] == ((2, 4, 6, 3), "float32")
    assert (IMAGES.max_len, IMAGES.channels) == (0, 3)
    assert shapes(TRANSLATION)["labels"] == ((2, 7), "int64")


@pytest.mark.parametrize("spec", [IMAGES, TRANSLATION, DataSpec.series(max_len=9, channels=3)])
def test_a_length_can_be_another_one_and_everything_is_real(spec):
    axis = next(iter(spec.lengths))
    batch = spec.example(1, {axis: 2})
    assert batch["inputs"].shape[1] == 2
    assert all((values == 1).all() for values in batch.values())


class Named(DatasetConfig):
    problem: str = "BasicMotions"

    @staticmethod
    def label(problem: str) -> str:
        return problem


def test_a_data_set_says_what_tables_call_it():
    fields = {"build": "a:B", "summary": "", "inputs": "series", "targets": ("class",)}
    assert DatasetPlugin(config=Named, **fields).label(Named()) == "BasicMotions"
    assert DatasetPlugin(config=Named, **fields).label(Config()) == ""
    assert DatasetPlugin(config=DatasetConfig, **fields).label(DatasetConfig()) == ""


def test_a_subset_has_the_samples_of_its_split():
    keep = np.arange(4) < np.array([[1], [2], [3], [4], [0]])
    split = ArraySplit({"inputs": np.arange(5), "keep": keep, "labels": np.arange(5)})
    some = Subset(split, np.array([3, 1]))
    assert len(some) == 2
    assert some.fetch(np.array([1, 0]), epoch=0, seed=0)["inputs"].tolist() == [1, 3]
    assert some.name(0) == split.name(3)
    lengths = some.lengths()
    assert lengths is not None
    assert lengths.tolist() == [4, 2]
    assert Subset(ArraySplit({"labels": np.arange(5)}), np.array([0])).lengths() is None
