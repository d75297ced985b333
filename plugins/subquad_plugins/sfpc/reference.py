"""p(T) x by Horner's and Clenshaw's schemes, the paper's linear-time form: K applications of T, one
after the other.

Reference: Hussain et al. 2025, Lemma 5.1 and Theorem 5.1, Horner's scheme; Clenshaw's for the bases
other than powers.
Letters: B batch, L length, D width, K order, c coefficients (D, K+1) or (1, K+1).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from subquad_plugins.sfpc.basis import Steps
from subquad_plugins.sfpc.extension import extend, put_back, to_front
from subquad_plugins.sfpc.fourier import spectral_product

Operator = Callable[[Tensor], Tensor]


def recurrence(
    x: Tensor,
    c: Tensor,
    steps: Steps,
    matrix: str,
    column: Tensor | None = None,
    keep: Tensor | None = None,
    *,
    rescaled: bool = False,
) -> Tensor:
    """sum_k c_k P_k x, where `steps` make the polynomials P_k.

    Args:
        x: (B, L, D).
        c: (D, K+1) or (1, K+1).
        steps: the recurrence of the basis, K of them, in what the operator is.
        matrix: neumann, dirichlet, periodic, shift, cyclic or circulant.
        column: (L,), of the circulant.
        keep: (B, L) bool, True = real token.
        rescaled: P_k of T / 2 + I instead of T.

    Returns:
        (B, L, D), zero at padding.
    """
    compact = keep is not None and matrix not in ("shift", "circulant")
    if keep is not None:
        if compact:
            x = to_front(x, keep)
        else:
            x = x.masked_fill(~keep[..., None], 0.0)
    apply = operator(matrix, column, keep if compact else None)

    def variable(v: Tensor) -> Tensor:
        return apply(v) / 2 + v if rescaled else apply(v)

    y = clenshaw(x, c, steps, variable)
    if keep is None:
        return y
    if compact:
        return put_back(y, keep)
    return y.masked_fill(~keep[..., None], 0.0)


def clenshaw(x: Tensor, c: Tensor, steps: Steps, apply: Operator) -> Tensor:
    """b_k = c_k x + (slope_{k+1} T + shift_{k+1}) b_{k+1} - back_{k+2} b_{k+2}, down to b_0 = p(T)
    x.

    For powers (slope 1, shift 0, back 0) this is Horner's scheme.
    """
    newer = c[:, -1] * x
    older = None
    for k in range(len(steps) - 1, -1, -1):
        value = c[:, k] * x + steps[k].slope * apply(newer)
        if steps[k].shift:
            value = value + steps[k].shift * newer
        if older is not None and steps[k + 1].back:
            value = value - steps[k + 1].back * older
        newer, older = value, newer
    return newer


def operator(matrix: str, column: Tensor | None = None, keep: Tensor | None = None) -> Operator:
    """T as a function of the tokens (B, L, D); with `keep` they are as `to_front` returns them."""
    if matrix == "circulant":
        assert column is not None
        eigenvalues = torch.fft.rfft(column)[:, None]
        return lambda v: spectral_product(v, eigenvalues, v.shape[1])
    if matrix in ("shift", "cyclic"):
        return lambda v: extend(v, 1, 0, matrix, keep)[:, :-1]

    def laplacian(v: Tensor) -> Tensor:
        around = extend(v, 1, 1, matrix, keep)
        return around[:, :-2] - 2 * v + around[:, 2:]

    return laplacian
