"""Scans and state space models: against their recurrences, token by token; settings; starting
values.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from tensors import assert_close
from torch import nn

from subquad.nn.kernels import using
from subquad.plugin import Site
from subquad_plugins.mamba import Config as MambaConfig
from subquad_plugins.mamba.mixer import Mamba
from subquad_plugins.numerics.exponentials import exponential_kernel, exponential_state
from subquad_plugins.numerics.scan import naive_scan, scan
from subquad_plugins.numerics.selective_scan import selective_scan
from subquad_plugins.numerics.short_conv import ShortConv
from subquad_plugins.s4 import Config as S4Config
from subquad_plugins.s4.mixer import S4
from subquad_plugins.s4d import Config as S4DConfig
from subquad_plugins.s4d.layer import hippo
from subquad_plugins.s4d.mixer import S4D
from subquad_plugins.s5 import Config as S5Config
from subquad_plugins.s5.mixer import S5


def close(got, expected, tolerance=1e-12):
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)


@settings(max_examples=25)
@given(
    length=st.integers(1, 70),
    kind=st.sampled_from([torch.float64, torch.complex128]),
    seed=st.integers(0, 99),
)
def test_the_scan_is_the_recurrence_with_all_gradients(length, kind, seed):
    """Also where a is zero, and is the same for all tokens, which is no tensor of its own."""
    generator = torch.Generator().manual_seed(seed)
    a, b, out = (torch.randn(2, length, 3, generator=generator, dtype=kind) for _ in range(3))
    a[:, ::5] = 0
    shared = torch.randn(3, generator=generator, dtype=kind).requires_grad_()
    a, b = a.requires_grad_(), b.requires_grad_()
    for factor, full in ((a, a), (shared, shared.expand_as(b))):
        results = []
        for h in (scan(factor, b), naive_scan(full, b)):
            value = (h * out.conj()).sum()
            results.append(
                (h, *torch.autograd.grad(value.real if kind.is_complex else value, (factor, b)))
            )
        assert_close(*results, 1e-10)


def test_the_scan_has_second_derivatives():
    torch.manual_seed(0)
    a, b = (torch.randn(1, 5, 2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradgradcheck(scan, (a, b))


@pytest.mark.parametrize("kind", [torch.float64, torch.complex128])
def test_sums_of_exponentials(kind):
    torch.manual_seed(0)
    rates, scale = -torch.rand(3, 4, dtype=kind), torch.randn(2, 3, 4, dtype=kind)
    j = torch.arange(37)
    expected = (scale[..., None] * torch.exp(rates[..., None] * j)).sum(-2)
    close(exponential_kernel(rates, scale, 37), expected.real if kind.is_complex else expected)
    x, keep = (
        torch.randn(2, 70, 3, dtype=torch.float64),
        torch.arange(70) < torch.tensor([[70], [9]]),
    )
    states = naive_scan(rates.exp().expand(2, 70, 3, 4), x[..., None].to(kind).expand(2, 70, 3, 4))
    close(exponential_state(x, rates, keep), torch.stack([states[0, 69], states[1, 8]]))


def test_the_short_convolution_is_torchs():
    torch.manual_seed(0)
    conv, x = ShortConv(3, 4).double(), torch.randn(2, 9, 3, dtype=torch.float64)
    expected = F.conv1d(F.pad(x.mT, (3, 0)), conv.weight[:, None], conv.bias, groups=3).mT
    close(conv(x)[0], expected)
    keep = torch.arange(9) < torch.tensor([[5], [1]])
    y, _ = conv(x[:, 5:], None, conv(x, keep)[1])
    close(y[0], expected[0, 5:])
    close(y[1], conv(x[1:, [0, 5, 6, 7, 8]])[0][0, 1:])


def pairs(x):
    return torch.view_as_complex(x)


def test_s4_starts_from_hippo_and_is_its_recurrence():
    """The kernel is that of HiPPO-LegS itself: in any basis, with C there."""
    torch.manual_seed(0)
    mixer = S4(S4Config(state_dim=8), Site(dim=3, causal=True)).double()
    n = torch.arange(8, dtype=torch.float64)
    root, eye = (2 * n + 1).sqrt(), torch.eye(8, dtype=torch.float64)
    legs = -torch.outer(root, root).tril(-1) - torch.diag(n + 1)
    _, basis = hippo(8)
    whole = torch.cat([basis, basis.conj()], 1).to(torch.complex128)
    for channel, dt in enumerate(mixer.log_dt.exp()):
        half = torch.complex(*mixer.weight[0, channel].chunk(2)).conj()
        readout = torch.cat([half, half.conj()]) @ whole.mH
        step, enter = (
            torch.linalg.solve(eye - dt / 2 * legs, eye + dt / 2 * legs),
            torch.linalg.solve(eye - dt / 2 * legs, dt * root),
        )
        kernel = [
            (readout @ (torch.linalg.matrix_power(step, j) @ enter).to(readout.dtype)).real
            for j in range(37)
        ]
        close(mixer.kernel(37)[0, channel], torch.stack(kernel), 1e-6)


@pytest.mark.parametrize("causal", [True, False])
def test_s4_is_its_convolution(causal):
    torch.manual_seed(0)
    mixer, x = (
        S4(S4Config(state_dim=6), Site(dim=4, causal=causal)).double(),
        torch.randn(2, 11, 4).double(),
    )
    kernels, y = mixer.kernel(11), torch.zeros(2, 11, 4, dtype=torch.float64)
    for t in range(11):
        for s in range(11):
            if s <= t:
                y[:, t] += kernels[0, :, t - s] * x[:, s]
            elif not causal:
                y[:, t] += kernels[1, :, s - t - 1] * x[:, s]
    close(mixer(x), F.glu(mixer.out(F.gelu(y + mixer.skip * x)), -1))


def test_s5_starts_from_the_eigenvalues_of_hippo():
    """Those of the normal part of HiPPO-LegS, in the eigenvectors' basis of which B stands."""
    config = S5Config(state_dim=8, blocks=2)
    mixer = S5(config, Site(dim=6))
    n = torch.arange(4.0)
    root = (2 * n + 1).sqrt()
    legs = -torch.outer(root, root).tril(-1) - torch.diag(n + 1)
    normal = legs + torch.outer(root, root) / 2  # rank one apart, P = sqrt(n + 1/2)
    expected = torch.linalg.eigvals(normal)
    poles = torch.complex(-mixer.log_decay.exp(), mixer.frequency).detach()
    close(poles[:2], poles[2:], 1e-6)
    close(poles[:2].imag, expected.imag[expected.imag > 0].sort(descending=True).values, 1e-5)
    close(poles.real, torch.full((4,), -0.5), 1e-6)


@pytest.mark.parametrize("rule", ["euler", "zoh"])
def test_the_selective_scan_is_its_recurrence(rule):
    torch.manual_seed(0)
    u, dt = torch.randn(2, 9, 3, dtype=torch.float64), torch.rand(2, 9, 3, dtype=torch.float64)
    a, b, c = -torch.rand(3, 4, dtype=torch.float64), *torch.randn(2, 2, 9, 4, dtype=torch.float64)
    y, state = selective_scan(u, dt, a, b, c, zoh=rule == "zoh")
    h = torch.zeros(2, 3, 4, dtype=torch.float64)
    for t in range(9):
        decay = torch.exp(dt[:, t, :, None] * a)
        entering = (decay - 1) / a if rule == "zoh" else dt[:, t, :, None]
        h = decay * h + entering * b[:, t, None] * u[:, t, :, None]
        close(y[:, t], (h * c[:, t, None]).sum(-1))
    close(state, h)


def test_the_selective_scan_goes_on_from_piece_to_piece(monkeypatch):
    monkeypatch.setattr("subquad_plugins.numerics.selective_scan.PIECE", 4 * 2 * 3 * 5)
    torch.manual_seed(0)
    shapes = ((2, 11, 3), (2, 11, 3), (3, 5), (2, 11, 5), (2, 11, 5), (2, 3, 5), 3, 3, (2, 11, 3))
    inputs = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    inputs[2] = -inputs[2].abs()
    inputs = [tensor.requires_grad_() for tensor in inputs]

    def run(forced: str) -> list[torch.Tensor]:
        *given, bias, skip, gate = inputs
        with using({"mamba.scan": forced}):
            y, last = selective_scan(*given, bias=bias, skip=skip, gate=gate)
        return [y, last, *torch.autograd.grad(y.square().sum() + last.sin().sum(), inputs)]

    assert_close(run("pieces"), run("reference"), 1e-11)


def test_mamba_starts_with_time_steps_in_their_range():
    mixer = Mamba(MambaConfig(dt_min=1e-3, dt_max=1e-2), Site(dim=64))
    steps = F.softplus(mixer.dt.bias)
    assert 0.9e-3 < steps.min() < 2e-3
    assert 5e-3 < steps.max() < 1.1e-2
    assert mixer.dt.weight.shape == (128, 4)


def test_time_scales_are_trained_without_decay():
    rules = S4D(S4DConfig(), Site(dim=4)).parameter_rules()
    assert set(rules) == {"log_dt", "log_decay", "frequency"}
    assert all(
        not rule.weight_decay and math.isclose(rule.lr_scale, 0.1) for rule in rules.values()
    )
    assert not Mamba(MambaConfig(), Site(dim=4)).parameter_rules()["log_decay"].weight_decay


def test_parameters_are_real_so_that_they_are_cast_and_sharded():
    for mixer in (S4D(S4DConfig(), Site(dim=4)), S5(S5Config(), Site(dim=4))):
        assert isinstance(mixer, nn.Module)
        assert not any(parameter.is_complex() for parameter in mixer.parameters())
