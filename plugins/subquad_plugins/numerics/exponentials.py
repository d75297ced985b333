"""Sums of exponentials along the sequence, h_t = exp(r) h_{t-1} + x_t: as a kernel, and the state
after a prompt.

Rates r may be complex; the rest is then complex too.

Letters: B batch, L length, D channels, C kernels, N exponentials of each, K kernel length.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def exponential_kernel(rates: Tensor, scale: Tensor, length: int) -> Tensor:
    """k_j = Re sum_n scale_n exp(j rates_n) for j = 0 .. length - 1.

    Powers come as exp((a T + b) r) = exp(a T r) exp(b r) with T about sqrt(length), one small
    matrix product per kernel: neither length exponentials per n, nor a (C, N, length) tensor.
    Complex ones are pairs of real columns.

    Args:
        rates: r, (C, N).
        scale: (.., C, N).
        length: K >= 1.

    Returns:
        (.., C, K), real.
    """
    fine = math.isqrt(length - 1) + 1
    coarse = -(-length // fine)
    steps = torch.arange(max(fine, coarse), device=rates.device, dtype=rates.real.dtype)
    rows = scale[..., None, :] * _powers(rates, fine * steps[:coarse])  # (.., C, coarse, N)
    columns = _powers(rates.conj(), steps[:fine])  # (C, fine, N)
    if rates.is_complex():
        rows, columns = (torch.view_as_real(x).flatten(-2) for x in (rows, columns))
    return torch.einsum("...can,cbn->...cab", rows, columns).flatten(-2)[..., :length]


def _powers(rates: Tensor, steps: Tensor) -> Tensor:
    """exp(steps rates), (C, S, N); of complex rates by real functions, which are several times
    as fast.
    """
    if not rates.is_complex():
        return torch.exp(steps[:, None] * rates[:, None])
    size, angle = (steps[:, None] * part[:, None] for part in (rates.real, rates.imag))
    size = size.exp()
    return torch.complex(size * angle.cos(), size * angle.sin())


def exponential_state(x: Tensor, rates: Tensor, keep: Tensor | None = None) -> Tensor:
    """h after the real tokens of each sample.

    A sum over positions weighted by exp(r times the tokens that follow), not a loop.

    Args:
        x: (B, L, D).
        rates: r, (D, N).
        keep: (B, L) bool, True = real token; real ones first.

    Returns:
        (B, D, N).
    """
    if keep is None:
        keep = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
    later = (keep.sum(1, keepdim=True) - keep.cumsum(1)).to(x.dtype)  # (B, L)
    state = rates.new_zeros(*x.shape[::2], rates.shape[1])
    # Piece by piece, so that the (B, piece, D, N) of powers stays small.
    for part, reach, real in zip(
        x.split(64, 1), later.split(64, 1), keep.split(64, 1), strict=True
    ):
        powers = torch.exp(reach[:, :, None, None] * rates).masked_fill(
            ~real[:, :, None, None], 0.0
        )
        state = state + torch.einsum(
            "bldn,bld->bdn", powers, part.masked_fill(~real[..., None], 0.0).to(powers.dtype)
        )
    return state
