"""Single rows of the causal Fourier matrix: the dense form for short sequences, and one step of decoding.

Letters: R rows (any shape), T length, N period, P terms.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from subquad_plugins.fourier.interpolation import node_factors, node_polynomials


def row_weights(positions: Tensor, length: int, period: int, dtype: torch.dtype, delta: Tensor | None = None) -> Tensor:
    """cos(2 pi (n + delta_n) k / N) for k <= n, 0 for later k.

    Args:
        positions: n, (R,) int64.
        length: T, number of columns k.
        period: N.
        dtype: of the result.
        delta: (R,), None for 0.

    Returns:
        (R, T).
    """
    k = torch.arange(length, device=positions.device)
    # A whole product is reduced mod N before it becomes a float, so that no digit of the phase is lost.
    turns = positions[..., None] * k % period
    if delta is None:
        values = torch.arange(period, device=positions.device).double() * (2 * math.pi / period)
        weights = values.cos().to(dtype)[turns]
    else:
        weights = torch.cos((turns.to(dtype) + delta.to(dtype)[..., None] * k) * (2 * math.pi / period))
    return weights.masked_fill(k > positions[..., None], 0.0)


def interpolated_row_weights(positions: Tensor, length: int, period: int, delta: Tensor, terms: int) -> Tensor:
    """`row_weights` in float64 as the chirp form with P terms has them, its error included."""
    k = torch.arange(length, device=positions.device)
    angle = (positions[..., None] * k % period).double() * (-2 * math.pi / period)
    polynomials = node_polynomials(k.double() / period, terms, torch.float64)
    beside = node_factors(delta, terms, torch.float64).movedim(0, -1) @ polynomials.to(torch.complex128)
    weights = beside.real * angle.cos() - beside.imag * angle.sin()
    return weights.masked_fill(k > positions[..., None], 0.0)
