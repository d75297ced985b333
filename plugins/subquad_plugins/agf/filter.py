"""The fast elementwise part of AGF: singular vectors times the polynomial filter, U * F(sigma).

F(y) = sum_k c_k P_k(y) with y = 2 sigmoid(s) - 1. Horner's scheme on powers of y where that is well
conditioned, else the three-term recurrence. Operation "agf.filter": the reference is in plain
operations, which a compiler fuses; "in-place" works in place, over pieces that stay in the CPU's
cache, with a hand-written backward pass that keeps two tensors (U and y) however high the order is.
Only where forced: "compiled" lets torch.compile fuse the reference, which is faster but needs a C++
compiler and some seconds; "recurrence" is the way of the authors' code.

Letters: K order, c coefficients (K+1,), N elements.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from subquad.nn.kernels import Operation
from subquad_plugins.numerics.jacobi import Step

Steps = tuple[Step, ...]

CPU_PIECE = 1 << 18
"""Elements handled at once on a CPU: bounds the work arrays to 1 MiB each in fp32, which stay in
the last-level cache; smaller pieces pay more for calls than they save in misses.
"""


def filtered_vectors(
    vectors: Tensor, logits: Tensor, coefficients: Tensor, steps: Steps | None
) -> Tensor:
    """U * F(sigmoid(s)), differentiable once with respect to all three tensors.

    Args:
        vectors: U, any shape, float32 or float64.
        logits: s, the same shape and dtype.
        coefficients: (K+1,), K >= 1, of the powers of y if `steps` is None, else of the basis the
            steps make.
        steps: the recurrence in y, or None for Horner's scheme.

    Returns:
        the shape of `vectors`.
    """
    return _FILTER(vectors, logits, coefficients, steps)


def _reference(
    vectors: Tensor, logits: Tensor, coefficients: Tensor, steps: Steps | None
) -> Tensor:
    return vectors * polynomial(2 * torch.sigmoid(logits) - 1, coefficients, steps)


_FILTER = Operation("agf.filter", reference=_reference)


def polynomial(y: Tensor, coefficients: Tensor, steps: Steps | None) -> Tensor:
    """F(y) in plain operations, differentiable by autograd to any order."""
    if steps is None:
        value = coefficients[-1]
        for k in range(len(coefficients) - 2, -1, -1):
            value = value * y + coefficients[k]
        return value
    older = torch.zeros_like(y)
    newer = torch.ones_like(y)
    value = coefficients[0] * newer
    for k, step in enumerate(steps, 1):
        older, newer = newer, (step.slope * y + step.shift) * newer - step.back * older
        value = value + coefficients[k] * newer
    return value


@_FILTER.implementation("in-place", when=lambda *_: not torch.compiler.is_compiling())
def _in_place(vectors: Tensor, logits: Tensor, coefficients: Tensor, steps: Steps | None) -> Tensor:
    return _FilteredVectors.apply(vectors, logits, coefficients, steps)  # pyright: ignore[reportReturnType]


def _can_compile(vectors: Tensor, *_: object) -> bool:
    return (
        vectors.numel() >= CPU_PIECE
        and not torch.compiler.is_compiling()
        and shutil.which("g++") is not None
    )


@_FILTER.implementation(
    "compiled", chosen=False, devices=("cpu",), dtypes=(torch.float32,), when=_can_compile
)
def _compiled(*given: Any) -> Tensor:
    return _compiler()(*given)


@cache
def _compiler() -> Callable[..., Tensor]:
    return torch.compile(_reference, dynamic=True)


@_FILTER.implementation("recurrence", chosen=False)
def _recurrence(
    vectors: Tensor, logits: Tensor, coefficients: Tensor, steps: Steps | None
) -> Tensor:
    return _reference(
        vectors, logits, coefficients, steps or (Step(1.0, 0.0, 0.0),) * (len(coefficients) - 1)
    )


class _FilteredVectors(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, vectors: Tensor, logits: Tensor, coefficients: Tensor, steps: Steps | None
    ) -> Tensor:
        vectors = vectors.contiguous()
        logits = logits.contiguous()
        y = torch.empty_like(logits)
        out = torch.empty_like(logits)
        for out_piece, y_piece, vectors_piece, logits_piece in _pieces(out, y, vectors, logits):
            torch.add(y.new_tensor(-1), torch.sigmoid(logits_piece), alpha=2, out=y_piece)
            torch.mul(evaluated(y_piece, coefficients, steps), vectors_piece, out=out_piece)
        ctx.save_for_backward(vectors, y, coefficients)
        ctx.steps = steps
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        vectors, y, coefficients = ctx.saved_tensors
        to_vectors = torch.empty_like(vectors)
        to_logits = torch.empty_like(y)
        to_coefficients = torch.zeros_like(coefficients)
        tensors = (grads[0].contiguous(), vectors, y, to_vectors, to_logits)
        for grad, vectors_piece, y_piece, to_vectors_piece, to_logits_piece in _pieces(*tensors):
            value, slope, sums = differentiated(
                y_piece, coefficients, ctx.steps, grad * vectors_piece
            )
            to_coefficients += sums
            torch.mul(grad, value, out=to_vectors_piece)
            # dy/ds = 2 sigma (1 - sigma) = (1 - y^2) / 2
            slope.mul_(torch.addcmul(y.new_tensor(0.5), y_piece, y_piece, value=-0.5, out=value))
            torch.mul(slope.mul_(vectors_piece), grad, out=to_logits_piece)
        return to_vectors, to_logits, to_coefficients, None


def _pieces(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Matching flat pieces of contiguous tensors; one piece on accelerators, where a launch
    costs more than a miss.
    """
    flat = [tensor.view(-1) for tensor in tensors]
    if flat[0].device.type == "cpu":
        size = CPU_PIECE
    else:
        size = max(1, flat[0].numel())
    return zip(*(tensor.split(size) for tensor in flat), strict=True)


def evaluated(y: Tensor, coefficients: Tensor, steps: Steps | None) -> Tensor:
    """F(y), without autograd."""
    if steps is None:
        return _horner(y, coefficients)
    return _recur(y, coefficients, steps)


def differentiated(
    y: Tensor, coefficients: Tensor, steps: Steps | None, weight: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """F(y), F'(y) and sum_n weight_n P_k(y_n) for each k, (K+1,); `weight` is used up."""
    if steps is None:
        return _horner_differentiate(y, coefficients, weight)
    return _recur_differentiate(y, coefficients, steps, weight)


def _horner(y: Tensor, coefficients: Tensor) -> Tensor:
    *lower, highest = coefficients.unbind()
    if not lower:
        return highest.expand_as(y).clone()
    value = (y * highest).add_(lower.pop())
    for coefficient in reversed(lower):
        torch.addcmul(coefficient, value, y, out=value)
    return value


def _horner_differentiate(
    y: Tensor, coefficients: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    degrees = torch.arange(1, len(coefficients), device=y.device)
    slope = _horner(y, coefficients[1:] * degrees)
    square = y * y
    sums = []
    for k in range(0, len(coefficients), 2):
        if k:
            weight = weight.mul_(square)
        sums += [weight.sum(), torch.dot(weight.flatten(), y.flatten())]
    return _horner(y, coefficients), slope, torch.stack(sums[: len(coefficients)])


def _recur(y: Tensor, coefficients: Tensor, steps: Steps) -> Tensor:
    older = torch.zeros_like(y)
    newer = torch.ones_like(y)
    value = coefficients[0].expand_as(y).clone()
    line = torch.empty_like(y)
    for k, step in enumerate(steps, 1):
        torch.mul(y, step.slope, out=line).add_(step.shift)
        older, newer = newer, older.mul_(-step.back).addcmul_(line, newer)
        value.addcmul_(newer, coefficients[k])
    return value


def _recur_differentiate(
    y: Tensor, coefficients: Tensor, steps: Steps, weight: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    older, newer, older_slope, newer_slope = (
        torch.full_like(y, start) for start in (0.0, 1.0, 0.0, 0.0)
    )
    value = coefficients[0].expand_as(y).clone()
    slope = torch.zeros_like(y)
    line = torch.empty_like(y)
    sums = [weight.sum()]
    for k, step in enumerate(steps, 1):
        torch.mul(y, step.slope, out=line).add_(step.shift)
        grown = (
            older_slope.mul_(-step.back).addcmul_(line, newer_slope).add_(newer, alpha=step.slope)
        )
        older_slope = newer_slope
        newer_slope = grown
        older, newer = newer, older.mul_(-step.back).addcmul_(line, newer)
        value.addcmul_(newer, coefficients[k])
        slope.addcmul_(newer_slope, coefficients[k])
        sums.append(torch.dot(newer.flatten(), weight.flatten()))
    return value, slope, torch.stack(sums)
