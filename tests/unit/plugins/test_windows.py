"""Patterns against dense masks: every window, length and padding, with gradients; Longformer's
global tokens.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from tensors import assert_alike

from subquad.errors import PluginError
from subquad.plugin import Site
from subquad_plugins.bigbird import Config as BigBirdConfig
from subquad_plugins.bigbird.core import BigBird
from subquad_plugins.longformer import Config
from subquad_plugins.longformer.mixer import Longformer
from subquad_plugins.numerics.windowed_attention import Window, windowed_attention
from subquad_plugins.sparse import Config as SparseConfig
from subquad_plugins.sparse.core import Sparse


def dense(q, k, v, window: Window, keep: torch.Tensor, seen: tuple[int, ...]) -> torch.Tensor:
    """One sample by its (L, L) mask; 0 at padding."""
    out = torch.zeros_like(v)
    real = keep.nonzero()[:, 0]
    place = torch.arange(len(real))
    allowed = window.sees(place[:, None], place[None, :])
    allowed[:, [token for token in seen if token < len(real)]] = True
    out[:, real] = F.scaled_dot_product_attention(
        q[:, real], k[:, real], v[:, real], attn_mask=allowed
    )
    return out


@settings(max_examples=40)
@given(data=st.data())
def test_windows_are_dense_attention_with_a_mask(data):
    length = data.draw(st.integers(1, 150))
    causal, block = data.draw(st.booleans()), data.draw(st.sampled_from([1, 1, 3, 70]))
    before, after = data.draw(st.integers(0, 9)), 0 if causal else data.draw(st.integers(0, 9))
    window = Window(before, after, block, causal)
    seen = (
        () if causal else tuple(data.draw(st.sets(st.integers(0, min(length, 7) - 1), max_size=3)))
    )
    q, k, v, keep = drawn(length, data.draw(st.integers(0, 99)))
    tensors = [tensor.requires_grad_() for tensor in (q, k, v)]
    given_seen = torch.tensor([seen, seen]) if seen else None
    found = windowed_attention(q, k, v, window, keep=keep, by_all=given_seen)
    for sample in range(2):
        expected = dense(q[sample], k[sample], v[sample], window, keep[sample], seen)
        real = keep[sample]
        assert_alike(found[sample][:, real], expected[:, real], tensors, 5e-14)
    everything = torch.ones_like(keep)
    whole = windowed_attention(q, k, v, window, by_all=given_seen)
    torch.testing.assert_close(
        whole, windowed_attention(q, k, v, window, keep=everything, by_all=given_seen)
    )


@settings(max_examples=40)
@given(data=st.data())
def test_sparse_patterns_are_dense_attention_with_a_mask(data):
    length, causal = data.draw(st.integers(1, 60)), data.draw(st.booleans())
    pattern, block = data.draw(st.sampled_from(["fixed", "strided"])), data.draw(st.integers(1, 9))
    summary = data.draw(st.integers(1, block))
    config = SparseConfig(
        pattern=pattern, block=block, **({"summary": summary} if pattern == "fixed" else {})
    )
    core = Sparse(config, Site(dim=8, num_heads=2, causal=causal))
    q, k, v, keep = drawn(length, data.draw(st.integers(0, 99)))
    found = core(q, k, v, key_keep=keep)
    for sample in range(2):
        expected = masked(q[sample], k[sample], v[sample], core.sees, keep[sample])
        torch.testing.assert_close(found[sample][:, keep[sample]], expected, rtol=0, atol=1e-13)


@settings(max_examples=40)
@given(data=st.data())
def test_bigbird_is_dense_attention_with_a_mask(data):
    """First and last block see all and are seen by all, others their neighbours and so many
    blocks more.
    """
    length, block, count = (data.draw(st.integers(1, most)) for most in (80, 5, 3))
    core = BigBird(BigBirdConfig(block=block, num_random=count), Site(dim=8, num_heads=2))
    q, k, v, keep = drawn(length, data.draw(st.integers(0, 99)))
    found = core(q, k, v, key_keep=keep)
    for sample in range(2):
        last = (int(keep[sample].sum()) - 1) // block
        blocks = blocks_seen(core, last)
        expected = masked(
            q[sample],
            k[sample],
            v[sample],
            lambda i, j, blocks=blocks: blocks[:, i // block, j // block],
            keep[sample],
        )
        torch.testing.assert_close(found[sample][:, keep[sample]], expected, rtol=0, atol=1e-13)
        inner = torch.arange(1, max(last, 1))
        left = last - 1 - seen_near(last)[inner][:, inner].sum(1)
        assert (blocks.sum(2)[:, inner] == last + 1 - left + left.clamp_max(count)).all()


def seen_near(last: int) -> torch.Tensor:
    place = torch.arange(last + 1)
    near = (place[:, None] - place).abs() <= 1
    near[[0, last]] = near[:, [0, last]] = True
    return near


def blocks_seen(core: BigBird, last: int) -> torch.Tensor:
    """(H, N, N), which block sees which."""
    far, there = core.random_blocks(torch.arange(last + 1)[:, None], torch.tensor([[[[last]]]]))
    blocks = seen_near(last).repeat(2, 1, 1)
    for head, block, number in there[0].nonzero().tolist():
        blocks[head, block, far[0, head, block, number]] = True
    return blocks


def drawn(length: int, seed: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    q, k, v = torch.randn(3, 2, 2, length, 4, generator=generator, dtype=torch.float64)
    keep = torch.rand(2, length, generator=generator) < 0.7
    keep[:, -1] = True
    return q, k, v, keep


def masked(q, k, v, sees, keep: torch.Tensor) -> torch.Tensor:
    """One sample's real tokens by an (L, L) mask."""
    place = torch.arange(int(keep.sum()))
    return F.scaled_dot_product_attention(
        q[:, keep], k[:, keep], v[:, keep], attn_mask=sees(place[:, None], place[None, :])
    )


def test_global_tokens_see_and_are_seen_through_any_distance():
    torch.manual_seed(0)
    mixer = Longformer(
        Config(window=2, num_global=1), Site(dim=8, num_heads=2, max_len=40)
    ).double()
    x = torch.randn(1, 40, 8, dtype=torch.float64)
    keep = torch.ones(1, 40, dtype=torch.bool)
    keep[:, :3] = False  # the fourth token is the first real one
    before = mixer(x, keep=keep).out
    moved = x.clone()
    moved[:, 30] += 1.0
    changed = (mixer(moved, keep=keep).out != before).any(-1)[0].nonzero()[:, 0].tolist()
    assert [token for token in changed if token >= 3] == [3, 29, 30, 31]
    moved = x.clone()
    moved[:, 3] += 1.0
    changed = (mixer(moved, keep=keep).out != before).any(-1)[0]
    assert changed[3:].all()


def test_other_lengths_than_those_of_keys_are_refused():
    q, k = torch.zeros(1, 1, 7, 2), torch.zeros(1, 1, 11, 2)
    with pytest.raises(PluginError, match="a window needs as many queries as keys, got 7 and 11"):
        windowed_attention(q, k, k, Window(1, 1))
    with pytest.raises(PluginError, match="sparse needs as many queries as keys, got 7 and 11"):
        Sparse(SparseConfig(block=8), Site(dim=8))(q, k, k)
    with pytest.raises(PluginError, match="bigbird needs as many queries as keys, got 7 and 11"):
        BigBird(BigBirdConfig(), Site(dim=8))(q, k, k)
