"""FFT long convolution against its definition, both conventions of the bidirectional one, gradients and precision."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from subquad_plugins.numerics.long_conv import bidirectional_conv, causal_conv
from subquad_plugins.numerics.tensors import swapped

LENGTHS = [1, 2, 7, 16, 31]


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def defined(x, forward, backward=None, first: int = 0) -> torch.Tensor:
    """Sums over lags, one output at a time."""
    out = torch.zeros_like(x)
    for t in range(x.shape[1]):
        for lag in range(min(t + 1, forward.shape[1])):
            out[:, t] += forward[:, lag] * x[:, t - lag]
        for tap, weight in enumerate([] if backward is None else backward.unbind(1)):
            if t + tap + first < x.shape[1]:
                out[:, t] += weight * x[:, t + tap + first]
    return out


@pytest.mark.parametrize("length", [3, 150])
def test_matrices_are_transposed_one_by_one_or_together(length):
    x = random(2, 120, 2 * length)[..., ::2]
    swaps = swapped(x)
    assert swaps.is_contiguous()
    torch.testing.assert_close(swaps, x.mT, rtol=0, atol=0)
    torch.testing.assert_close(swapped(x + 1j), x.mT + 1j, rtol=0, atol=0)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("taps", [1, 3, 40])
@pytest.mark.parametrize("channels", [1, 4])
def test_causal_equals_its_definition(length, taps, channels):
    x, kernel = random(2, length, 4), random(channels, taps, seed=1)
    torch.testing.assert_close(causal_conv(x, kernel), defined(x, kernel), rtol=0, atol=1e-12)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("taps", [(1, 1), (3, 5), (40, 2), (2, 40)])
@pytest.mark.parametrize("first", [0, 1])
def test_bidirectional_equals_its_definition(length, taps, first: Literal[0, 1]):
    x, forward, backward = random(2, length, 4), random(4, taps[0], seed=1), random(4, taps[1], seed=2)
    out = bidirectional_conv(x, forward, backward, first_backward_lag=first)
    torch.testing.assert_close(out, defined(x, forward, backward, first), rtol=0, atol=1e-12)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("length", [1, 6])
def test_gradients_equal_those_of_the_definition(channels, length):
    x, forward, backward = random(2, length, 3), random(channels, 4, seed=1), random(channels, 8, seed=2)
    inputs = [one.requires_grad_() for one in (x, forward, backward)]
    cotangent = random(2, length, 3, seed=3)
    for first in (0, 1):
        out = bidirectional_conv(x, forward, backward, first_backward_lag=first)
        expected = torch.autograd.grad(defined(x, forward, backward, first), inputs, cotangent, allow_unused=True)
        for got, wanted in zip(torch.autograd.grad(out, inputs, cotangent), expected, strict=True):
            torch.testing.assert_close(got, torch.zeros_like(got) if wanted is None else wanted, rtol=0, atol=1e-12)
    assert torch.autograd.gradcheck(causal_conv, (x, forward))


@settings(deadline=None, max_examples=20)
@given(length=st.integers(1, 40), taps=st.integers(1, 50), shift=st.integers(0, 10))
def test_linear_and_shift_equivariant(length, taps, shift):
    x, other, kernel = random(1, length, 2), random(1, length, 2, seed=4), random(2, taps, seed=1)
    mixed = causal_conv(2.0 * x - 3.0 * other, kernel)
    torch.testing.assert_close(
        mixed, 2.0 * causal_conv(x, kernel) - 3.0 * causal_conv(other, kernel), rtol=0, atol=1e-11
    )
    late = causal_conv(torch.nn.functional.pad(x, (0, 0, shift, 0)), kernel)
    torch.testing.assert_close(late[:, shift:], causal_conv(x, kernel), rtol=0, atol=1e-12)


@settings(deadline=None, max_examples=20)
@given(length=st.integers(1, 30), taps=st.integers(1, 40))
def test_turning_time_round_exchanges_the_kernels(length, taps):
    x, forward, backward = random(1, length, 2), random(2, taps, seed=1), random(2, taps, seed=2)
    out = bidirectional_conv(x, forward, backward, first_backward_lag=0)
    turned = bidirectional_conv(x.flip(1), backward, forward, first_backward_lag=0).flip(1)
    torch.testing.assert_close(turned, out, rtol=0, atol=1e-12)


def test_later_positions_leak_rounding_errors_only():
    x, kernel = random(1, 300, 2), random(2, 300, seed=1)
    other = torch.cat([x[:, :150], random(1, 150, 2, seed=5)], 1)
    leak = (causal_conv(other, kernel) - causal_conv(x, kernel))[:, :150].abs().max()
    assert float(leak) < 1e-12 * float(causal_conv(x, kernel).abs().max())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_half_precision_is_computed_in_single(dtype):
    x, kernel = random(2, 33, 3, dtype=dtype), random(3, 33, seed=1, dtype=dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = causal_conv(x, kernel)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out.double(), defined(x.double(), kernel.double()), rtol=0, atol=2e-5)


def test_strided_inputs():
    x, kernel = random(2, 3, 9).transpose(1, 2), random(5, 3, seed=1).T
    torch.testing.assert_close(
        causal_conv(x, kernel), causal_conv(x.contiguous(), kernel.contiguous()), rtol=0, atol=1e-13
    )


@pytest.mark.ci
def test_one_graph():
    x, kernel = random(2, 9, 3), random(3, 5, seed=1)
    compiled = torch.compile(causal_conv, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, kernel), causal_conv(x, kernel), rtol=0, atol=1e-13)
