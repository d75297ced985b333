"""Mixers by hashes: what they are in cases that can be written plainly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from subquad.plugin import Site
from subquad_plugins.reformer import Config as ReformerConfig
from subquad_plugins.reformer.mixer import Reformer
from subquad_plugins.yoso import Config as YOSOConfig
from subquad_plugins.yoso.core import YOSO

SITE = Site(dim=8, num_heads=1, max_len=32)


def reformer(*, causal: bool = False, **params) -> Reformer:
    torch.manual_seed(0)
    mixer = Reformer(ReformerConfig(**params), replace(SITE, causal=causal)).double()
    mixer.out.load_state_dict({"weight": torch.eye(8), "bias": torch.zeros(8)})
    return mixer


def test_one_chunk_is_softmax_without_the_token_itself():
    mixer, x = reformer(chunk=16), torch.randn(2, 9, 8, dtype=torch.float64)
    q, v = mixer.query_key(x), mixer.value(x)
    scores = q @ (q / q.norm(dim=-1, keepdim=True)).mT
    scores = scores.masked_fill(torch.eye(9, dtype=torch.bool), -torch.inf)
    torch.testing.assert_close(mixer(x), scores.softmax(-1) @ v, atol=1e-5, rtol=0)


def causal_outputs(mixer: Reformer, x: torch.Tensor, chunk: int) -> torch.Tensor:
    """The paper's causal form of one sample, pair by pair: 1 / N where a pair meets in N rounds,
    chunks counted in a token's own bucket.
    """
    q, v = mixer.query_key(x), mixer.value(x)
    products = torch.exp(q @ (q / q.norm(dim=-1, keepdim=True)).T)
    rotated = torch.einsum("le,enr->nlr", q, mixer.rotations[0])
    hashes = torch.cat([rotated, -rotated], -1).argmax(-1)
    weights = torch.zeros(len(hashes), len(x), len(x), dtype=x.dtype)
    for n, bucket in enumerate(hashes):
        for i in range(len(x)):
            peers = [j for j in range(i + 1) if bucket[j] == bucket[i]]
            for rank, j in enumerate(peers[:-1]):
                if rank // chunk >= (len(peers) - 1) // chunk - 1:
                    met = (hashes[:, i] == hashes[:, j]).sum()
                    weights[n, i, j] = products[i, j] / met
    total = weights.sum((0, 2))[:, None]
    return torch.where(total > 0, weights.sum(0) @ v / total, v)


@pytest.mark.parametrize("chunk", [2, 3, 64])
def test_causal_is_the_papers_sum_over_earlier_tokens_of_a_bucket(chunk):
    """A token that is alone in all its buckets sees itself."""
    mixer = reformer(causal=True, num_hashes=3, num_buckets=4, chunk=chunk)
    x = torch.randn(1, 29, 8, dtype=torch.float64)
    torch.testing.assert_close(mixer(x)[0], causal_outputs(mixer, x[0], chunk), atol=1e-5, rtol=0)


def test_a_token_that_is_alone_sees_itself():
    mixer, x = reformer(chunk=4), torch.randn(1, 6, 8, dtype=torch.float64)
    keep = torch.arange(6)[None] == 3
    torch.testing.assert_close(mixer(x, keep=keep)[:, 3], mixer.value(x)[:, 3])


def test_only_its_chunk_and_the_one_before_are_seen():
    """Of one round: outputs by the values they depend on."""
    mixer, x = (
        reformer(num_hashes=1, num_buckets=4, chunk=4),
        torch.randn(1, 32, 8, dtype=torch.float64),
    )
    jacobian: Any = torch.autograd.functional.jacobian(
        lambda v: mixer._attend(mixer.query_key(x)[:, None], v, KEEP), x[:, None]
    )
    depends = jacobian[0, 0, :, 0, 0, 0, :, 0].abs() > 0
    # two chunks without itself; the first has none before it
    assert sorted(depends.sum(1).tolist()) == [3] * 4 + [7] * 28


KEEP = torch.ones(1, 32, dtype=torch.bool)


def test_equal_queries_and_keys_are_finite_in_both_forms():
    for gradient in ("exact", "bound"):
        q = torch.randn(1, 1, 64, 8, requires_grad=True)
        out = YOSO(YOSOConfig(gradient=gradient), SITE)(q, q, q)
        (grad,) = torch.autograd.grad(out.sum(), q)
        assert out.isfinite().all()
        assert grad.isfinite().all()


@pytest.mark.parametrize("gradient", ["exact", "bound"])
def test_the_blocks_of_yoso_are_the_whole(gradient, monkeypatch):
    torch.manual_seed(0)
    mixer = YOSO(YOSOConfig(gradient=gradient), Site(dim=8, num_heads=2))
    inputs = [
        torch.randn(3, 2, length, 4, dtype=torch.float64, requires_grad=True)
        for length in (11, 7, 7)
    ]

    def found():
        out = mixer(*inputs)
        return out, *torch.autograd.grad((out * torch.arange(4)).sum(), inputs)

    whole = found()
    for most in (3, 20, 200):
        monkeypatch.setattr("subquad_plugins.yoso.core._CACHED", most)
        torch.testing.assert_close(found(), whole, rtol=1e-12, atol=1e-12)
