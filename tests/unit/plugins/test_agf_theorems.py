"""Theorems 1 and 2 of the AGF paper (Wi, Choi, Park 2025), in numbers: of the softmax core, and of
the polynomial that AGF evaluates.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from subquad.nn.kernels import using
from subquad.plugin import Site
from subquad_plugins.agf.filter import polynomial
from subquad_plugins.softmax import Config
from subquad_plugins.softmax.core import Softmax

TOKENS = 24


def attention_map(scale: float) -> Tensor:
    """(n, n) float64: what the core multiplies values with, as values of the identity show it."""
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, 1, TOKENS, 8, generator=generator, dtype=torch.float64) * scale
    values = torch.eye(TOKENS, dtype=torch.float64)[None, None]
    with using("reference"):
        return Softmax(Config(), Site(dim=8, num_heads=1))(q, k, values)[0, 0]


def high_over_low(signal: Tensor) -> float:
    """Norm of all frequencies but 0 over that of frequency 0, by torch's DFT."""
    waves = torch.fft.fft(signal)
    return float(waves[1:].norm() / waves[0].abs())


def connected_graph() -> Tensor:
    """(n,) eigenvalues of a connected graph's normalised adjacency, with self-loops; the largest,
    1, is the last.
    """
    generator = torch.Generator().manual_seed(1)
    edges = (torch.rand(TOKENS, TOKENS, generator=generator, dtype=torch.float64) < 0.2).double()
    ring = torch.eye(TOKENS, dtype=torch.float64).roll(1, 0)
    adjacency = ((edges + edges.T + ring + ring.T) > 0).double()
    adjacency.fill_diagonal_(1.0)
    roots = adjacency.sum(1).rsqrt()
    eigenvalues = torch.linalg.eigvalsh(roots[:, None] * adjacency * roots)
    assert eigenvalues[-1] == pytest.approx(1.0)
    assert eigenvalues[-2] < 0.99, "connected"
    assert eigenvalues[0] > -0.99
    return eigenvalues


@pytest.mark.parametrize("scale", [0.1, 1.0, 2.0])
def test_powers_of_an_attention_map_leave_frequency_0_alone(scale: float):
    attention = attention_map(scale)
    signal = torch.linspace(-1, 2, TOKENS, dtype=torch.float64).sin()
    ratios = []
    for _ in range(8):
        ratios.append(high_over_low(signal))
        for _ in range(50):
            signal = attention @ signal
    assert ratios[0] > 0.1
    assert ratios[-1] < 1e-9, "Theorem 1"


def test_coefficients_that_sum_to_one_pass_low_frequencies():
    generator = torch.Generator().manual_seed(2)
    eigenvalues = connected_graph()
    for order in (1, 2, 5, 10):
        coefficients = torch.rand(order + 1, generator=generator, dtype=torch.float64)
        response = polynomial(eigenvalues, coefficients / coefficients.sum(), None).abs()
        assert response[-1] == pytest.approx(1.0)
        assert (response[:-1] < response[-1]).all(), "Theorem 2, first half"


@pytest.mark.parametrize("alpha", [0.2, 0.5, 0.9])
def test_coefficients_of_changing_sign_pass_high_frequencies(alpha: float):
    eigenvalues = connected_graph()
    coefficients = (-alpha) ** torch.arange(101, dtype=torch.float64)
    response = polynomial(eigenvalues, coefficients, None).abs()
    assert (response[:-1] > response[-1]).all(), "Theorem 2, second half"
    assert response == pytest.approx(1 / (1 + alpha * eigenvalues), rel=1e-3)


def test_one_sign_turned_makes_the_filter_no_low_pass():
    """So the tests above can fail."""
    response = polynomial(connected_graph(), torch.tensor([0.5, -0.5]).double(), None).abs()
    assert not (response[:-1] < response[-1]).all()
