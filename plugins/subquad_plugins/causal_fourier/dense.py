"""Single rows of the causal Fourier matrix: the dense form for short sequences, and one step of decoding.

Letters: R rows (any shape), T length, N period, P Taylor terms.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from subquad_plugins.fourier.taylor import taylor_factors


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


def taylor_row_weights(positions: Tensor, length: int, period: int, delta: Tensor, terms: int) -> Tensor:
    """`row_weights` as P Taylor terms give them: what the chirp form computes, errors of the series included."""
    k = torch.arange(length, device=positions.device)
    angle = (positions[..., None] * k % period).double() * (-2 * math.pi / period)
    centred = k.double() / period - 0.5
    series = torch.zeros((), dtype=torch.complex128, device=positions.device)
    for factor in reversed(taylor_factors(delta, terms, torch.float64)):
        series = series * centred + factor[..., None]
    weights = series.real * angle.cos() - series.imag * angle.sin()
    return weights.masked_fill(k > positions[..., None], 0.0)
