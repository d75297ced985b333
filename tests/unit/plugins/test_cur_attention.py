"""The attention of CUR: against the oracle with every option, and the identities that hold
whatever the numbers.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from subquad.plugin import Site
from subquad_plugins.cur import Config
from subquad_plugins.cur import naive as oracle
from subquad_plugins.cur.attention import cur_attention, put_rows
from subquad_plugins.cur.core import CUR
from subquad_plugins.cur.selection import select_indices
from subquad_plugins.numerics.tensors import laplace, take_rows

OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "one-iteration": {"iterations": 1},
    "detached-start": {"start_gradient": False},
    "exact": {"pinv": "exact"},
    "ridge": {"pinv": "ridge", "ridge": 0.01},
    "copy": {"copy_rows": True},
    "renormalise": {"renormalise": True},
    "renormalise-ridge-copy": {"renormalise": True, "pinv": "ridge", "copy_rows": True},
    "different": {"mode": "different"},
    "different-copy": {"mode": "different", "copy_rows": True},
    "laplace": {"function": "laplace"},
    "laplace-exact-copy": {"function": "laplace", "pinv": "exact", "copy_rows": True},
    "sum-q": {"selection": "sum", "same_source": "q"},
    "embed-class": {"selection": "embed", "column": 3, "force_class": "always"},
    "step": {"selection": "step"},
    "step-full": {"selection": "step_full"},
    "step-full-different": {"selection": "step_full", "mode": "different"},
    "linspace": {"selection": "linspace"},
    "random": {"selection": "random"},
    "random-different": {"selection": "random", "mode": "different", "force_class": "always"},
}
KEEPS = {
    "all": [11 * [1], 11 * [1]],
    "right": [11 * [1], 7 * [1] + 4 * [0]],
    "left": [3 * [0] + 8 * [1], 11 * [1]],
    "holes": [[1, 0, 1, 1, 1, 0, 1, 1, 1, 1, 1], [0, 1, 1, 0, 1, 1, 1, 0, 0, 1, 0]],
    "few": [11 * [1], 9 * [0] + 2 * [1]],
}


def qkv(
    length: int = 11, batch: int = 2, seed: int = 0, scale: float = 1.5, width: int = 4
) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shape = (batch, 2, length, width)
    return [
        (scale * torch.randn(shape, generator=generator, dtype=torch.float64)).requires_grad_()
        for _ in range(3)
    ]


def both(
    options: dict[str, Any], tensors: list[Tensor], keep: Tensor | None, m: int = 4
) -> list[Tensor]:
    """The core's and the oracle's outputs."""
    config = Config(num_indices=m, **options)
    core = CUR(config, Site(dim=8, num_heads=2, seed=7)).eval()
    ours = core(*tensors, query_keep=keep, key_keep=keep)
    seed = 0 if core.seed is None else int(core.seed)
    q, k, v = tensors
    theirs = oracle.cur(
        q, k, v, config, query_keep=keep, key_keep=keep, force_first=core.force_first, seed=seed
    )
    return [ours, theirs]


@pytest.mark.parametrize("name", OPTIONS)
def test_outputs_and_gradients_equal_the_oracle(name):
    for keep in KEEPS:
        tensors, mask = qkv(), torch.tensor(KEEPS[keep], dtype=torch.bool)
        real = mask[:, None, :, None]
        weight = torch.randn(
            2, 2, 11, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64
        )
        results = []
        for out in both(OPTIONS[name], tensors, mask):
            results.append([out * real, *torch.autograd.grad((out * real * weight).sum(), tensors)])
        for ours, theirs in zip(*results, strict=True):
            scale = max(1.0, float(theirs.detach().abs().max()))
            torch.testing.assert_close(
                ours / scale, theirs / scale, rtol=0, atol=1e-8 if "exact" in name else 1e-12
            )


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 31])
@pytest.mark.parametrize("name", ["default", "copy", "laplace", "step-full"])
def test_any_length_equals_the_oracle_without_a_mask(name, length):
    ours, theirs = both(OPTIONS[name], qkv(length, seed=length, scale=0.7), None)
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)


def test_cross_attention_of_other_lengths_equals_the_oracle():
    (q, _, _), (_, k, v) = qkv(5), qkv(9, seed=1)
    q_keep, k_keep = torch.ones(2, 5, dtype=torch.bool), torch.ones(2, 9, dtype=torch.bool)
    q_keep[0, 2:], k_keep[1, :6] = False, False
    config = Config(num_indices=4, mode="different", copy_rows=True)
    out = CUR(config, Site(dim=8, num_heads=2))(q, k, v, query_keep=q_keep, key_keep=k_keep)
    expected = oracle.cur(q, k, v, config, query_keep=q_keep, key_keep=k_keep)
    torch.testing.assert_close(out * q_keep[:, None, :, None], expected, rtol=1e-11, atol=1e-11)


def test_selected_queries_are_interpolated():
    q, k, v = qkv(30)
    index, _ = select_indices(q, k, 4, "linspace")
    out = cur_attention(q, k, v, index, index, pinv="exact")
    exact = F.scaled_dot_product_attention(take_rows(q, index), k, v)
    torch.testing.assert_close(take_rows(out, index), exact, rtol=1e-9, atol=1e-9)
    iterated = cur_attention(q, k, v, index, index, iterations=2)
    assert (take_rows(iterated, index) - exact).abs().max() > 1e-2
    copied = cur_attention(q, k, v, index, index, iterations=2, copy_rows=True)
    torch.testing.assert_close(take_rows(copied, index), exact, rtol=1e-12, atol=1e-12)


def test_a_row_sum_of_nothing_stays_finite():
    q, k, v = qkv(30, scale=8.0)
    index, _ = select_indices(q, k, 4, "abs")
    out = cur_attention(q, k, v, index, index, iterations=4, renormalise=True)
    assert out.isfinite().all()
    assert out.abs().max() < 1e4


def test_copying_to_one_place_twice_counts_its_gradient_once():
    out = torch.zeros(1, 1, 4, 2, dtype=torch.float64)
    rows = torch.arange(6.0, dtype=torch.float64).view(1, 1, 3, 2)
    rows = torch.cat([rows, rows[:, :, 1:2]], 2).requires_grad_()
    keep = torch.tensor([[[True, True, False, True]]])
    put = put_rows(out, rows, torch.tensor([[[2, 0, 1, 0]]]), keep)
    assert put[0, 0].tolist() == [[2, 3], [0, 0], [0, 1], [0, 0]]
    (grad,) = torch.autograd.grad(put.sum(), rows)
    assert grad[0, 0].tolist() == [[1, 1], [0.5, 0.5], [0, 0], [0.5, 0.5]]


def test_laplace_stays_finite_where_rows_sum_to_25():
    q, k, v = (x.detach().abs() for x in qkv(256, scale=1.0))
    index, _ = select_indices(q, k, 64, "linspace")
    u = 0.5 * (
        1
        + torch.erf(
            (take_rows(q, index) @ take_rows(k, index).mT * 0.2 - 0.707107) / (0.282095 * 2**0.5)
        )
    )
    assert u.sum(-1).max() > 25
    for iterations in (4, 6, 12):
        out = cur_attention(
            q, k, v, index, index, function="laplace", scale=0.2, iterations=iterations
        )
        assert out.isfinite().all()
    wrong = cur_attention(q, k, v, index, index, function="laplace", scale=0.2, start="rows")
    assert not wrong.isfinite().all()


@pytest.mark.parametrize("function", ["softmax", "laplace"])
@pytest.mark.parametrize("masked", [False, True])
def test_a_bias_is_added_to_all_three_scores(function, masked):
    q, k, v = qkv(12)
    bias = torch.randn(
        12, 12, generator=torch.Generator().manual_seed(5), dtype=torch.float64
    ).requires_grad_()
    keep = torch.ones(2, 12, dtype=torch.bool)
    keep[0, 9:] = not masked
    index, counted = select_indices(q, k, 12, "linspace", keep=keep)
    columns = bias.expand(2, 2, 12, 12).gather(3, index[:, :, None].expand(-1, -1, 12, -1))
    rows = take_rows(bias.expand(2, 2, 12, 12), index)
    options: dict[str, Any] = {
        "pinv": "exact",
        "function": function,
        "scale": 0.5,
        "bias": (columns, rows),
    }
    out = cur_attention(q, k, v, index, index, key_keep=keep, picks_keep=counted, **options)
    scores = 0.5 * q @ k.mT + bias
    hidden = ~keep[:, None, None]
    if function == "softmax":
        weights = torch.softmax(scores.masked_fill(hidden, -torch.inf), -1)
    else:
        weights = 0.5 * (1 + torch.erf((scores - 0.707107) / (0.282095 * 2**0.5))) * ~hidden
    real = keep[:, None, :, None]
    torch.testing.assert_close(out * real, weights @ v * real, rtol=1e-7, atol=1e-7)
    (grad,) = torch.autograd.grad((out * real).square().sum(), bias, retain_graph=True)
    (expected,) = torch.autograd.grad((weights @ v * real).square().sum(), bias)
    torch.testing.assert_close(grad, expected, rtol=1e-5, atol=1e-5)


def test_a_scale_for_each_sample():
    q, k, v = qkv()
    index, _ = select_indices(q, k, 4, "linspace")
    scale = torch.tensor([0.3, 0.7], dtype=torch.float64)[:, None, None, None]
    for function in ("softmax", "laplace"):
        out = cur_attention(q, k, v, index, index, function=function, scale=scale)
        for b, factor in enumerate((0.3, 0.7)):
            alone = cur_attention(
                *(x[b : b + 1] for x in (q, k, v, index, index)), function=function, scale=factor
            )
            torch.testing.assert_close(out[b : b + 1], alone, rtol=1e-12, atol=1e-12)


def test_laplace_rows_cannot_be_renormalised():
    q, k, v = qkv()
    index, _ = select_indices(q, k, 4, "step")
    with pytest.raises(
        ValueError, match="renormalise needs function softmax: rows of Laplace attention"
    ):
        cur_attention(q, k, v, index, index, function="laplace", renormalise=True)


def test_laplace_weights_keep_their_digits_however_small():
    scores = torch.linspace(-1.5, 2.0, 36)
    got, exact = laplace(scores), laplace(scores.double())
    torch.testing.assert_close(got.double(), exact, rtol=1e-5, atol=0.0)
    # the normal distribution's, by scipy
    assert float(exact[0]) == pytest.approx(2.5588489e-15, rel=1e-7)
