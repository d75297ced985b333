"""Associative recall: what a sequence holds, its gaps, splits that do not mix, and that a lone
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

from subquad.data import NO_LABEL, TestKey
from subquad_datasets.mqar import Config
from subquad_datasets.mqar.draw import BLANK, FIRST_KEY, absent_keys, draw


def mqar(**params):
    sizes = {"train_size": 60, "validation_size": 20, "test_size": 30}
    return dataset_of("mqar", Path("unused"), **{**sizes, **params})


@st.composite
def configs(draw_one) -> Config:
    pairs = draw_one(st.integers(1, 6))
    queries = draw_one(st.integers(1, pairs))
    spare = draw_one(st.integers(0, 9))
    return Config(
        num_pairs=pairs,
        num_queries=queries,
        labels=draw_one(st.sampled_from(["every", "last"])),
        length=2 * pairs + 2 * queries + 1 + spare,
        num_keys=pairs + draw_one(st.integers(0, 5)),
        num_values=max(2, pairs) + draw_one(st.integers(0, 5)),
        filler=draw_one(st.sampled_from(["blank", "random"])),
        seed=draw_one(st.integers(0, 2**32 - 1)),
    )


@settings(max_examples=60)
@given(config=configs())
def test_the_target_of_each_query_is_the_value_beside_its_key(config: Config):
    drawn = draw(config, 0, 20)
    for row, targets in zip(drawn.inputs, drawn.targets, strict=True):
        queries = np.flatnonzero(targets != NO_LABEL)
        assert len(queries) == config.num_queries
        if config.labels == "last":
            assert queries[-1] == config.length - 1
        for query in queries:
            places = np.flatnonzero(row == row[query])
            assert places.tolist() == [places[0], query]  # once among the pairs, once asked for
            assert row[places[0] + 1] == FIRST_KEY + config.num_keys + targets[query]
            assert (query - places[0]) % 2 == 0
            assert config.labels == "last" or places[0] < 2 * config.num_pairs
            assert query - places[0] >= 2
    assert drawn.inputs.min() >= BLANK
    assert drawn.inputs.max() < FIRST_KEY + config.num_keys + config.num_values


@settings(max_examples=50)
@given(data=st.data(), num_keys=st.integers(2, 12))
def test_absent_keys_are_the_complement_in_order(data, num_keys):
    held = data.draw(
        st.lists(st.integers(0, num_keys - 1), min_size=1, max_size=num_keys - 1, unique=True)
    )
    keys = np.array([held, held[::-1]])
    complement = sorted(set(range(num_keys)) - set(held))
    rows, ranks = np.repeat([0, 1], len(complement)), np.tile(np.arange(len(complement)), 2)
    assert absent_keys(keys, rows, ranks).tolist() == complement * 2


@pytest.mark.parametrize(("labels", "shape"), [("every", (20, 64)), ("last", (20,))])
def test_labels_are_the_targets_of_every_query_or_of_the_last(labels, shape):
    dataset = mqar(length=64, labels=labels, num_queries=2)
    rows, drawn = (batch(dataset, "validation")["labels"], draw(dataset.config, 0, 80).targets[60:])
    assert rows.shape == shape
    assert dataset.describe().target == ("positions" if labels == "every" else "class")
    assert np.array_equal(rows, drawn if labels == "every" else drawn[:, -1])


def test_majority_is_scored_on_labels_alone():
    dataset = mqar(test_size=2000, train_size=2000)
    labels = batch(dataset, "trainval")["labels"]
    tested = batch(dataset, "test")["labels"]
    commonest = np.bincount(labels[labels >= 0]).argmax()
    found = dataset.reference_scores(dataset.split("test", TestKey("mqar", "test of the data set")))
    assert found == {"majority": float((tested == commonest).sum() / (4 * 2000))}
    assert abs(found["majority"] - 1 / 8) < 0.03


def test_the_query_alone_says_nothing_about_the_label():
    small = {"num_pairs": 2, "num_keys": 4, "num_values": 4, "length": 9, "labels": "last"}
    rows = batch(mqar(**small, train_size=40_000), "train")
    for key in range(4):
        shares = (
            np.bincount(rows["labels"][rows["inputs"][:, -1] == FIRST_KEY + key], minlength=4)
            / 10_000
        )
        assert np.abs(shares - 0.25).max() < 0.03  # over five standard deviations


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"num_pairs": 9},
            r"num_pairs 9 is more than num_keys 8, but those of a sequence are distinct: use",
        ),
        (
            {"num_keys": 99, "num_pairs": 9},
            "num_pairs 9 is more than num_values 8, .* use num_values 9 or more",
        ),
        (
            {"length": 14},
            "length 14 is too short for 4 pairs and 4 queries, .*: use length 15 or more",
        ),
        (
            {"labels": "last", "length": 8},
            "length 8 is too short for 4 pairs and 1 queries, .*: use length 9 or more",
        ),
        (
            {"num_queries": 3, "length": 12},
            "length 12 is too short for 4 pairs and 3 queries.*: use length 13 or more",
        ),
        (
            {"num_queries": 5},
            "num_queries 5 is more than num_pairs 4, but a pair is asked for once",
        ),
        (
            {"length": 15, "power_a": 1.0},
            r"power_a 1.0 has no effect with a query at every place \(length 15, "
            r"num_pairs 4, queries 4\): leave "
            r"it at 0.01, or use a larger length",
        ),
        (
            {"length": 9, "num_queries": 1, "filler": "random"},
            "filler random has no effect with length 9 and num_pairs 4, which "
            "leave no place to fill: leave it "
            "at blank, or use a larger length",
        ),
    ],
)
def test_refusals(params, message):
    with pytest.raises(ValidationError, match=message):
        Config(**params)


def test_the_shortest_sequences_are_allowed():
    assert draw(Config(length=15), 0, 3).inputs.shape == (3, 15)
    assert draw(Config(length=9, labels="last"), 0, 3).inputs.shape == (3, 9)
    assert (
        draw(Config(length=3, num_pairs=1, num_keys=1, num_values=2), 0, 3)
        .inputs[:, [0, 2]]
        .tolist()
        == [[2, 2]] * 3
    )
