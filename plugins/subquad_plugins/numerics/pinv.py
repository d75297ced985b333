"""Pseudo-inverses of the small matrices in the middle of low-rank attention, U in C U+ R.

All functions work in fp32 at least, with autocast off, and return that. Rows and columns of zeros
(picks that a short sample does not have) stay zeros in the result and change nothing else.

Letters: p rows, r columns of U; p = r in most uses.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from subquad_plugins.numerics.tensors import wide

Start = Literal["norms", "rows", "batch"]


def pseudo_inverse(
    u: Tensor, iterations: int, *, start: Start = "norms", through_start: bool = True
) -> Tensor:
    """Third-order iteration towards U+: Z <- Z (13 I - UZ (15 I - UZ (7 I - UZ))) / 4, from a
    scaled U^T.

    After a few steps this is a spectral filter rather than an inverse: on an eigenvalue x of UZ a
    step is x (13 - 15 x + 7 x^2 - x^3) / 4, which multiplies small ones by 3.25. It diverges for a
    start with x > 4.1.

    Args:
        u: (..., p, r).
        iterations: steps, 0 for the start alone.
        start: the scale of U^T. "norms": 1 / (|U|_1 |U|_inf) of each matrix (largest column sum,
            largest row sum of magnitudes), never above 1 / |U|_2^2. "rows": 1 / |U|_1 of each
            matrix, right where rows sum to 1. "batch": one scalar, 1 / |U|_1 of the worst matrix,
            so that samples influence each other.
        through_start: whether gradients pass through the scale.

    Returns:
        (..., r, p).

    Reference: Xiong et al. 2021, Nystromformer, Eq. 11; Razavi et al. 2014. "batch" is the default
    of the authors' public code (mlpen/Nystromformer), kept only to replay its numbers.
    """
    with torch.autocast(u.device.type, enabled=False):
        u = wide(u)
        z = _start(u, start, through_start)
        shape = z.shape
        u = u.reshape(-1, *u.shape[-2:])
        z = z.reshape(-1, *z.shape[-2:])
        for _ in range(iterations):
            uz = torch.bmm(u, z)
            inner = torch.baddbmm(uz, uz, uz, beta=7, alpha=-1)
            middle = torch.baddbmm(uz, uz, inner, beta=15, alpha=-1)
            z = torch.baddbmm(z, z, middle, beta=13 / 4, alpha=-1 / 4)
        return z.reshape(shape)


def _start(u: Tensor, start: Start, through: bool) -> Tensor:
    """(..., r, p): U^T divided by its norms, one after the other, as their product may be too
    small for fp32.
    """
    columns, rows = norms(u if through else u.detach())
    z = u.mT / (columns.amax() if start == "batch" else columns)
    if start == "norms":
        return z / rows
    return z


def norms(u: Tensor) -> tuple[Tensor, Tensor]:
    """|U|_1 and |U|_inf of each matrix, (..., 1, 1): the largest column sum and row sum of
    magnitudes.

    1 for a matrix of zeros, whose pseudo-inverse and gradient are then 0 rather than NaN.
    """
    magnitudes = u.abs()
    columns = magnitudes.sum(-2).amax(-1)
    rows = magnitudes.sum(-1).amax(-1)
    return (columns + (columns == 0))[..., None, None], (rows + (rows == 0))[..., None, None]


def exact_inverse(u: Tensor, *, rtol: float | None = None) -> Tensor:
    """U+ by singular values.

    Args:
        u: (..., p, r).
        rtol: singular values below this share of the largest are taken for zero; default: the
            rounding error times the longer side, as torch does.

    Returns:
        (..., r, p).
    """
    with torch.autocast(u.device.type, enabled=False):
        return torch.linalg.pinv(wide(u), rtol=rtol)


def ridge_inverse(u: Tensor, ridge: float) -> Tensor:
    """(U^T U + ridge |U|_1 |U|_inf I)^-1 U^T: each singular value s becomes s / (s^2 + ridge |U|_1
    |U|_inf).

    Args:
        u: (..., p, r).
        ridge: relative damping, above 0.

    Returns:
        (..., r, p).
    """
    with torch.autocast(u.device.type, enabled=False):
        u = wide(u)
        columns, rows = norms(u)
        damping = ridge * columns * rows
        gram = u.mT @ u + damping * torch.eye(u.shape[-1], dtype=u.dtype, device=u.device)
        return torch.linalg.solve(gram, u.mT)
