"""p(T) x as one convolution, for every operator but the circulant, with a closed-form backward pass.

The sequence is continued beyond its ends (`extension.py`) and correlated with the taps of the polynomial. The backward
pass is the same again: a Laplacian is symmetric, so p(T) is its own adjoint, and the adjoint of a shift shifts back.
It keeps the input alone, whatever the order.

Letters: B batch, L length, D width, K order, a coefficients (D, K+1): Chebyshev for a Laplacian, else powers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from subquad_plugins.sfpc.extension import extend, put_back, to_front
from subquad_plugins.sfpc.kernel import correlate, lagged_sums

SHIFTS = ("shift", "cyclic")


def fir(x: Tensor, a: Tensor, matrix: str, keep: Tensor | None = None, fft: bool = False) -> Tensor:
    """sum_k a_k T_k(T / 2 + I) x of a Laplacian, sum_k a_k T^k x of a shift.

    Args:
        x: (B, L, D).
        a: (D, K+1).
        matrix: neumann, dirichlet, periodic, shift or cyclic.
        keep: (B, L) bool, True = real token. The operator of each sample is that of its real tokens in their order;
            the shift alone takes padding as zeros.
        fft: correlate by FFT.

    Returns:
        (B, L, D), zero at padding.
    """
    return _Fir.apply(x, a, matrix, keep, fft, False)


class _Fir(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, a: Tensor, matrix: str, keep: Tensor | None, fft: bool, adjoint: bool) -> Tensor:
        ctx.save_for_backward(x, a, keep)
        ctx.how = matrix, fft, adjoint
        taps = _taps(a, matrix)
        before, after = _reach(a, matrix)
        if adjoint and matrix in SHIFTS:
            taps, before, after = taps.flip(1), after, before
        y = correlate(_extended(x, before, after, matrix, keep), taps, fft)
        return _returned(y, matrix, keep)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, a, keep = ctx.saved_tensors
        matrix, fft, adjoint = ctx.how
        # A caller may start the backward pass under autocast, which would convolve in half precision.
        with torch.autocast(x.device.type, enabled=False):
            to_x = _Fir.apply(grad, a, matrix, keep, fft, not adjoint) if ctx.needs_input_grad[0] else None
            to_a = _to_coefficients(grad, x, a, keep, *ctx.how) if ctx.needs_input_grad[1] else None
        return to_x, to_a, None, None, None, None


def _to_coefficients(
    grad: Tensor, x: Tensor, a: Tensor, keep: Tensor | None, matrix: str, fft: bool, adjoint: bool
) -> Tensor:
    """Gradient of a_k: the product of the output's gradient with the k-th polynomial of T, times x."""
    given, taken = (grad, x) if adjoint else (x, grad)
    extended = _extended(given, *_reach(a, matrix), matrix, keep)
    return _coefficients(lagged_sums(extended, _arrived(taken, matrix, keep), fft), matrix)


def _reach(a: Tensor, matrix: str) -> tuple[int, int]:
    """How many tokens before and after its own a token's output depends on."""
    order = a.shape[1] - 1
    return order, 0 if matrix in SHIFTS else order


def _taps(a: Tensor, matrix: str) -> Tensor:
    """(D, K+1) or (D, 2K+1): the kernel, in the order of the tokens it meets."""
    if matrix in SHIFTS:
        return a.flip(1)
    side = a[:, 1:] / 2
    return torch.cat([side.flip(1), a[:, :1], side], 1)


def _coefficients(taps: Tensor, matrix: str) -> Tensor:
    """The adjoint of `_taps`: gradients of the taps to gradients of the coefficients."""
    if matrix in SHIFTS:
        return taps.flip(1)
    order = taps.shape[1] // 2
    sides = (taps[:, order + 1 :] + taps[:, :order].flip(1)) / 2
    return torch.cat([taps[:, order : order + 1], sides], 1)


def _extended(x: Tensor, before: int, after: int, matrix: str, keep: Tensor | None) -> Tensor:
    return extend(_arrived(x, matrix, keep), before, after, matrix, keep)


def _arrived(x: Tensor, matrix: str, keep: Tensor | None) -> Tensor:
    """Tokens where the operator wants them, zeros in the place of padding."""
    if keep is None:
        return x
    return x.masked_fill(~keep[..., None], 0.0) if matrix == "shift" else to_front(x, keep)


def _returned(y: Tensor, matrix: str, keep: Tensor | None) -> Tensor:
    if keep is None:
        return y
    return y.masked_fill(~keep[..., None], 0.0) if matrix == "shift" else put_back(y, keep)
