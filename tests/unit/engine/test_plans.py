"""What every plan promises, and what token budgets and shard windows add; splits choose among
them.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subquad.data import ArraySplit
from subquad.engine.feed import _training_requests
from subquad.errors import ConfigError
from subquad.plan import Buckets, Permutation, PlanSettings, ShardWindow, TokenBudget

KINDS = ("permutation", "buckets", "tokens", "shards")
TOKENS = 60


def lengths_of(count, seed=0):
    return np.random.default_rng(seed).integers(1, 51, count)


def make(kind, count, batch_size=8, seed=3, **given):
    settings = PlanSettings(batch_size, seed, **{"epochs": 4, "bucket_batches": 3, **given})
    if kind == "permutation":
        return Permutation(count, settings)
    if kind == "buckets":
        return Buckets(count, settings, lengths_of(count))
    if kind == "tokens":
        return TokenBudget(count, settings, lengths_of(count), TOKENS)
    sizes = (count // 3, 0, count - count // 3)
    return ShardWindow(count, settings, sizes, 7)


@pytest.mark.parametrize("kind", KINDS)
@given(count=st.integers(1, 150), batch_size=st.integers(1, 20), seed=st.integers(0, 2**32 - 1))
def test_each_sample_comes_once_an_epoch(kind, count, batch_size, seed):
    plan = make(kind, count, batch_size, seed)
    found = [plan.batch(step) for step in range(plan.total_steps)]
    for epoch in range(4):
        batches = [indices for at, indices in found if at == epoch]
        assert len(batches) == plan.steps_of(epoch)
        assert sorted(np.concatenate(batches)) == list(range(count))
    assert [at for at, _ in found] == sorted(at for at, _ in found)
    assert plan.epochs(plan.total_steps) == 4


@pytest.mark.parametrize("kind", KINDS)
@given(count=st.integers(1, 150), step=st.integers(0, 60))
def test_a_step_does_not_depend_on_the_steps_before_it(kind, count, step):
    walked, direct = make(kind, count), make(kind, count)
    for before in range(step):
        walked.batch(before)
    (epoch, indices), (other, others) = walked.batch(step), direct.batch(step)
    assert (epoch, indices.tolist()) == (other, others.tolist())


@pytest.mark.parametrize("kind", KINDS)
@given(count=st.integers(1, 100), world=st.integers(1, 5), step=st.integers(0, 20))
def test_ranks_share_one_batch(kind, count, world, step):
    plan = make(kind, count)
    by_rank = [_training_requests(plan, plan.batch(step), rank, world, 3) for rank in range(world)]
    assert len({len(requests) for requests in by_rank}) == 1
    real = [request.indices for rank in by_rank for request in rank if request.real]
    assert np.array_equal(np.concatenate(real), plan.batch(step)[1])


@pytest.mark.parametrize("kind", KINDS)
def test_seeds_and_epochs_differ(kind):
    epochs = {
        tuple(make(kind, 90, seed=seed).cut(epoch)[0]) for seed in range(3) for epoch in range(3)
    }
    assert len(epochs) == 9


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_of_steps_is_the_beginning_of_a_longer_one(kind):
    short, whole = make(kind, 90, steps=5, epochs=None), make(kind, 90)
    assert short.total_steps == 5
    assert all(np.array_equal(short.batch(step)[1], whole.batch(step)[1]) for step in range(5))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("tokens", [[8], [3, 4], [0, 6, 7], [1, 5, 9, 2]]),
        ("shards", [[6, 7], [5, 4], [8, 9], [0, 1], [3, 2]]),
    ],
)
def test_another_process_cuts_alike(kind, expected):
    """Pinned: a change would break exact resume of older runs."""
    lengths = "np.array([13, 4, 11, 14, 29, 6, 19, 20, 21, 7])"
    settings = "PlanSettings(2, 5, epochs=2, bucket_batches=3)"
    made = {
        "tokens": f"TokenBudget(10, {settings}, {lengths}, 60)",
        "shards": f"ShardWindow(10, {settings}, (4, 2, 4), 4)",
    }[kind]
    code = f"""
import numpy as np
from subquad.plan import *
plan = {made}
print([plan.batch(step)[1].tolist() for step in range(plan.steps_of(0))])
import sys
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(expected)


@given(st.integers(1, 150), st.integers(51, 400), st.integers(0, 50))
def test_a_batch_keeps_to_its_budget_padding_included(count, tokens, seed):
    lengths = lengths_of(count, seed)
    plan = TokenBudget(count, PlanSettings(8, 0, epochs=1, bucket_batches=4), lengths, tokens)
    batches = [plan.batch(step)[1] for step in range(plan.total_steps)]
    assert all(
        len(batch) * lengths[batch].max() == len(batch) * plan.length(batch) <= tokens
        for batch in batches
    )


def test_a_budget_is_used():
    plan = TokenBudget(400, PlanSettings(50, 0, epochs=1, bucket_batches=8), lengths_of(400), 500)
    filled = [
        len(batch) * plan.length(batch)
        for batch in (plan.batch(step)[1] for step in range(plan.total_steps))
    ]
    assert np.median(filled) > 450


def test_epochs_of_a_budget_may_differ_in_their_number_of_batches():
    lengths = lengths_of(300)
    plan = TokenBudget(300, PlanSettings(8, 3, epochs=4, bucket_batches=3), lengths, 150)
    sizes = [plan.steps_of(epoch) for epoch in range(4)]
    assert len(set(sizes)) > 1
    assert plan.total_steps == sum(sizes)
    starts = np.cumsum([0, *sizes[:-1]]).tolist()
    assert [plan.place(start) for start in starts] == [(epoch, 0) for epoch in range(4)]
    assert [plan.epochs(start) for start in starts] == [0, 1, 2, 3]


def test_shards_are_read_one_after_another():
    plan = ShardWindow(60, PlanSettings(5, 1, epochs=1), (10, 20, 30), 10)
    shard = np.repeat([0, 1, 2], (10, 20, 30))
    found = [set(shard[batch].tolist()) for batch in (plan.batch(step)[1] for step in range(12))]
    assert all(len(shards) == 1 for shards in found)  # windows of these shards do not overlap
    assert len({tuple(plan.cut(epoch)[0][:10] // 10) for epoch in range(8)}) > 1
    assert not (np.diff(plan.cut(0)[0]) > 0).all()


@pytest.mark.parametrize(
    ("make_it", "message"),
    [
        (lambda: TokenBudget(3, PlanSettings(2, 0), np.ones(3), 4), "train.bucket_batches: got 0"),
        (
            lambda: TokenBudget(2, PlanSettings(2, 0, bucket_batches=1), np.array([3, 9]), 8),
            "samples of 3 to 9",
        ),
        (
            lambda: TokenBudget(2, PlanSettings(2, 0, bucket_batches=1), np.array([0, 2]), 8),
            "samples of 0 to 2",
        ),
        (
            lambda: ShardWindow(5, PlanSettings(2, 0), (2, 2), 3),
            "shards of 4 samples for a split of 5",
        ),
        (lambda: ShardWindow(4, PlanSettings(2, 0), (2, 2), 0), "a window of 0 samples"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(make_it, message):
    with pytest.raises(ConfigError, match=message):
        make_it()


def test_a_split_chooses_its_plan():
    class Shards(ArraySplit):
        def plan(self, settings):
            return ShardWindow(len(self), settings, (4, 6), 5)

    keep = np.tri(10, dtype=bool)
    settings, pooled = PlanSettings(2, 0, epochs=1), PlanSettings(2, 0, epochs=1, bucket_batches=2)
    assert type(ArraySplit({"keep": keep}).plan(settings)) is Permutation
    assert type(ArraySplit({"keep": keep}).plan(pooled)) is Buckets
    assert type(Shards({"keep": keep}).plan(settings)) is ShardWindow
    with pytest.raises(
        ConfigError, match="got 2, needs the samples' lengths, which this data set does not give"
    ):
        ArraySplit({"inputs": keep}).plan(pooled)
