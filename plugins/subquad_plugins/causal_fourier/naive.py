"""Causal Fourier mixing as one sum for each token: the oracle that the fast paths are tested
against.

Letters: T length, D width, N period.
Reference: MDFWA, Sec. 3.2.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def causal_fourier(x: Tensor, period: int, norm: str, delta: Tensor | None = None) -> Tensor:
    """X'_n = c_n sum_{k <= n} cos(2 pi (n + delta_n) k / N) x_k.

    Args:
        x: (B, T, D) float64, without padding.
        period: N.
        norm: c_n: "paper" 2 / N, "ortho" sqrt(2 / N), "causal_rms" 1 / sqrt((n + 1) / 2).
        delta: (T,), zero where None.

    Returns:
        (B, T, D).
    """
    rows = []
    for n in range(x.shape[1]):
        if delta is None:
            frequency = n
        else:
            frequency = n + delta[n]
        k = torch.arange(n + 1, dtype=x.dtype)
        weights = torch.cos(2 * math.pi * frequency * k / period)
        scale = {
            "paper": 2 / period,
            "ortho": math.sqrt(2 / period),
            "causal_rms": 1 / math.sqrt((n + 1) / 2),
        }[norm]
        rows.append(scale * torch.einsum("k,bkd->bd", weights, x[:, : n + 1]))
    return torch.stack(rows, 1)
