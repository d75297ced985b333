"""Softmax attention against its definition, with masks, and its behaviour at the edges."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from subquad.cost import counting
from subquad.errors import PluginError
from subquad.nn import AttentionMixer
from subquad.nn.kernels import using
from subquad.plugin import Site
from subquad_plugins.softmax import PLUGIN, Config
from subquad_plugins.softmax.core import LONG, Softmax, _by_sample, _packed, _plain


def core(causal: bool = False, dropout: float = 0.0) -> Softmax:
    return Softmax(Config(dropout=dropout), Site(dim=8, num_heads=2, causal=causal))


def qkv(length: int = 6, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, 2, length, 4, generator=generator, dtype=dtype) for _ in range(3)]


def defined(q, k, v, allowed) -> torch.Tensor:
    """softmax(q k^T / sqrt(E)) v over the allowed keys, (B, 1 or Lq, Lk)."""
    scores = (q @ k.transpose(2, 3) / q.shape[-1] ** 0.5).masked_fill(~allowed[:, None], -torch.inf)
    return torch.softmax(scores, -1) @ v


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_equals_the_definition(causal, masked):
    q, k, v = qkv()
    keep = torch.ones(2, 6, dtype=torch.bool)
    keep[1, 4:] = not masked
    allowed = keep[:, None].expand(2, 6, 6)
    allowed = allowed & torch.ones(6, 6, dtype=torch.bool).tril() if causal else allowed
    out = core(causal)(q, k, v, key_keep=keep if masked else None)
    expected = defined(q, k, v, allowed)
    real = keep[:, None].expand(2, 2, 6)
    torch.testing.assert_close(out[real], expected[real], rtol=1e-12, atol=1e-12)


def test_cross_attention_takes_other_lengths():
    (q, _, _), (_, k, v) = qkv(3), qkv(5)
    assert core()(q, k, v, key_keep=torch.ones(2, 5, dtype=torch.bool)).shape == q.shape


def test_causal_core_refuses_other_lengths():
    (q, _, _), (_, k, v) = qkv(3), qkv(5)
    with pytest.raises(PluginError, match="softmax: causal attention needs as many queries as keys, got 3 and 5"):
        core(causal=True)(q, k, v)


@pytest.mark.parametrize("causal", [False, True])
def test_rows_without_any_key_stay_finite(causal):
    q, k, v = (x.requires_grad_() for x in qkv())
    keep = torch.ones(2, 6, dtype=torch.bool)
    keep[0], keep[1, :2] = False, False  # nothing at all, and padding in front
    out = core(causal)(q, k, v, key_keep=keep)
    out.sum().backward()
    assert out.isfinite().all()
    assert all(x.grad is not None and x.grad.isfinite().all() for x in (q, k, v))


@pytest.mark.parametrize("causal", [False, True])
def test_padding_does_not_reach_real_tokens(causal):
    q, k, v = qkv(8)
    keep = torch.ones(2, 8, dtype=torch.bool)
    keep[:, 5:] = False
    out = core(causal)(q, k, v, key_keep=keep)
    hidden = ~keep[:, None, :, None]
    other = core(causal)(q, k.masked_fill(hidden, 9.0), v.masked_fill(hidden, 9.0), key_keep=keep)
    torch.testing.assert_close(other[:, :, :5], out[:, :, :5], rtol=0, atol=1e-14)


def test_dropout_acts_in_training_only():
    attention, (q, k, v) = core(dropout=0.5), qkv()
    torch.manual_seed(0)
    assert not torch.equal(attention(q, k, v), attention(q, k, v))
    attention.eval()
    assert torch.equal(attention(q, k, v), attention(q, k, v))


@settings(deadline=None, max_examples=15)
@given(order=st.permutations(range(6)))
def test_permuting_tokens_permutes_outputs(order):
    torch.manual_seed(0)
    site = Site(dim=8, num_heads=2)
    mixer, x = AttentionMixer(core(), site).double(), torch.randn(2, 6, 8, dtype=torch.float64)
    torch.testing.assert_close(mixer(x[:, order]).out, mixer(x).out[:, order], rtol=1e-12, atol=1e-12)


def test_bfloat16_stays_near():
    q, k, v = qkv(dtype=torch.float32)
    out = core()(q.bfloat16(), k.bfloat16(), v.bfloat16())
    torch.testing.assert_close(out.float(), core()(q, k, v), rtol=0, atol=5e-2)


def test_parameters_and_facts():
    with pytest.raises(ValidationError, match="dropout\n  Input should be less than 1"):
        Config(dropout=1.0)
    assert (PLUGIN.facts.causal, PLUGIN.facts.cross, PLUGIN.facts.complexity) == ("optional", True, "L^2")
    assert PLUGIN.facts.padding_invariant


def padded_case(share: float, length: int = LONG, queries: int = 5) -> tuple[list[torch.Tensor], torch.Tensor]:
    """q, k, v of three samples, with padding anywhere; the last sample has one real key."""
    generator = torch.Generator().manual_seed(1)
    shapes = [(3, 2, length_, 8) for length_ in (queries, length, length)]
    tensors = [torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in shapes]
    keep = torch.rand(3, length, generator=generator) < share
    keep[2] = torch.arange(length) == 3
    return tensors, keep


@pytest.mark.ci  # nested tensors and the compiler take seconds to import
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")  # only by torch's form for the CPU
@pytest.mark.parametrize("function", [_packed, _by_sample])
@pytest.mark.parametrize("share", [0.1, 0.9, 1.0])
def test_packed_keys_give_what_a_mask_gives(function, share):
    tensors, keep = padded_case(share)
    weights = torch.randn(3, 2, 5, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    found = [one(*tensors, keep, 0.0) for one in (function, _plain)]
    gradients = [torch.autograd.grad(out, tensors, weights) for out in found]
    for mine, wanted in zip((found[0], *gradients[0]), (found[1], *gradients[1]), strict=True):
        torch.testing.assert_close(mine, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("length", "share", "causal", "ran"),
    [
        (LONG, 0.5, False, {"softmax.attention": "by-sample"}),
        (LONG, 1.1, False, {"softmax.attention": "reference"}),
        (LONG - 1, 0.5, False, {"softmax.attention": "reference"}),
        (LONG, 0.5, True, {}),
    ],
)
def test_which_form_runs_on_a_cpu(length, share, causal, ran):
    (q, k, v), keep = padded_case(share, length, length)
    keep[2] |= share > 1
    with using() as used:
        core(causal)(q, k, v, key_keep=keep)
    assert used == ran


def test_costs_are_counted_of_the_form_with_a_mask():
    """So that they do not depend on the padding of the samples that are counted."""
    (q, k, v), keep = padded_case(0.5)
    with counting() as some, using() as used:
        core()(q, k, v, key_keep=keep)
    with counting() as none:
        core()(q, k, v, key_keep=torch.ones_like(keep))
    assert used == {"softmax.attention": "reference"}
    assert some.flops == none.flops > 0


@pytest.mark.ci
def test_compiled_attention_takes_the_mask():
    (q, k, v), keep = padded_case(0.5)
    compiled = torch.compile(core(), backend="eager", fullgraph=True)
    with using() as used:
        torch.testing.assert_close(compiled(q, k, v, key_keep=keep), core()(q, k, v, key_keep=keep))
    assert used == {"softmax.attention": "reference, by-sample"}
