"""The causal Fourier matrix: whole for short sequences, its rows for one step of decoding.

Letters: R rows (any shape), T length, N period, P terms.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from subquad_plugins.fourier.interpolation import node_factors, node_polynomials

Norm = Literal["paper", "ortho", "causal_rms"]

KEPT_LENGTH = 1024
"""Longest matrix that is kept between calls: 8 MiB in float64, four of them at most."""


def causal_matrix(x: Tensor, period: int, norm: Norm, first: int = 0) -> Tensor:
    """c_n cos(2 pi n k / N) for k <= n, 0 for later k: what x, (B, T, D), is multiplied by; (T, T),
    not to be changed.

    `first` is n and k of the first token. The last few are kept, since all layers and all batches
    use the same.
    """
    size = (x.shape[1], period, norm, x.dtype, x.device, first)
    # What traces must not leave its tensors here, and what counts operations must see the same ones
    # each time.
    watched = torch.compiler.is_compiling() or type(x) is not Tensor or is_in_torch_dispatch_mode()
    if watched or x.shape[1] > KEPT_LENGTH:
        return _matrix(*size)
    return _kept_matrix(*size)


def _matrix(
    length: int, period: int, norm: Norm, dtype: torch.dtype, device: torch.device, first: int
) -> Tensor:
    places = torch.arange(first, first + length, device=device)
    weights = row_weights(places, length, period, dtype, None, first)
    return row_scale(places, period, norm)[:, None].to(dtype) * weights


@lru_cache(maxsize=4)
def _kept_matrix(
    length: int, period: int, norm: Norm, dtype: torch.dtype, device: torch.device, first: int
) -> Tensor:
    # A tensor of inference mode could take no part in training later.
    with torch.inference_mode(False):
        return _matrix(length, period, norm, dtype, device, first)


def row_scale(positions: Tensor, period: int, norm: Norm) -> Tensor:
    """c_n at the given positions, float64.

    `paper` leaves row n with a root mean square of sqrt(2 (n + 1)) / N for white input;
    `causal_rms` makes it 1.
    """
    if norm == "causal_rms":
        return ((positions.double() + 1) / 2).rsqrt()
    if norm == "paper":
        constant = 2 / period
    else:
        constant = (2 / period) ** 0.5
    return torch.full_like(positions, constant, dtype=torch.float64)


def row_weights(
    positions: Tensor,
    length: int,
    period: int,
    dtype: torch.dtype,
    delta: Tensor | None = None,
    first: int = 0,
) -> Tensor:
    """cos(2 pi (n + delta_n) k / N) for k <= n, 0 for later k.

    Args:
        positions: n, (R,) int64.
        length: T, number of columns k.
        period: N.
        dtype: of the result.
        delta: (R,), None for 0.
        first: k of the first column.

    Returns:
        (R, T).
    """
    k = torch.arange(first, first + length, device=positions.device)
    # A whole product is reduced mod N before it becomes a float, so that no digit of the phase is
    # lost.
    turns = positions[..., None] * k % period
    if delta is None:
        weights = _cosines(turns, period, dtype)
    else:
        weights = torch.cos(
            (turns.to(dtype) + delta.to(dtype)[..., None] * k) * (2 * math.pi / period)
        )
    return weights.masked_fill(k > positions[..., None], 0.0)


def _cosines(turns: Tensor, period: int, dtype: torch.dtype) -> Tensor:
    """cos(2 pi t / N) of whole numbers t in 0..N - 1, each cosine once where there are more t
    than N.
    """
    few = turns.numel() <= period
    values = (turns if few else torch.arange(period, device=turns.device)).double() * (
        2 * math.pi / period
    )
    if few:
        return values.cos().to(dtype)
    return values.cos().to(dtype)[turns]


def interpolated_row_weights(
    positions: Tensor, length: int, period: int, delta: Tensor, terms: int, first: int = 0
) -> Tensor:
    """`row_weights` in float64 as the chirp form with P terms has them, its error included."""
    k = torch.arange(first, first + length, device=positions.device)
    angle = (positions[..., None] * k % period).double() * (-2 * math.pi / period)
    polynomials = node_polynomials(k.double() / period, terms, torch.float64)
    beside = node_factors(delta, terms, torch.float64).movedim(0, -1) @ polynomials.to(
        torch.complex128
    )
    weights = beside.real * angle.cos() - beside.imag * angle.sin()
    return weights.masked_fill(k > positions[..., None], 0.0)
