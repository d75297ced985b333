"""Softmax attention against its definition, with masks, and its behaviour at the edges."""

from __future__ import annotations

import pytest
import torch
from tensors import assert_alike

from subquad.cost import counting
from subquad.errors import PluginError
from subquad.nn.kernels import using
from subquad.plugin import Site
from subquad_plugins.softmax import Config
from subquad_plugins.softmax.core import LONG, Softmax, _by_sample, _packed, _reference
from subquad_tools.bench.memory import added_memory


def core(causal: bool = False, **params) -> Softmax:
    return Softmax(Config(**params), Site(dim=8, num_heads=2, causal=causal))


def qkv(length: int = 6, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, 2, length, 4, generator=generator, dtype=dtype) for _ in range(3)]


def defined(q, k, v, allowed) -> torch.Tensor:
    """softmax(q k^T / sqrt(E)) v over the allowed keys, (B, 1 or Lq, Lk)."""
    scores = (q @ k.transpose(2, 3) / q.shape[-1] ** 0.5).masked_fill(~allowed[:, None], -torch.inf)
    return torch.softmax(scores, -1) @ v


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kernel", ["fused", "standard"])
def test_equals_the_definition(causal, masked, kernel):
    q, k, v = qkv()
    keep = torch.ones(2, 6, dtype=torch.bool)
    keep[1, 4:] = not masked
    allowed = keep[:, None].expand(2, 6, 6)
    allowed = allowed & torch.ones(6, 6, dtype=torch.bool).tril() if causal else allowed
    out = core(causal, kernel=kernel)(q, k, v, key_keep=keep if masked else None)
    expected = defined(q, k, v, allowed)
    real = keep[:, None].expand(2, 2, 6)
    torch.testing.assert_close(out[real], expected[real], rtol=1e-12, atol=1e-12)


def test_causal_core_refuses_other_lengths():
    (q, _, _), (_, k, v) = qkv(3), qkv(5)
    with pytest.raises(
        PluginError, match="softmax: causal attention needs as many queries as keys, got 3 and 5"
    ):
        core(causal=True)(q, k, v)


def padded_case(
    share: float, length: int = LONG, queries: int = 5
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """q, k, v of three samples, with padding anywhere; the last sample has one real key."""
    generator = torch.Generator().manual_seed(1)
    shapes = [(3, 2, length_, 8) for length_ in (queries, length, length)]
    tensors = [
        torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
        for shape in shapes
    ]
    keep = torch.rand(3, length, generator=generator) < share
    keep[2] = torch.arange(length) == 3
    return tensors, keep


@pytest.mark.ci  # nested tensors and the compiler take seconds to import
@pytest.mark.filterwarnings(
    "ignore:The PyTorch API of nested tensors:UserWarning"
)  # only by torch's form for the CPU
@pytest.mark.parametrize("function", [_packed, _by_sample])
@pytest.mark.parametrize("share", [0.1, 0.9, 1.0])
def test_packed_keys_give_what_a_mask_gives(function, share):
    tensors, keep = padded_case(share)
    found, expected = (attend(*tensors, keep, 0.0) for attend in (function, _reference))
    assert_alike(found, expected, tensors, 1e-12)


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


def test_standard_attention_stores_every_weight():
    """Scores and weights forward; weights and the gradients of both backward."""
    length = 1024
    inputs = [x.float().requires_grad_() for x in qkv(length)]
    stored = 2 * 2 * length**2 * 4  # bytes of B H L L numbers
    standard, fused = core(kernel="standard"), core()

    def trained(attention: Softmax) -> torch.Tensor:
        return torch.autograd.grad(attention(*inputs).sum(), inputs)[0]

    with torch.no_grad():
        forward = added_memory(lambda: standard(*inputs), torch.device("cpu"))
    assert 2 * stored <= forward < 2.1 * stored
    both = added_memory(lambda: trained(standard), torch.device("cpu"))
    assert 3 * stored <= both < 3.1 * stored
    assert added_memory(lambda: trained(fused), torch.device("cpu")) < 0.1 * stored
