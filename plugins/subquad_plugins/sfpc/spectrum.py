"""Eigenvalues of the fixed operators in closed form, in which the paper's error bound is stated.

For a symmetric T, ||f(T) - p(T)||_2 is the largest |f - p| over its eigenvalues, hence at most that
over [-4, 0].

Letters: L length.
Reference: Hussain et al. 2025, Theorem 4.1; the boundary conditions are ours, the paper's matrix is
lost in the text.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def eigenvalues(matrix: str, length: int, column: Tensor | None = None) -> Tensor:
    """The L eigenvalues, float64 or complex128, in order of frequency.

    Args:
        matrix: neumann -4 sin^2(j pi / 2L), dirichlet -4 sin^2((j+1) pi / 2(L+1)), periodic -4
            sin^2(j pi / L), cyclic exp(-2 pi i j / L), circulant (the column's Fourier transform)
            or shift (all zero), j = 0..L-1.
        length: L.
        column: (L,), the circulant's first column.
    """
    j = torch.arange(length, dtype=torch.float64)
    if matrix == "shift":
        return torch.zeros_like(j)
    if matrix == "cyclic":
        return torch.polar(torch.ones_like(j), -2 * math.pi * j / length)
    if matrix == "circulant":
        assert column is not None
        return torch.fft.fft(column.double())
    half_angle = {
        "neumann": math.pi * j / (2 * length),
        "dirichlet": math.pi * (j + 1) / (2 * length + 2),
        "periodic": math.pi * j / length,
    }[matrix]
    return -4 * half_angle.sin() ** 2
