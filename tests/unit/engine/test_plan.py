"""Sample order and how a global batch is cut."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subquad.engine.feed import _evaluation_requests, _training_requests, share
from subquad.errors import ConfigError
from subquad.plan import Permutation, PlanSettings, TokenBudget, _epoch_order

sizes = st.integers(1, 300)
batches = st.integers(1, 64)
worlds = st.integers(1, 5)


@given(sizes, st.integers(0, 2**32 - 1), st.integers(0, 1000))
def test_an_epoch_is_a_permutation_and_a_pure_function(size, seed, epoch):
    order = _epoch_order(size, seed, epoch)
    assert sorted(order) == list(range(size))
    assert np.array_equal(order, _epoch_order(size, seed, epoch))


def test_a_batch_larger_than_the_split_is_told():
    notes = Permutation(12, PlanSettings(16, 0, epochs=1)).notes()
    assert notes == [
        "train.batch_size: 16 asked, but there are 12 training samples, so no batch is larger"
    ]
    assert Permutation(16, PlanSettings(16, 0, epochs=1)).notes() == []


def test_the_order_is_pinned():
    # Philox streams are stable over NumPy versions; a change here would break exact resume of older
    # runs.
    assert _epoch_order(10, 0, 0).tolist() == [0, 2, 9, 1, 8, 5, 4, 3, 6, 7]


def test_seeds_and_epochs_give_other_orders():
    orders = {tuple(_epoch_order(50, seed, epoch)) for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16


@given(sizes, batches, worlds, st.one_of(st.none(), st.integers(1, 10)), st.integers(0, 20))
def test_ranks_cut_a_batch_without_loss_and_in_step(size, batch_size, world, micro, step):
    plan = Permutation(size, PlanSettings(batch_size, 3, steps=100))
    _, indices = plan.batch(step)
    by_rank = [
        _training_requests(plan, plan.batch(step), rank, world, micro) for rank in range(world)
    ]
    assert len({len(requests) for requests in by_rank}) == 1
    real = [request.indices for rank in by_rank for request in rank if request.real]
    assert np.array_equal(np.concatenate(real), indices)
    assert all(len(request.indices) for rank in by_rank for request in rank)
    assert all(len(request.indices) <= micro for rank in by_rank for request in rank if micro)


def test_the_last_batch_of_an_epoch_is_kept():
    plan = Permutation(10, PlanSettings(4, 0, steps=6))
    assert [len(plan.batch(step)[1]) for step in range(6)] == [4, 4, 2, 4, 4, 2]
    assert [plan.batch(step)[0] for step in range(6)] == [0, 0, 0, 1, 1, 1]
    assert set(np.concatenate([plan.batch(step)[1] for step in range(3)])) == set(range(10))


@given(st.integers(0, 60), worlds)
def testshares_differ_by_one_at_most(size, world):
    lengths = [len(share(np.arange(size), rank, world)) for rank in range(world)]
    assert sum(lengths) == size
    assert max(lengths) - min(lengths) <= 1


@given(sizes, worlds, batches)
def test_evaluation_sees_each_sample_once(size, world, batch_size):
    by_rank = [list(_evaluation_requests(size, rank, world, batch_size)) for rank in range(world)]
    assert len({len(requests) for requests in by_rank}) == 1
    samples = np.concatenate(
        [request.indices for rank in by_rank for request in rank if request.real]
    )
    assert np.array_equal(samples, np.arange(size))


@pytest.mark.parametrize("world", [1, 2, 3])
def test_the_order_does_not_depend_on_the_number_of_ranks(world):
    plan = Permutation(37, PlanSettings(8, 5, steps=10))
    for step in range(10):
        ranks = [
            _training_requests(plan, plan.batch(step), rank, world, None) for rank in range(world)
        ]
        joined = np.concatenate(
            [request.indices for rank in ranks for request in rank if request.real]
        )
        assert np.array_equal(joined, plan.batch(step)[1])


@pytest.mark.parametrize("count", [1, 2, 7, 16, 33])
@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
@pytest.mark.parametrize("micro_batch", [None, 2, 4])
def test_samples_that_belong_together_are_not_parted(count, world_size, micro_batch):
    plan = Permutation(count, PlanSettings(count, 0, steps=1))
    order = plan.batch(0)[1].tolist()
    pairs = [order[start : start + 2] for start in range(0, count, 2)]
    ranks = [
        _training_requests(plan, plan.batch(0), rank, world_size, micro_batch, 2)
        for rank in range(world_size)
    ]
    real = [request.indices.tolist() for requests in ranks for request in requests if request.real]
    assert [index for indices in real for index in indices] == order
    for indices in real:
        assert [indices[start : start + 2] for start in range(0, len(indices), 2)] == [
            pair for pair in pairs if pair[0] in indices
        ]
    assert len({len(requests) for requests in ranks}) == 1, "collective calls pair up"


def test_epochs_without_end_take_no_time_to_count():
    assert Permutation(64, PlanSettings(16, 0, epochs=10**12)).total_steps == 4 * 10**12
    budget = TokenBudget(
        64, PlanSettings(16, 0, epochs=10**12, bucket_batches=1), lengths=np.ones(64, int), tokens=8
    )
    with pytest.raises(
        ConfigError, match=r"train\.epochs: got 1000000000000: .* at most; give train\.steps"
    ):
        _ = budget.total_steps
