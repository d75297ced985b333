"""Attention by features against a sum over all pairs: outputs, gradients, masks, chunks, and
what is refused.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensors import assert_alike
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from subquad.errors import PluginError
from subquad.nn import AttentionCore
from subquad.nn.kernels import REFERENCE, using
from subquad.plugin import Site
from subquad_plugins.cosformer import Config as CosformerConfig
from subquad_plugins.cosformer.core import Cosformer
from subquad_plugins.efficient import Config as EfficientConfig
from subquad_plugins.efficient.core import Efficient
from subquad_plugins.flowformer import Config as FlowformerConfig
from subquad_plugins.flowformer.core import Flowformer
from subquad_plugins.linear import Config as LinearConfig
from subquad_plugins.linear.core import Linear
from subquad_plugins.numerics.features import causal_product
from subquad_plugins.numerics.positive_features import orthogonal_features, positive_features
from subquad_plugins.performer import Config as PerformerConfig
from subquad_plugins.performer.core import Performer

SITE, CAUSAL = (Site(dim=8, num_heads=2, max_len=200, causal=causal) for causal in (False, True))


def pairs(
    weights: torch.Tensor, v: torch.Tensor, keep: torch.Tensor, causal: bool, eps: float
) -> torch.Tensor:
    """The definition: weights of all pairs of a query and a key, (B, H, L, L), and their
    weighted mean of v.
    """
    allowed = keep[:, None, None, :].expand_as(weights)
    weights = torch.where(allowed.tril() if causal else allowed, weights, 0.0)
    return weights @ v / (weights.sum(-1, keepdim=True) + eps)


def elu_features(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.elu(x) + 1


def drawn(length: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """q, k, v and a mask with padding anywhere but at the end."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v = torch.randn(3, 2, 2, length, 4, generator=generator, dtype=torch.float64)
    keep = torch.rand(2, length, generator=generator) < 0.7
    keep[:, -1] = True
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_(), keep


LENGTHS = {"length": st.integers(1, 150), "causal": st.booleans(), "seed": st.integers(0, 99)}


@settings(max_examples=8)
@given(**LENGTHS)
def test_linear_is_a_sum_over_all_pairs(length, causal, seed):
    q, k, v, keep = drawn(length, seed)
    weights = elu_features(q) @ elu_features(k).mT
    core = Linear(LinearConfig(), CAUSAL if causal else SITE)
    agree(core, q, k, v, keep, pairs(weights, v, keep, causal, 1e-6))


def test_efficient_is_finite_whatever_the_keys_range():
    q, k, v = torch.randn(3, 1, 1, 100, 4)
    k = k * 1000
    found = Efficient(EfficientConfig(), CAUSAL)(q, k, v)
    assert found.isfinite().all()
    assert float(found.abs().max()) <= float(v.abs().max()) * 1.001


def agree(core: AttentionCore, q, k, v, keep: torch.Tensor, expected: torch.Tensor) -> None:
    """Outputs at real tokens, and all gradients of them."""
    found = core(q, k, v, query_keep=keep, key_keep=keep)
    real = keep[:, None, :, None]
    assert_alike(found * real, expected * real, (q, k, v), 1e-11, 1e-12)


def test_features_of_a_block_are_orthogonal_and_belong_to_seed_and_layer():
    drawn = orthogonal_features(10, 4, 7).double()
    for block in (drawn[:4], drawn[4:8]):
        torch.testing.assert_close(
            block @ block.T, torch.diag(block.square().sum(1)), rtol=0, atol=1e-5
        )
    cores = [
        Performer(PerformerConfig(), Site(dim=8, seed=seed, layer_index=i))
        for seed, i in ((0, 0), (0, 1), (1, 0))
    ]
    assert len({tuple(core.projection.flatten().tolist()) for core in cores}) == 3
    assert torch.equal(cores[0].projection, Performer(PerformerConfig(), Site(dim=8)).projection)


@pytest.mark.parametrize("implementation", ["in-place", REFERENCE])
def test_the_largest_exponent_of_all_is_a_real_tokens(implementation):
    x = torch.randn(2, 2, 6, 4, generator=torch.Generator().manual_seed(0))
    x[:, :, -2:] *= 100
    projection = orthogonal_features(8, 4, seed=1)
    keep = torch.ones(2, 1, 6, 1, dtype=torch.bool)
    keep[:, :, -2:] = False
    with using({"performer.features": implementation}):
        padded = positive_features(x, projection, "all", keep)
        alone = positive_features(x[:, :, :-2], projection, "all", None)
    torch.testing.assert_close(padded[:, :, :-2], alone)


def test_features_are_drawn_anew_in_training_only():
    core, x = Performer(PerformerConfig(redraw=2), Site(dim=4)), torch.randn(1, 1, 5, 4)
    projections = []
    for training in (True, True, True, False, False, True):
        core.train(training)(x, x, x)
        projections.append(tuple(core.projection.flatten().tolist()))
    assert [projections.index(length) for length in projections] == [0, 1, 1, 1, 1, 5]


def test_causal_sums_go_on_from_those_before():
    queries, keys, v = torch.rand(3, 2, 2, 150, 4, dtype=torch.float64)
    whole, end = causal_product(queries, keys, v)
    first, state = causal_product(queries[:, :, :70], keys[:, :, :70], v[:, :, :70])
    rest, after = causal_product(queries[:, :, 70:], keys[:, :, 70:], v[:, :, 70:], state)
    torch.testing.assert_close(torch.cat([first, rest], 2), whole, rtol=1e-13, atol=1e-12)
    torch.testing.assert_close(after, end, rtol=1e-13, atol=1e-12)


def test_elu_features_keep_their_digits_far_below_zero():
    x = torch.tensor([-17.0, -80.0, 0.0, 3.0])
    found = Linear(LinearConfig(), SITE).query_features(x[None, None, :, None]).flatten()
    expected = [math.exp(-17), math.exp(-80), 1.0, 4.0]
    assert found.tolist() == pytest.approx(expected, rel=1e-6)


def test_a_causal_core_takes_as_many_queries_as_keys():
    q, k = torch.zeros(1, 2, 7, 4), torch.zeros(1, 2, 11, 4)
    with pytest.raises(
        PluginError, match="linear: causal attention needs as many queries as keys, got 7 and 11"
    ):
        Linear(LinearConfig(), CAUSAL)(q, k, k)


def test_cosformer_refuses_longer_sequences_than_it_was_built_for():
    q = torch.zeros(1, 2, 9, 4)
    with pytest.raises(PluginError, match="cosformer: got 9 positions, and it was built for 8"):
        Cosformer(CosformerConfig(), Site(dim=8, num_heads=2, max_len=8))(q, q, q)


class Made(TorchDispatchMode):
    """The largest float32 tensor that is made inside, in numbers."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float32:
                self.largest = max(self.largest, tensor.numel())
        return result


@pytest.mark.parametrize(
    "core",
    [
        Linear(LinearConfig(), SITE),
        Cosformer(CosformerConfig(), SITE),
        Efficient(EfficientConfig(), SITE),
        Flowformer(FlowformerConfig(), SITE),
    ],
)
def test_no_factor_of_bf16_is_made_float32(core):
    q, k, v = torch.randn(3, 2, 2, 100, 4, dtype=torch.bfloat16)
    with Made() as made:
        assert core(q, k, v).dtype == torch.bfloat16
    assert made.largest < q.numel()


def test_causal_sums_of_bf16_are_float32():
    """Of 1,000 ones, where bf16 counts to 256."""
    ones = torch.ones(1, 1, 1000, 1, dtype=torch.bfloat16)
    out, state = causal_product(ones, ones, ones)
    assert float(out[0, 0, -1]) == 1000
    for _ in range(2):
        _, state = causal_product(ones[:, :, :1], ones[:, :, :1], ones[:, :, :1], state)
    assert float(state) == 1002
