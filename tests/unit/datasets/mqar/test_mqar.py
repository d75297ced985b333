"""Associative recall: what a sequence holds, its gaps, splits that do not mix, and that a lone query says nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from subquad.data import NO_LABEL, TestKey
from subquad.errors import DataError
from subquad_datasets.generated import random_stream
from subquad_datasets.mqar import PLUGIN, Config
from subquad_datasets.mqar.dataset import Mqar
from subquad_datasets.mqar.draw import BLANK, FIRST_KEY, absent_keys, draw, draw_places


def mqar(**params) -> Mqar:
    small = {"train_size": 60, "validation_size": 20, "test_size": 30, **params}
    return Mqar(Config(**small), Path("unused"))


def everything(dataset: Mqar, name) -> dict[str, np.ndarray]:
    split = dataset.split(name, TestKey("mqar", "test of the data set") if name == "test" else None)
    return split.fetch(np.arange(len(split)), epoch=0, seed=0)


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


def read(row: np.ndarray, config: Config, first_query: int) -> dict[int, int]:
    """The pairs of a sequence, found in the `2 P` tokens that end an even number of places before a query."""
    for end in range(first_query, 2 * config.num_pairs - 1, -2):
        block = row[end - 2 * config.num_pairs : end]
        keys, values = block[0::2] - FIRST_KEY, block[1::2] - FIRST_KEY - config.num_keys
        if row[first_query] in block[0::2] and len(set(keys)) == len(keys) and (keys < config.num_keys).all():
            return dict(zip(keys.tolist(), values.tolist(), strict=True))
    raise AssertionError("no pairs in the sequence")


@settings(deadline=None, max_examples=60)
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


@settings(deadline=None, max_examples=40)
@given(config=configs())
def test_keys_and_values_of_a_sequence_are_distinct(config: Config):
    drawn = draw(config.model_copy(update={"filler": "blank"}), 1, 20)
    for row, targets in zip(drawn.inputs, drawn.targets, strict=True):
        pairs = read(row, config, int(np.flatnonzero(targets != NO_LABEL)[0]))
        assert len(pairs) == len(set(pairs.values())) == config.num_pairs
        assert (row != BLANK).sum() == 2 * config.num_pairs + config.queries


def test_random_filler_never_names_a_paired_key_and_uses_everything_else():
    config = Config(length=41, num_pairs=4, labels="last", num_keys=6, num_values=5, filler="random")
    blank = config.model_copy(update={"filler": "blank"})
    with_noise, without = draw(config, 0, 500), draw(blank, 0, 500)
    noise = without.inputs == BLANK
    assert np.array_equal(with_noise.inputs[~noise], without.inputs[~noise])
    assert np.array_equal(with_noise.targets, without.targets)
    for row, where, plain in zip(with_noise.inputs, noise, without.inputs, strict=True):
        held = set(plain[(plain >= FIRST_KEY) & (plain < FIRST_KEY + 6)])
        assert not held & set(row[where])
    assert set(with_noise.inputs[noise]) == set(range(FIRST_KEY, FIRST_KEY + 11))


@settings(deadline=None, max_examples=50)
@given(data=st.data(), num_keys=st.integers(2, 12))
def test_absent_keys_are_the_complement_in_order(data, num_keys):
    held = data.draw(st.lists(st.integers(0, num_keys - 1), min_size=1, max_size=num_keys - 1, unique=True))
    keys = np.array([held, held[::-1]])
    complement = sorted(set(range(num_keys)) - set(held))
    rows, ranks = np.repeat([0, 1], len(complement)), np.tile(np.arange(len(complement)), 2)
    assert absent_keys(keys, rows, ranks).tolist() == complement * 2


@pytest.mark.parametrize("power_a", [0.0, 0.01, 1.0])
def test_gaps_follow_the_power_law(power_a):
    places = draw_places(random_stream(1, 0), 40_000, 8, 1, power_a)[:, 0]
    wanted = np.arange(1, 9.0) ** (power_a - 1)
    wanted /= wanted.sum()
    seen = np.bincount(places, minlength=8) / 40_000
    assert np.abs(seen - wanted).max() < 5 * np.sqrt(0.25 / 40_000)


def test_further_queries_take_places_as_draws_without_replacement():
    places = draw_places(random_stream(2, 0), 40_000, 3, 2, 0.0)  # rates 1, 1/2, 1/3
    share = np.array([6, 3, 2]) / 11
    both = {(a, b): share[a] * share[b] / (1 - share[a]) + share[b] * share[a] / (1 - share[b]) for a in range(3)
            for b in range(a + 1, 3)}  # fmt: skip
    for pair, wanted in both.items():
        assert abs((places == pair).all(axis=1).mean() - wanted) < 5 * np.sqrt(0.25 / 40_000)


def test_the_labelled_query_ends_the_sequence_wherever_the_pairs_stand():
    config = Config(length=33, labels="last")
    drawn = draw(config, 0, 400)
    first = (drawn.inputs != BLANK).argmax(axis=1)
    assert len(set(first.tolist())) == config.places == 13
    assert (drawn.inputs[:, -1] < FIRST_KEY + 8).all()


def test_pairs_stand_in_front_and_every_pair_is_asked_for_where_queries_are_labelled():
    config = Config(length=33)
    drawn = draw(config, 0, 400)
    pairs, rest = drawn.inputs[:, :8], drawn.inputs[:, 8:]
    assert ((pairs[:, ::2] >= FIRST_KEY) & (pairs[:, ::2] < FIRST_KEY + 8)).all()
    assert (pairs[:, 1::2] >= FIRST_KEY + 8).all()
    assert np.array_equal(np.sort(rest)[:, -4:], np.sort(pairs[:, ::2]))
    assert np.array_equal(drawn.targets[:, 8:] != NO_LABEL, rest != BLANK)
    assert (drawn.targets[:, :8] == NO_LABEL).all()
    assert len(set(np.nonzero(rest != BLANK)[1].tolist())) == config.places == 13


@pytest.mark.parametrize(("labels", "shape"), [("every", (20, 64)), ("last", (20,))])
def test_labels_are_the_targets_of_every_query_or_of_the_last(labels, shape):
    dataset = mqar(length=64, labels=labels, num_queries=2)
    rows, drawn = everything(dataset, "validation")["labels"], draw(dataset.config, 0, 80).targets[60:]
    assert rows.shape == shape
    assert dataset.describe().target == ("positions" if labels == "every" else "class")
    assert np.array_equal(rows, drawn if labels == "every" else drawn[:, -1])


def test_majority_is_scored_on_labels_alone():
    dataset = mqar(test_size=2000, train_size=2000)
    labels = everything(dataset, "trainval")["labels"]
    asked = everything(dataset, "test")["labels"]
    commonest = np.bincount(labels[labels >= 0]).argmax()
    found = dataset.reference_scores(dataset.split("test", TestKey("mqar", "test of the data set")))
    assert found == {"majority": float((asked == commonest).sum() / (4 * 2000))}
    assert abs(found["majority"] - 1 / 8) < 0.03


def test_shapes_types_and_description():
    dataset = mqar(length=64, labels="last")
    spec, rows = dataset.describe(), everything(dataset, "validation")
    assert rows["inputs"].shape == (20, spec.max_len) == (20, 64)
    assert [rows[key].dtype for key in ("inputs", "keep", "labels")] == [np.int64, np.bool_, np.int64]
    assert rows["keep"].all()
    assert (spec.target, spec.num_classes, spec.vocab_size, spec.equal_length) == ("class", 8, 18, True)
    assert spec.sizes == {"train": 60, "validation": 20, "trainval": 80}
    assert spec.notes == (
        "synthetic control task: associative recall, one labelled query a sequence; chance is 0.125, knowing the "
        "values but not their keys gives 0.25",
    )
    assert mqar().describe().notes[0].startswith("synthetic control task: associative recall, every query labelled;")


def test_generation_is_deterministic_and_the_seed_matters():
    first, second, other = (everything(mqar(seed=seed, filler="random"), "train")["inputs"] for seed in (3, 3, 4))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


def test_larger_splits_only_append_rows_also_beyond_one_portion():
    few = mqar(validation_size=5, test_size=5, filler="random", num_queries=2)
    many = mqar(validation_size=5000, test_size=50, filler="random", num_queries=2)
    for key in ("inputs", "labels"):
        assert np.array_equal(everything(few, "train")[key], everything(many, "train")[key])
    assert np.array_equal(everything(few, "test")["inputs"], everything(many, "test")["inputs"][:5])


def test_the_test_split_is_sealed_and_shares_no_sequence_with_training():
    with pytest.raises(DataError, match="the test split is sealed"):
        mqar().split("test")
    training = {tuple(row) for row in everything(mqar(), "trainval")["inputs"]}
    assert not training & {tuple(row) for row in everything(mqar(), "test")["inputs"]}


def test_the_query_alone_says_nothing_about_the_label():
    small = {"num_pairs": 2, "num_keys": 4, "num_values": 4, "length": 9, "labels": "last"}
    rows = everything(mqar(**small, train_size=40_000), "train")
    for key in range(4):
        shares = np.bincount(rows["labels"][rows["inputs"][:, -1] == FIRST_KEY + key], minlength=4) / 10_000
        assert np.abs(shares - 0.25).max() < 0.03  # over five standard deviations


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"num_pairs": 9}, r"num_pairs 9 is more than num_keys 8, but those of a sequence are distinct: use"),
        ({"num_keys": 99, "num_pairs": 9}, "num_pairs 9 is more than num_values 8, .* use num_values 9 or more"),
        ({"length": 14}, "length 14 is too short for 4 pairs and 4 queries, .*: use length 15 or more"),
        ({"labels": "last", "length": 8}, "length 8 is too short for 4 pairs and 1 queries, .*: use length 9 or more"),
        ({"num_queries": 3, "length": 12}, "length 12 is too short for 4 pairs and 3 queries.*: use length 13 or more"),
        ({"num_queries": 5}, "num_queries 5 is more than num_pairs 4, but a pair is asked for once"),
        (
            {"length": 15, "power_a": 1.0},
            r"power_a 1.0 has no effect with a query at every place \(length 15, num_pairs 4, queries 4\): leave "
            r"it at 0.01, or use a larger length",
        ),
        (
            {"length": 9, "num_queries": 1, "filler": "random"},
            "filler random has no effect with length 9 and num_pairs 4, which leave no place to fill: leave it "
            "at blank, or use a larger length",
        ),
        ({"num_values": 1}, "num_values\n  Input should be greater than or equal to 2"),
    ],
)
def test_refusals(params, message):
    with pytest.raises(ValidationError, match=message):
        Config(**params)


def test_the_shortest_sequences_are_allowed():
    assert draw(Config(length=15), 0, 3).inputs.shape == (3, 15)
    assert draw(Config(length=9, labels="last"), 0, 3).inputs.shape == (3, 9)
    assert (
        draw(Config(length=3, num_pairs=1, num_keys=1, num_values=2), 0, 3).inputs[:, [0, 2]].tolist() == [[2, 2]] * 3
    )
    assert (PLUGIN.inputs, PLUGIN.targets) == ("tokens", ("positions", "class", "next-token"))
