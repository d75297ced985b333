"""Mega's moving average: kernel, convolution, recursion and decode state are one and the same."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensors import drawn

from subquad_plugins.mega.ema import DampedEMA, ema_kernel, ema_rates, ema_step
from subquad_plugins.mega.naive import ema

NAMES = ("weight_logit", "damping_logit", "expansion", "projection")


def average(dim=5, ema_dim=3, *, bidirectional=False, truncation=0) -> DampedEMA:
    torch.manual_seed(2)
    return DampedEMA(dim, ema_dim, bidirectional=bidirectional, truncation=truncation).double()


def coefficients(module: DampedEMA) -> list[torch.Tensor]:
    return [module.get_parameter(name) for name in NAMES]


@pytest.mark.parametrize("length", [1, 2, 3, 16, 17, 100])
@pytest.mark.parametrize("ema_dim", [1, 4])
def test_kernel_is_the_sum_of_powers(length, ema_dim):
    module = average(ema_dim=ema_dim)
    parts = coefficients(module)
    weight, log_decay = ema_rates(*parts[:2])
    assert torch.equal(weight, parts[0].sigmoid())
    torch.testing.assert_close(
        log_decay.exp(), 1 - parts[0].sigmoid() * parts[1].sigmoid(), rtol=1e-14, atol=0
    )
    for lag in range(length):
        expected = (weight * parts[2] * parts[3] * log_decay.exp() ** lag).sum(1) / ema_dim**0.5
        torch.testing.assert_close(module.kernel(length)[:, lag], expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("length", [1, 2, 9, 20])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("truncation", [0, 1, 4, 50])
def test_convolution_equals_the_recursion(length, bidirectional, truncation):
    module, x = average(bidirectional=bidirectional, truncation=truncation), drawn(2, length, 5)
    weights = {f"ema.{name}": value for name, value in module.state_dict().items()}
    expected = torch.stack([ema(sample, weights, truncation) for sample in x]) + x * module.skip
    torch.testing.assert_close(module(x), torch.nn.functional.silu(expected), rtol=0, atol=1e-12)


@settings(max_examples=15)
@given(lengths=st.lists(st.integers(0, 150), min_size=2, max_size=2))
def test_the_state_after_each_samples_own_length(lengths):
    module, x = average(), drawn(2, 150, 5)
    keep = torch.arange(150) < torch.tensor(lengths)[:, None]
    states = module.start(x, keep)
    for sample, length in enumerate(lengths):
        state = torch.zeros(1, 5, 3, dtype=torch.float64)
        for t in range(length):
            _, state = ema_step(x[sample : sample + 1, t], state, *coefficients(module))
        torch.testing.assert_close(states[sample], state[0], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rates_that_round_to_one_stay_finite(dtype):
    logits = torch.tensor([[100.0, -100.0, 0.0]], dtype=dtype).requires_grad_()
    other = torch.tensor([[100.0, 100.0, 100.0]], dtype=dtype)
    kernel = ema_kernel(logits, other, torch.ones_like(other), torch.ones_like(other), 50)
    kernel.sum().backward()
    assert kernel.isfinite().all()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_long_kernels_are_exact_in_single_precision():
    module = average(ema_dim=16)
    exact = module.kernel(5000).detach()
    single = module.float().kernel(5000).detach().double()
    assert float((single - exact).abs().max()) < 2e-5 * float(exact.abs().max())


def test_starting_values_are_the_published_ones():
    torch.manual_seed(0)
    module = DampedEMA(500, 4, bidirectional=True)
    stds = {name: float(value.detach().std()) for name, value in module.named_parameters()}
    assert stds["weight_logit"] == pytest.approx(0.2, rel=0.05)
    assert stds["damping_logit"] == pytest.approx(0.2, rel=0.05)
    assert stds["projection"] == pytest.approx(1.0, rel=0.05)
    assert stds["skip"] == pytest.approx(1.0, rel=0.1)
    signs = torch.tensor([1.0, -1.0, 1.0, -1.0])
    assert float((module.expansion.detach() - signs).std()) == pytest.approx(0.02, rel=0.05)
    assert module.expansion.shape == (1000, 4)
