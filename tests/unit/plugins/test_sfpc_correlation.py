"""Sums of lagged products, on either side of the length at which they are computed another way."""

from __future__ import annotations

import pytest
import torch

from subquad_plugins.sfpc.correlation import BLOCK, SHORT, correlate, lagged_sums


@pytest.mark.parametrize(
    "length", [1, BLOCK - 1, BLOCK, SHORT - 1, SHORT, SHORT + 1, SHORT + BLOCK]
)
@pytest.mark.parametrize("taps", [1, 6, 33])
@pytest.mark.parametrize("fft", [False, True])
def test_lagged_sums_are_what_differentiates_the_taps(length, taps, fft, monkeypatch):
    monkeypatch.setattr("subquad_plugins.sfpc.correlation.PIECE", 60)
    draw = torch.Generator().manual_seed(length + taps)
    x = torch.randn(3, length + taps - 1, 2, dtype=torch.float64, generator=draw)
    y = torch.randn(3, length, 2, dtype=torch.float64, generator=draw)
    kernel = torch.randn(2, taps, dtype=torch.float64, generator=draw, requires_grad=True)
    (expected,) = torch.autograd.grad((correlate(x, kernel) * y).sum(), kernel)
    got = lagged_sums(x, y, fft)
    assert got.shape == (2, taps)
    assert (got - expected).abs().max() < 1e-11 * max(1.0, float(expected.abs().max()))
