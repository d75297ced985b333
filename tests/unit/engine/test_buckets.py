"""Batches of like length: the order is a pure function, every sample comes once an epoch, and
only padding is cut.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subquad.data import Array, ArraySplit, DataSpec, Split, sample_lengths
from subquad.engine.feed import _sorted_requests, _training_requests, _trimmed
from subquad.engine.parts import _untrimmable
from subquad.errors import DataError
from subquad.plan import UNTRIMMED, Buckets, Permutation, PlanSettings, _epoch_order

SPEC = DataSpec.tokens(max_len=6, vocab_size=9)
PAIRS = DataSpec.tokens(max_len=6, vocab_size=9, target="pair").arrays
lengths_of = st.lists(st.integers(1, 50), min_size=1, max_size=200)


def plan(lengths, batch_size, pool, seed=3):
    return Buckets(
        len(lengths),
        PlanSettings(batch_size, seed, steps=10**6, bucket_batches=pool),
        np.array(lengths),
    )


def split(lengths, max_len=6):
    keep = np.arange(max_len) < np.array(lengths)[:, None]
    return ArraySplit(
        {"inputs": keep.astype(np.int64), "keep": keep, "labels": np.arange(len(lengths))}
    )


@given(
    lengths_of,
    st.integers(1, 20),
    st.integers(1, 5),
    st.integers(0, 2**32 - 1),
    st.integers(0, 1000),
)
def test_an_epoch_has_each_sample_once_and_is_a_pure_function(
    lengths, batch_size, pool, seed, epoch
):
    buckets = plan(lengths, batch_size, pool, seed)
    steps = range(epoch * buckets.steps_per_epoch, (epoch + 1) * buckets.steps_per_epoch)
    batches = [buckets.batch(step)[1] for step in steps]
    assert [len(batch) for batch in batches] == [
        len(buckets.batch(step % buckets.steps_per_epoch)[1]) for step in steps
    ]
    assert sorted(np.concatenate(batches)) == list(range(len(lengths)))
    again = plan(lengths, batch_size, pool, seed)
    assert all(
        np.array_equal(again.batch(step)[1], batch)
        for step, batch in zip(steps, batches, strict=True)
    )


@given(lengths_of, st.integers(1, 20), st.integers(1, 5))
def test_a_batch_holds_neighbours_in_length_of_one_pool(lengths, batch_size, pool):
    buckets = plan(lengths, batch_size, pool)
    order, known = _epoch_order(len(lengths), 3, 0), np.array(lengths)
    whole = len(lengths) - len(lengths) % batch_size
    expected = []
    for start in range(0, whole, pool * batch_size):
        members = order[start : min(start + pool * batch_size, whole)]
        members = members[np.argsort(known[members], kind="stable")]
        expected += [
            tuple(members[at : at + batch_size]) for at in range(0, len(members), batch_size)
        ]
    batches = [tuple(buckets.batch(step)[1]) for step in range(buckets.steps_per_epoch)]
    assert sorted(batches[: len(expected)]) == sorted(expected)
    assert batches[len(expected) :] == ([tuple(order[whole:])] if whole < len(lengths) else [])


def test_the_order_is_pinned():
    # A change here would break exact resume of older runs.
    lengths = np.array([5, 1, 9, 3, 7, 2, 8, 4, 6, 10])
    found = plan(lengths, 2, 2, seed=0).order(0)
    assert found.tolist() == [5, 3, 2, 9, 1, 0, 7, 6, 8, 4]


def test_batches_come_in_random_order_of_length():
    buckets = plan(range(1, 401), 4, 25)
    longest = [buckets.length(buckets.batch(step)[1]) for step in range(200)]
    assert abs(np.corrcoef(longest[:99], longest[1:100])[0, 1]) < 0.3
    assert longest[:100] != longest[100:]


@given(
    lengths_of,
    st.integers(1, 20),
    st.integers(1, 4),
    st.one_of(st.none(), st.integers(1, 6)),
    st.integers(0, 30),
)
def test_ranks_and_micro_batches_trim_alike_to_the_longest(lengths, batch_size, world, micro, step):
    buckets = plan(lengths, batch_size, 3)
    _, indices = buckets.batch(step)
    wanted = [
        each
        for rank in range(world)
        for each in _training_requests(buckets, buckets.batch(step), rank, world, micro)
    ]
    assert {each.length for each in wanted} == {max(lengths[index] for index in indices)}
    assert np.array_equal(np.concatenate([each.indices for each in wanted if each.real]), indices)


@given(lengths_of, st.integers(1, 4), st.integers(1, 20))
def test_evaluation_sees_each_sample_once_at_its_length_longest_first(lengths, world, batch_size):
    known = np.array(lengths)
    by_rank = [list(_sorted_requests(known, rank, world, batch_size)) for rank in range(world)]
    assert len({len(requests) for requests in by_rank}) == 1
    for passes in zip(*by_rank, strict=True):
        assert len({pass_.length for pass_ in passes}) == 1
        assert max(max(known[pass_.indices]) for pass_ in passes) == passes[0].length
        assert all(len(pass_.indices) <= batch_size for pass_ in passes)
    longest = np.array([request.length for request in by_rank[0]])
    assert (np.diff(longest) <= 0).all()
    samples = np.concatenate(
        [request.indices for rank in by_rank for request in rank if request.real]
    )
    assert sorted(samples) == list(range(len(lengths)))


def test_without_buckets_nothing_is_trimmed():
    plan = Permutation(10, PlanSettings(4, 0, steps=6))
    assert {request.length for request in _training_requests(plan, plan.batch(0), 0, 1, None)} == {
        None
    }


def test_only_padding_is_cut():
    batch = split([2, 4, 3]).fetch(np.arange(3), epoch=0, seed=0)
    batch |= {"inputs_b": batch["inputs"], "keep_b": batch["keep"]}
    cut = _trimmed(batch, 4, PAIRS)
    assert {name: values.shape for name, values in cut.items()} == {
        "inputs": (3, 4), "keep": (3, 4), "labels": (3,), "inputs_b": (3, 4), "keep_b": (3, 4),
    }  # fmt: skip
    assert cut["inputs"].sum() == batch["inputs"].sum()
    assert cut["inputs"].flags["C_CONTIGUOUS"]
    assert all(
        np.array_equal(values, batch[name])
        for name, values in _trimmed(batch, UNTRIMMED, PAIRS).items()
    )


@pytest.mark.parametrize("name", ["keep", "keep_b"])
def test_a_real_token_is_never_cut(name):
    with pytest.raises(
        DataError, match=f"gives a length of 3, but {name} has real tokens beyond it"
    ):
        _trimmed({name: np.array([[True, True, True, True]])}, 3, PAIRS)


def test_lengths_end_at_the_last_real_token():
    keep = np.array([[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]], dtype=bool)
    assert ArraySplit({"keep": keep}).lengths().tolist() == [2, 3, 0, 4]
    pairs = ArraySplit({"keep": keep, "keep_b": keep[::-1]})
    assert pairs.lengths() is not None
    assert np.array_equal(np.asarray(pairs.lengths()), [4, 3, 3, 4])


def test_a_sample_without_tokens_keeps_its_padding():
    assert np.asarray(sample_lengths(split([2, 0, 6]))).tolist() == [2, UNTRIMMED, 6]


class Unknown(Split):
    def __len__(self):
        return 3

    def fetch(self, indices, *, epoch, seed):
        raise NotImplementedError


@pytest.mark.parametrize(
    ("spec", "data", "message"),
    [
        (SPEC, Unknown(), "needs the samples' lengths, which this data set does not give"),
        (SPEC, ArraySplit({"inputs": np.zeros((3, 6))}), "needs the samples' lengths"),
        (
            SPEC,
            split([6, 6, 0]),
            "has no effect with this data set, whose training sequences all have 6 tokens",
        ),
        (
            DataSpec.tokens(max_len=6, vocab_size=9, equal_length=True),
            split([2, 3]),
            "has no effect with this data set, whose sequences are equally long",
        ),
        (
            DataSpec.tokens(max_len=6, vocab_size=9, target="positions"),
            split([2, 3]),
            "trims positions, and this data set labels them",
        ),
    ],
)
def test_data_that_cannot_be_bucketed_are_refused(spec, data, message):
    assert _untrimmable(spec, data).startswith(message)


def test_other_data_are_bucketed():
    data = split([6, 6, 5])
    assert _untrimmable(SPEC, data) == ""
    chosen = data.plan(PlanSettings(2, 0, epochs=1, bucket_batches=8))
    assert isinstance(chosen, Buckets)
    assert chosen.lengths.tolist() == [6, 6, 5]


def test_every_array_with_the_axis_is_cut_whatever_its_name_and_place():
    arrays = {
        "video": Array(("height", "length")),
        "real": Array(("length",), "bool"),
        "other": Array(("height",)),
    }
    batch = {
        name: np.ones((2, *(5 for _ in array.axes)), array.dtype) for name, array in arrays.items()
    }
    batch["real"][:, 3:] = False
    batch["extra"] = np.ones((2, 5))
    shapes = {name: values.shape for name, values in _trimmed(batch, 3, arrays).items()}
    assert shapes == {"video": (2, 5, 3), "real": (2, 3), "other": (2, 5), "extra": (2, 5)}
    with pytest.raises(DataError, match="real has real tokens beyond it"):
        _trimmed(batch, 2, arrays)
