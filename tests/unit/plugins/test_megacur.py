"""MegaCUR: Mega where every token is selected, its weights, its padding, and that no L x L
tensor is made.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensors import built, drawn, padded_everywhere

from subquad.plugin import Site
from subquad_plugins.cur.selection import select_indices
from subquad_plugins.mega import Config as MegaConfig
from subquad_plugins.mega.attention import mega_weights
from subquad_plugins.mega.bias import dense_bias
from subquad_plugins.mega.naive import mega
from subquad_plugins.megacur.mixer import MegaCUR

PADDED = padded_everywhere(11)[[0, 1, 3]]
"""One sample padded behind, one in front, one not at all."""

SHARED = [
    {},
    {"attention": "laplace"},
    {"chunk_size": 4},
    {"attention": "laplace", "chunk_size": 5, "norm": "scale"},
    {"bias": "rotary", "norm": "layer"},
]


def build(name: str = "megacur", *, max_len=11, **params: Any) -> Any:
    return built(name, {"ema_dim": 3, **params}, dim=8, max_len=max_len)


@pytest.mark.parametrize("params", SHARED, ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_all_tokens_selected_and_an_exact_inverse_give_mega(params, masked):
    size = params.get("chunk_size", 11)
    mixer, x = build(**params, num_indices=size, pinv="exact"), drawn(3, 11, 8)
    dense = build("mega", **params)
    dense.load_state_dict(mixer.state_dict(), strict=True)
    keep = PADDED if masked else None
    real = torch.ones(3, 11, dtype=torch.bool) if keep is None else keep
    torch.testing.assert_close(
        mixer(x, keep=keep)[real], dense(x, keep=keep)[real], rtol=0, atol=1e-8
    )


def test_weights_load_both_ways():
    for params in SHARED:
        cur = build(**params, num_indices=4)
        dense = build("mega", **params)
        shapes = {name: value.shape for name, value in dense.state_dict().items()}
        assert {name: value.shape for name, value in cur.state_dict().items()} == shapes
        dense.load_state_dict(cur.state_dict(), strict=True)
        cur.load_state_dict(dense.state_dict(), strict=True)


@pytest.mark.parametrize("form", ["softmax", "laplace"])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_is_c_u_r_of_gathered_scores(form, masked):
    """C, U and R written out from the dense scores of one chunk."""
    mixer = build(attention=form, num_indices=4, pinv="exact")
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(3, 1, 11, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    value = torch.randn(3, 1, 11, 6, generator=generator, dtype=torch.float64)
    keep = PADDED if masked else torch.ones(3, 11, dtype=torch.bool)
    distances = mixer.bias.distances(11)
    out = mixer.attend(q, k, value, keep[:, None] if masked else None, distances)
    picks, _ = select_indices(q, k, 4, "abs", keep=keep)
    dense, counts = dense_bias(distances), keep.sum(1)
    for sample, index in enumerate(picks[:, 0]):
        scale = 0.5 if form == "softmax" else 1 / int(counts[sample])
        scores = scale * q[sample, 0] @ k[sample, 0].T + dense
        hidden = ~keep[sample]
        if form == "softmax":
            c = scores[:, index].softmax(-1)
            r = scores[index].masked_fill(hidden, -torch.inf).softmax(-1)
        else:
            weights = 0.5 * (1 + torch.erf((scores - 0.707107) / (0.282095 * 2**0.5)))
            c, r = weights[:, index], weights[index].masked_fill(hidden, 0.0)
        expected = c @ torch.linalg.pinv(c[index]) @ r @ value[sample, 0]
        real = keep[sample]
        torch.testing.assert_close(out[sample, 0, real], expected[real], rtol=1e-9, atol=1e-9)


def test_laplace_columns_and_rows_are_those_of_megas_matrix():
    """Elementwise attention: a selected query's output is Mega's own, however few tokens are
    selected.
    """
    mixer = build(attention="laplace", num_indices=4, pinv="exact")
    q, k = drawn(3, 11, 4)[:, None], drawn(3, 11, 4).flip(0)[:, None]
    value, distances = drawn(3, 11, 6)[:, None], mixer.bias.distances(11)
    out = mixer.attend(q, k, value, None, distances)
    dense = mega_weights(q, k, dense_bias(distances), "laplace") @ value
    picks, _ = select_indices(q, k, 4, "abs")
    index = picks[..., None].expand(-1, -1, -1, 6)
    torch.testing.assert_close(out.gather(2, index), dense.gather(2, index), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("form", ["softmax", "laplace"])
def test_gradients_equal_those_of_the_dense_oracle(form):
    mixer, x = (
        build(attention=form, num_indices=6, pinv="exact", max_len=6),
        drawn(3, 6, 8).requires_grad_(),
    )
    weights = {
        name: value.detach().clone().requires_grad_() for name, value in mixer.state_dict().items()
    }
    out, expected = mixer(x), mega(x, weights, MegaConfig(attention=form, ema_dim=3))
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-8)
    cotangent, names = torch.randn_like(out), list(weights)
    got = torch.autograd.grad(out, [x, *(mixer.get_parameter(name) for name in names)], cotangent)
    wanted = torch.autograd.grad(expected, [x, *(weights[name] for name in names)], cotangent)
    for name, ours, theirs in zip(["x", *names], got, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7, msg=name)


def test_random_picks_follow_the_seed_in_the_state_and_change_in_training_only():
    mixer, x = build(num_indices=4, selection="random"), drawn(3, 11, 8)
    assert torch.equal(mixer(x), mixer(x))
    other = MegaCUR(mixer.config, Site(dim=8, max_len=11, seed=5)).double().eval()
    other.load_state_dict(
        {name: value for name, value in mixer.state_dict().items() if name != "seed"}, strict=True
    )
    assert not torch.equal(other(x), mixer(x))
    other.load_state_dict(mixer.state_dict(), strict=True)
    assert torch.equal(other(x), mixer(x))
    mixer.train()
    assert not torch.equal(mixer(x), mixer(x))
