"""Which tokens CUR selects: against the oracle, with padding anywhere, and what each selection
promises.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from subquad_plugins.cur import Config
from subquad_plugins.cur.naive import pick
from subquad_plugins.cur.selection import select_indices, top_indices

SELECTIONS: list[Any] = ["sum", "abs", "embed", "step", "step_full", "linspace", "random"]
SCORED: list[Any] = ["sum", "abs", "embed"]
SPACED: list[Any] = ["step", "step_full", "linspace"]


def rows(batch: int, length: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """q and k of two heads; values in quarters, so that scores tie."""
    generator = torch.Generator().manual_seed(seed)
    q, k = (torch.randint(-8, 9, (batch, 2, length, 4), generator=generator) / 4 for _ in range(2))
    return q.double(), k.double()


@settings(max_examples=60)
@given(
    selection=st.sampled_from(SELECTIONS),
    source=st.sampled_from(["q", "k", "q+k"]),
    m=st.integers(1, 9),
    keep=st.lists(
        st.lists(st.booleans(), min_size=11, max_size=11).filter(any), min_size=2, max_size=2
    ),
    first=st.booleans(),
    seed=st.integers(0, 2**33),
)
def test_picks_are_those_of_each_sample_alone(selection, source, m, keep, first, seed):
    q, k = rows(2, 11)
    mask = torch.tensor(keep)
    options: dict[str, Any] = {"source": source, "column": 2, "force_first": first, "seed": seed}
    index, counted = select_indices(q, k, m, selection, keep=mask, **options)
    assert counted is not None
    config = Config(num_indices=m, selection=selection, column=2 if selection == "embed" else 0)
    for b in range(2):
        real = mask[b].nonzero()[:, 0]
        for h in range(2):
            # Regular distances contain the first token anyway.
            alone = pick(q[b, h, real], k[b, h, real], config, source, first, (seed, h))
            found = index[b, h][counted[b, h]].tolist()
            assert found == real[alone].tolist()
            repeated = index[b, h][~counted[b, h]]
            assert (repeated == found[-1]).all()
            assert index[b, h].tolist() == [*found, *repeated.tolist()]


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("length", [1, 5, 11])
def test_no_mask_is_a_mask_of_real_tokens(selection, length):
    q, k = rows(2, length)
    index, none = select_indices(q, k, 4, selection, seed=3)
    masked, counted = select_indices(
        q, k, 4, selection, seed=3, keep=torch.ones(2, length, dtype=torch.bool)
    )
    assert none is None
    assert counted is not None
    assert torch.equal(masked[counted].view_as(index), index)


@pytest.mark.parametrize("selection", SELECTIONS)
def test_a_sample_of_padding_alone_gets_picks(selection):
    q, k = rows(2, 6)
    keep = torch.zeros(2, 6, dtype=torch.bool)
    index, counted = select_indices(q, k, 3, selection, keep=keep, seed=0)
    assert counted is not None
    assert counted.any(-1).all()
    assert ((index >= 0) & (index < 6)).all()


@pytest.mark.parametrize(
    ("length", "m", "step", "full", "linspace"),
    [
        (577, 16, (16, 540), (17, 576), (16, 540)),
        (577, 32, (32, 558), (33, 576), (32, 558)),
        (577, 64, (64, 567), (65, 576), (64, 567)),
        (577, 128, (128, 508), (145, 576), (128, 572)),
        (197, 128, (128, 127), (197, 196), (128, 195)),
        (1000, 64, (64, 945), (67, 990), (64, 984)),
    ],
)
def test_counts_and_ends_of_regular_distances(length, m, step, full, linspace):
    x = torch.zeros(1, 1, length, 1)
    cases: list[Any] = [("step", step), ("step_full", full), ("linspace", linspace)]
    for selection, expected in cases:
        index, _ = select_indices(x, x, m, selection)
        assert (index.shape[-1], int(index[0, 0, -1])) == expected
        assert index[0, 0, 0] == 0


@given(m=st.integers(1, 20), times=st.integers(1, 20))
@settings(max_examples=30)
def test_step_and_linspace_agree_where_m_divides_the_length(m, times):
    x = torch.zeros(1, 1, m * times, 1)
    chosen = [select_indices(x, x, m, way)[0] for way in SPACED]
    assert all(torch.equal(indices, chosen[0]) for indices in chosen)


@pytest.mark.parametrize("selection", [*SCORED, "random"])
def test_the_first_token_replaces_the_worst_pick(selection):
    q, k = rows(3, 40, seed=1)
    # token 4 is the first real one, and a poor one
    q[:, :, 4] = k[:, :, 4] = -0.5 if selection == "sum" else 0.0
    keep = torch.ones(3, 40, dtype=torch.bool)
    keep[:, :4] = False
    free, _ = select_indices(q, k, 8, selection, keep=keep, seed=1)
    forced, counted = select_indices(q, k, 8, selection, keep=keep, seed=1, force_first=True)
    assert counted is not None
    assert counted.all()
    assert (forced[..., 0] == 4).all()
    for before, after in zip(
        free.flatten(0, 1).tolist(), forced.flatten(0, 1).tolist(), strict=True
    ):
        assert len(set(after)) == 8
        assert len(set(after) - set(before)) <= 1


def test_equal_scores_go_to_the_earlier_token():
    scores = torch.tensor([[[1.0, 3.0, 2.0, 2.0, 3.0, 2.0]]])
    assert top_indices(scores, 3)[0].tolist() == [[[1, 2, 4]]]
    assert top_indices(scores, 4)[0].tolist() == [[[1, 2, 3, 4]]]


def test_scores_that_are_no_numbers_come_last():
    scores = torch.tensor([[[torch.nan, 1.0, torch.nan, -5.0]]])
    assert top_indices(scores, 2)[0].tolist() == [[[1, 3]]]
    assert top_indices(scores, 3)[0].tolist() == [[[0, 1, 3]]]


def test_random_picks_with_a_seed_depend_on_it_the_head_and_the_number_of_tokens_alone():
    q, k = rows(2, 200)
    index, _ = select_indices(q, k, 20, "random", seed=5)
    other, _ = select_indices(q + 1, k * 2, 20, "random", seed=5)
    assert torch.equal(index, other)
    assert torch.equal(index[0], index[1])
    assert not torch.equal(index[0, 0], index[0, 1])
    assert not torch.equal(index, select_indices(q, k, 20, "random", seed=6)[0])
    shorter, _ = select_indices(q[:, :, :199], k[:, :, :199], 20, "random", seed=5)
    assert not torch.equal(shorter, index)


@pytest.mark.ci
def test_random_picks_are_spread_evenly():
    x = torch.zeros(1, 1, 50, 1)
    drawn = torch.cat(
        [select_indices(x, x, 5, "random", seed=seed)[0].flatten() for seed in range(2000)]
    )
    counts = torch.bincount(drawn, minlength=50).double()
    # 2000 x 5 draws of 50 tokens: 200 each; chi-square of 49 degrees of freedom is below 90 but
    # once in 3000 cases.
    assert ((counts - 200) ** 2 / 200).sum() < 90


def test_random_picks_without_a_seed_follow_the_generator():
    q, k = rows(2, 60)
    torch.manual_seed(0)
    first, second = (select_indices(q, k, 6, "random")[0] for _ in range(2))
    torch.manual_seed(0)
    again, _ = select_indices(q, k, 6, "random")
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


def test_selection_passes_no_gradient():
    q, k = (x.requires_grad_() for x in rows(1, 9))
    index, counted = select_indices(q, k, 3, "abs", keep=torch.ones(1, 9, dtype=torch.bool))
    assert counted is not None
    assert not index.requires_grad
    assert not counted.requires_grad
