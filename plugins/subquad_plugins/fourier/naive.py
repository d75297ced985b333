"""Fourier mixing by its matrices, sample by sample: the oracle that the fast paths are tested
against.

Letters: B batch, L length, D width, N number of real tokens of a sample.
Reference: MDFWA, Eq. 2 and its learned frequencies; FNet, Eq. 3.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def fourier(
    x: Tensor,
    form: str,
    norm: str,
    omega: Tensor | None = None,
    keep: Tensor | None = None,
    length: str = "sample",
) -> Tensor:
    """What the mixer computes, without projections.

    Args:
        x: (B, L, D) float64.
        form: "re_seq", "re_2d" or "hartley".
        norm: "paper" or "ortho".
        omega: (L,) frequencies; 0, 1, .. where None.
        keep: (B, L) bool, True = real token.
        length: "sample" or "padded".

    Returns:
        (B, L, D); zero at padding with length "sample".
    """
    if keep is None:
        keep = torch.ones(x.shape[:2], dtype=torch.bool)
    if omega is None:
        omega = torch.arange(x.shape[1], dtype=x.dtype)
    if length == "padded":
        return torch.stack([_mixed(sample, form, norm, omega) for sample in x * keep[..., None]])
    out = torch.zeros_like(x)
    for b, real in enumerate(keep):
        if real.any():
            out[b, real] = _mixed(x[b, real], form, norm, omega[: int(real.sum())])
    return out


def _mixed(x: Tensor, form: str, norm: str, omega: Tensor) -> Tensor:
    """One sample without padding, (N, D)."""
    length, width = x.shape
    n = torch.arange(length)
    d = torch.arange(width)
    angle = 2 * math.pi * omega[:, None] * n / length
    cos = torch.cos(angle)
    sin = torch.sin(angle)
    if norm == "paper":
        scale = 1.0
    else:
        scale = length**-0.5
    if form == "re_seq":
        return scale * cos @ x
    if form == "hartley":
        return scale * (cos + sin) @ x
    across = 2 * math.pi * torch.outer(d, d).to(x.dtype) / width
    if norm == "paper":
        scale = 1.0
    else:
        scale = (length * width) ** -0.5
    return scale * (cos @ x @ torch.cos(across) - sin @ x @ torch.sin(across))
