"""p(T) x as one convolution, for every operator but the circulant, with a closed-form backward
pass.

The sequence is continued beyond its ends (`extension.py`) and correlated with the taps of the
polynomial. The backward pass is the same again: a Laplacian is symmetric, so p(T) is its own
adjoint, and the adjoint of a shift shifts back. It keeps the input alone, whatever the order.
Operation "sfpc.fir": the reference is plain torch, "closed-form" has that backward pass, "triton"
also reads the sequence in its place and in its own number format (`kernel.py`). To be timed beside
them: "recurrence", the loop of K applications of T, and "conv1d", the depthwise convolution of
torch alone.

Letters: B batch, L length, D width, K order, a coefficients (D, K+1): Chebyshev for a Laplacian,
else powers.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from subquad.nn.kernels import Operation
from subquad_plugins.numerics.launching import FORMATS, fitting_mask, kernels_run
from subquad_plugins.numerics.tensors import wide
from subquad_plugins.sfpc import MOST_TAPS
from subquad_plugins.sfpc.basis import steps_of
from subquad_plugins.sfpc.correlation import correlate, lagged_sums
from subquad_plugins.sfpc.extension import extend, put_back, to_front
from subquad_plugins.sfpc.reference import recurrence

SHIFTS = ("shift", "cyclic")


def fir(x: Tensor, a: Tensor, matrix: str, keep: Tensor | None = None, fft: bool = False) -> Tensor:
    """sum_k a_k T_k(T / 2 + I) x of a Laplacian, sum_k a_k T^k x of a shift.

    Args:
        x: (B, L, D), of any number format; computed in fp32 at least.
        a: (D, K+1), float32 or float64.
        matrix: neumann, dirichlet, periodic, shift or cyclic.
        keep: (B, L) bool, True = real token. The operator of each sample is that of its real tokens
            in their order; the shift alone takes padding as zeros.
        fft: correlate by FFT.

    Returns:
        (B, L, D), zero at padding.
    """
    return _FIR(x, a, matrix, keep, fft)


def _reference(x: Tensor, a: Tensor, matrix: str, keep: Tensor | None, fft: bool) -> Tensor:
    extended = _extended(wide(x), *_reach(a, matrix), matrix, keep)
    return _returned(correlate(extended, _taps(a, matrix), fft), matrix, keep).to(x.dtype)


_FIR = Operation("sfpc.fir", reference=_reference)


def _fits(x: Tensor, a: Tensor, matrix: str, keep: Tensor | None, fft: bool) -> bool:
    """Whether the kernel takes it."""
    return (
        kernels_run(x, a, keep)
        and not fft
        and fitting_mask(keep, x)
        and a.dtype == torch.float32
        and len(a) == x.shape[2]
        and sum(_reach(a, matrix)) < MOST_TAPS
    )


@_FIR.implementation("triton", devices=("cuda",), dtypes=FORMATS, when=_fits)
def _triton(x: Tensor, a: Tensor, matrix: str, keep: Tensor | None, fft: bool) -> Tensor:
    return _Fir.apply(x, a, matrix, keep, "triton", False)  # pyright: ignore[reportReturnType]


@_FIR.implementation("closed-form")
def _closed_form(x: Tensor, a: Tensor, matrix: str, keep: Tensor | None, fft: bool) -> Tensor:
    y: Any = _Fir.apply(wide(x), a, matrix, keep, "fft" if fft else "conv", False)
    return y.to(x.dtype)


@_FIR.implementation("recurrence", chosen=False)
def _loop(x: Tensor, a: Tensor, matrix: str, keep: Tensor | None, fft: bool) -> Tensor:
    basis = "monomial" if matrix in SHIFTS else "chebyshev"
    steps = steps_of(basis, a.shape[1] - 1, 0.0, 0.0)
    return recurrence(wide(x), a, steps, matrix, keep=keep, rescaled=matrix not in SHIFTS).to(
        x.dtype
    )


@_FIR.implementation("conv1d", chosen=False)
def _conv1d(x: Tensor, a: Tensor, matrix: str, keep: Tensor | None, fft: bool) -> Tensor:
    extended = _extended(wide(x), *_reach(a, matrix), matrix, keep)
    y = F.conv1d(extended.transpose(1, 2), _taps(a, matrix)[:, None], groups=x.shape[2])
    return _returned(y.transpose(1, 2), matrix, keep).to(x.dtype)


class _Fir(torch.autograd.Function):
    """By "conv", "fft" or "triton"; p(T) itself or its adjoint."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, a: Tensor, matrix: str, keep: Tensor | None, by: str, adjoint: bool
    ) -> Tensor:
        ctx.save_for_backward(x, a, keep)
        ctx.how = matrix, by, adjoint
        taps = _taps(a, matrix)
        before, after = _reach(a, matrix)
        if adjoint and matrix in SHIFTS:
            taps = taps.flip(1)
            before, after = after, before
        if by == "triton":
            from subquad_plugins.sfpc.kernel import correlate_continued

            y = correlate_continued(_arrived(x, matrix, keep), taps, before, matrix, keep)
        else:
            y = correlate(_extended(x, before, after, matrix, keep), taps, by == "fft")
        return _returned(y, matrix, keep)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, a, keep = ctx.saved_tensors
        matrix, by, adjoint = ctx.how
        # A caller may start the backward pass under autocast, which would convolve in half
        # precision.
        with torch.autocast(x.device.type, enabled=False):
            if ctx.needs_input_grad[0]:
                to_x = _Fir.apply(grad, a, matrix, keep, by, not adjoint)
            else:
                to_x = None
            if ctx.needs_input_grad[1]:
                to_a = _to_coefficients(grad, x, a, keep, *ctx.how)
            else:
                to_a = None
        return to_x, to_a, None, None, None, None


def _to_coefficients(
    grad: Tensor, x: Tensor, a: Tensor, keep: Tensor | None, matrix: str, by: str, adjoint: bool
) -> Tensor:
    """Gradient of a_k: the product of the output's gradient with the k-th polynomial of T, times
    x.
    """
    if adjoint:
        given = grad
        taken = x
    else:
        given = x
        taken = grad
    before, after = _reach(a, matrix)
    taken = _arrived(taken, matrix, keep)
    if by == "triton":
        from subquad_plugins.sfpc.kernel import sums_continued

        sums = sums_continued(
            _arrived(given, matrix, keep), taken, before + after + 1, before, matrix, keep
        )
    else:
        sums = lagged_sums(_extended(given, before, after, matrix, keep), taken, by == "fft")
    return _coefficients(sums, matrix)


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
    if matrix == "shift":
        return x.masked_fill(~keep[..., None], 0.0)
    return to_front(x, keep)


def _returned(y: Tensor, matrix: str, keep: Tensor | None) -> Tensor:
    if keep is None:
        return y
    if matrix == "shift":
        return y.masked_fill(~keep[..., None], 0.0)
    return put_back(y, keep)
