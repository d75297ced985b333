"""FFT long convolution against its definition, both conventions of the bidirectional one,
gradients and precision.
"""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from tensors import drawn

from subquad_plugins.numerics.long_conv import bidirectional_conv, causal_conv
from subquad_plugins.numerics.tensors import swapped

LENGTHS = [1, 2, 7, 16, 31]


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
    x = drawn(2, 120, 2 * length)[..., ::2]
    swaps = swapped(x)
    assert swaps.is_contiguous()
    torch.testing.assert_close(swaps, x.mT, rtol=0, atol=0)
    torch.testing.assert_close(swapped(x + 1j), x.mT + 1j, rtol=0, atol=0)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("taps", [1, 3, 40])
@pytest.mark.parametrize("channels", [1, 4])
def test_causal_equals_its_definition(length, taps, channels):
    x, kernel = drawn(2, length, 4), drawn(channels, taps, seed=1)
    torch.testing.assert_close(causal_conv(x, kernel), defined(x, kernel), rtol=0, atol=1e-12)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("taps", [(1, 1), (3, 5), (40, 2), (2, 40)])
@pytest.mark.parametrize("first", [0, 1])
def test_bidirectional_equals_its_definition(length, taps, first: Literal[0, 1]):
    x, forward, backward = (
        drawn(2, length, 4),
        drawn(4, taps[0], seed=1),
        drawn(4, taps[1], seed=2),
    )
    out = bidirectional_conv(x, forward, backward, first_backward_lag=first)
    torch.testing.assert_close(out, defined(x, forward, backward, first), rtol=0, atol=1e-12)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("length", [1, 6])
def test_gradients_equal_those_of_the_definition(channels, length):
    x, forward, backward = (
        drawn(2, length, 3),
        drawn(channels, 4, seed=1),
        drawn(channels, 8, seed=2),
    )
    inputs = [tensor.requires_grad_() for tensor in (x, forward, backward)]
    cotangent = drawn(2, length, 3, seed=3)
    for first in (0, 1):
        out = bidirectional_conv(x, forward, backward, first_backward_lag=first)
        expected = torch.autograd.grad(
            defined(x, forward, backward, first), inputs, cotangent, allow_unused=True
        )
        for got, wanted in zip(torch.autograd.grad(out, inputs, cotangent), expected, strict=True):
            torch.testing.assert_close(
                got, torch.zeros_like(got) if wanted is None else wanted, rtol=0, atol=1e-12
            )
    assert torch.autograd.gradcheck(causal_conv, (x, forward))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_half_precision_is_computed_in_single(dtype):
    x, kernel = drawn(2, 33, 3, dtype=dtype), drawn(3, 33, seed=1, dtype=dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = causal_conv(x, kernel)
    assert out.dtype == torch.float32
    torch.testing.assert_close(
        out.double(), defined(x.double(), kernel.double()), rtol=0, atol=2e-5
    )


@pytest.mark.ci
def test_one_graph():
    x, kernel = drawn(2, 9, 3), drawn(3, 5, seed=1)
    compiled = torch.compile(causal_conv, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, kernel), causal_conv(x, kernel), rtol=0, atol=1e-13)
