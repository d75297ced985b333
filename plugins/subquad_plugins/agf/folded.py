"""The whole AGF layer as one function, for a CPU: fewer products, and four tensors of the tokens
kept for the gradient.

Two products over all tokens become products of matrices of one sample: V^T (x W_value) = (V^T x)
W_value, and (U F) S W_out = (U F) (S W_out). This pays where a sample is longer than D. What is
made of single numbers is made tile by tile, so that it stays in the CPU's cache. V is kept as exp(v
- max); its sums are put into the matrices.

Letters: B batch, L length, D model width, H heads, E head width, K order, S = V^T value.
Reference: Wi, Choi, Park 2025, Eq. 7-12.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from subquad.nn.kernels import Operation
from subquad_plugins.agf.core import Given, core
from subquad_plugins.agf.filter import Steps, differentiated, evaluated
from subquad_plugins.agf.ortho import head_products
from subquad_plugins.numerics.tensors import MASKED_LOGIT

TILE = 1 << 18
"""Numbers of a tile: 1 MiB in fp32. Smaller ones cost more by their products than they save in
misses.
"""


class Projections(NamedTuple):
    """Weights (rows, D) and biases (rows,), as of `nn.Linear`, all float32 or all float64.

    Attributes:
        token: of u and sigma, one below the other, 2 D rows.
        right: of v.
        value: of the values.
        out: of the outputs.
    """

    token: Tensor
    token_bias: Tensor
    right: Tensor
    right_bias: Tensor
    value: Tensor
    value_bias: Tensor
    out: Tensor
    out_bias: Tensor


class Shape(NamedTuple):
    """What is no tensor with a gradient.

    Attributes:
        steps: see `filter.filtered_vectors`.
        keep: (B, L) bool, True = real token, or None.
        num_heads: H.
        grams: whether U^T U and V^T V are wanted.
    """

    steps: Steps | None
    keep: Tensor | None
    num_heads: int
    grams: bool


Layer = tuple[Tensor, Tensor | None, Tensor | None]


def layer(x: Tensor, projections: Projections, coefficients: Tensor, shape: Shape) -> Layer:
    """The layer, softmax as activation, from tokens to tokens.

    Args:
        x: (B, L, D), in the number format of the projections.
        projections: see there.
        coefficients: (K+1,), see `filter.filtered_vectors`.
        shape: see there.

    Returns:
        (B, L, D), and U^T U and V^T V, (B, H, E, E), or None where they are not wanted.
    """
    return _LAYER(x, projections, coefficients, shape)


def _composed(x: Tensor, p: Projections, coefficients: Tensor, shape: Shape) -> Layer:
    projected = F.linear(
        x,
        torch.cat([p.token, p.right, p.value]),
        torch.cat([p.token_bias, p.right_bias, p.value_bias]),
    )
    given = Given(projected, coefficients, shape.steps, shape.keep, shape.num_heads)
    mixed, *grams = core(given._replace(grams=shape.grams))
    return F.linear(mixed, p.out, p.out_bias), *grams  # pyright: ignore[reportReturnType]


_LAYER = Operation("agf.layer", reference=_composed)


# Costs are counted of the usual form: this one makes fewer products, and only from a length on.
@_LAYER.implementation("folded", by_values=True, covers=("agf.core", "agf.filter"))
def _folded(x: Tensor, projections: Projections, coefficients: Tensor, shape: Shape) -> Layer:
    out, *grams = _Folded.apply(shape, x, coefficients, *projections)
    return out, *(grams if shape.grams else (None, None))  # pyright: ignore[reportReturnType]


class _Folded(torch.autograd.Function):
    """See `layer`; products that are not wanted are empty."""

    @staticmethod
    def forward(
        ctx: Any, shape: Shape, x: Tensor, coefficients: Tensor, *projections: Tensor
    ) -> tuple[Tensor, ...]:
        p = Projections(*projections)
        x = x.contiguous()
        right, total = _right(x, p, shape.keep)
        averages = torch.bmm(right.transpose(1, 2), x).div_(total)
        state = _heads_of(averages, shape) @ _heads_of(p.value, shape).transpose(1, 2)
        state = state + p.value_bias.view(shape.num_heads, 1, -1)
        matrix = torch.einsum(
            "bhef,ohf->bheo", state, p.out.unflatten(1, (shape.num_heads, -1))
        ).reshape(averages.shape)
        left, y, out = (torch.empty_like(x) for _ in range(3))
        for b, x_tile, left_tile, y_tile, out_tile in _tiles(x, left, y, out):
            _left(x_tile, p, shape.num_heads, left_tile, y_tile)
            filtered = evaluated(y_tile, coefficients, shape.steps).mul_(left_tile)
            torch.baddbmm(p.out_bias, filtered, matrix[b], out=out_tile)
        grams = (x.new_empty(0), x.new_empty(0))
        if shape.grams:
            grams = (
                head_products(left, left, shape.num_heads),
                head_products(right, right, shape.num_heads),
            )
            _scale(grams[1], total)
        ctx.save_for_backward(
            x, coefficients, right, total, averages, state, matrix, left, y, grams[1], *projections
        )
        ctx.shape = shape
        return out, *grams

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, coefficients, right, total, averages, state, matrix, left, y, gram, *projections = (
            ctx.saved_tensors
        )
        p = Projections(*projections)
        shape = ctx.shape
        grad = grads[0].contiguous()
        to = Projections(*(torch.zeros_like(projection) for projection in projections))
        to_x = torch.empty_like(x)
        to_matrix = torch.zeros_like(matrix)
        to_coefficients = torch.zeros_like(coefficients)
        if shape.grams:
            pull = grads[1] + grads[1].transpose(2, 3)
        else:
            pull = None
        for b, *tiles in _tiles(x, grad, left, y, to_x):
            if pull is None:
                own = None
            else:
                own = pull[b]
            to_coefficients += _pull_left(
                p, to, coefficients, shape, matrix[b], to_matrix[b], own, *tiles
            )
        to_averages = _pull_matrices(p, to, shape, averages, state, to_matrix)
        inner = (averages * to_averages).sum(2, keepdim=True)
        pull = None
        if shape.grams:
            pull = grads[2] + grads[2].transpose(2, 3)
            inner += (gram * pull).sum(3).view_as(inner)
            _scale(pull, total)
        inner = inner.neg_().div_(total).transpose(1, 2)
        to_averages = to_averages.div_(total)
        for b, *tiles in _tiles(x, right, to_x):
            if pull is None:
                own = None
            else:
                own = pull[b]
            _pull_right(p, to, inner[b], to_averages[b], own, _some_real(shape.keep, b), *tiles)
        to.out_bias.copy_(grad.sum((0, 1)))
        return None, to_x, to_coefficients, *to


def _tiles(*tensors: Tensor) -> Iterator[tuple[Any, ...]]:
    """Which samples, and the tile of each tensor (B, L, D): tokens of one sample, or whole
    samples.
    """
    batch, length, dim = tensors[0].shape
    tokens = max(1, TILE // dim)
    samples = max(1, tokens // length)
    step = -(-length // -(-length // tokens))
    for first in range(0, batch, samples):
        b = slice(first, first + samples)
        columns = [tensor[b].split(step, 1) for tensor in tensors]
        for tiles in zip(*columns, strict=True):
            yield (b, *tiles)


def _right(x: Tensor, p: Projections, keep: Tensor | None) -> tuple[Tensor, Tensor]:
    """V up to its sums over the tokens, (B, L, D), and these, (B, D, 1)."""
    right = torch.addmm(p.right_bias, x.flatten(0, 1), p.right.t()).view_as(x)
    if keep is not None:
        right.masked_fill_(~keep[..., None], MASKED_LOGIT)
    right.sub_(right.amax(1, keepdim=True)).exp_()
    return right, right.sum(1)[..., None]


def _left(x: Tensor, p: Projections, num_heads: int, left: Tensor, y: Tensor) -> None:
    """U and 2 sigma - 1 of a tile, written to `left` and `y`."""
    u, s = (
        torch.addmm(p.token_bias, x.flatten(0, 1), p.token.t()).view(*x.shape[:2], -1).chunk(2, 2)
    )
    left.copy_(torch.softmax(u.unflatten(2, (num_heads, -1)), -1).flatten(2))
    torch.add(y.new_tensor(-1), torch.sigmoid(s), alpha=2, out=y)


def _pull_left(
    p: Projections, to: Projections, coefficients: Tensor, shape: Shape, matrix: Tensor,
    to_matrix: Tensor, pull: Tensor | None, x: Tensor, grad: Tensor, left: Tensor, y: Tensor,
    to_x: Tensor,
) -> Tensor:  # fmt: skip
    """Gradients through U and sigma of a tile: added to `to`, written to `to_x`; that of the
    coefficients.
    """
    through = torch.bmm(grad, matrix.transpose(1, 2))
    factor, slope, sums = differentiated(y, coefficients, shape.steps, through * left)
    to_logits = x.new_empty(*x.shape[:2], len(p.token))
    to_u, to_s = to_logits.chunk(2, 2)
    # dy/ds = 2 sigma (1 - sigma) = (1 - y^2) / 2
    rise = torch.addcmul(y.new_tensor(0.5), y, y, value=-0.5)
    torch.mul(slope.mul_(left).mul_(through), rise, out=to_s)
    through.mul_(factor)
    if pull is not None:
        _add_products(through, left, pull)
    by_head = (shape.num_heads, -1)
    softmax = (through.unflatten(2, by_head), left.unflatten(2, by_head), -1, left.dtype)
    to_u.copy_(torch.ops.aten._softmax_backward_data(*softmax).flatten(2))
    to_matrix.baddbmm_(factor.mul_(left).transpose(1, 2), grad)
    flat = to_logits.flatten(0, 1)
    torch.mm(flat, p.token, out=to_x.flatten(0, 1))
    to.token.addmm_(flat.t(), x.flatten(0, 1))
    to.token_bias.add_(flat.sum(0))
    return sums


def _pull_matrices(
    p: Projections,
    to: Projections,
    shape: Shape,
    averages: Tensor,
    state: Tensor,
    to_matrix: Tensor,
) -> Tensor:
    """Gradients of the matrices of a sample: those of projections added to `to`; of V^T x, (B,
    D, D).
    """
    to_matrix = _heads_of(to_matrix, shape)
    by_head = (shape.num_heads, -1)
    to.out.add_(torch.einsum("bhef,bheo->ohf", state, to_matrix).flatten(1))
    to_state = torch.einsum("bheo,ohf->bhef", to_matrix, p.out.unflatten(1, by_head))
    to.value.add_(
        torch.einsum("bhef,bhed->hfd", to_state, _heads_of(averages, shape)).flatten(0, 1)
    )
    to.value_bias.add_(to_state.sum((0, 2)).flatten())
    return torch.einsum("bhef,hfd->bhed", to_state, p.value.unflatten(0, by_head)).reshape(
        averages.shape
    )


def _pull_right(
    p: Projections, to: Projections, inner: Tensor, to_seen: Tensor, pull: Tensor | None,
    real: Tensor | None, x: Tensor, right: Tensor, to_x: Tensor,
) -> None:  # fmt: skip
    """Gradients through V of a tile: added to `to` and `to_x`."""
    to_v = torch.baddbmm(inner, x, to_seen.transpose(1, 2))
    if pull is not None:
        _add_products(to_v, right, pull)
    flat = to_v.mul_(right).flatten(0, 1)
    if real is not None:
        to_v *= real
    to_x.baddbmm_(right, to_seen).flatten(0, 1).addmm_(flat, p.right)
    to.right.addmm_(flat.t(), x.flatten(0, 1))
    to.right_bias.add_(flat.sum(0))


def _some_real(keep: Tensor | None, samples: slice) -> Tensor | None:
    """Which samples have a real token, (b, 1, 1), if not all: in others V does not depend on v,
    but is not 0.
    """
    if keep is None:
        real = None
    else:
        real = keep[samples].any(1)[:, None, None]
    return None if real is None or real.all() else real


def _heads_of(matrix: Tensor, shape: Shape) -> Tensor:
    """(.., D, D) to (.., H, E, D)."""
    return matrix.unflatten(-2, (shape.num_heads, -1))


def _scale(products: Tensor, total: Tensor) -> None:
    """Makes of V^T V, (B, H, E, E), or its gradient what belongs to the other scale of V."""
    by_head = total.view(*products.shape[:3], 1)
    products.div_(by_head).div_(by_head.transpose(2, 3))


def _add_products(target: Tensor, vectors: Tensor, matrices: Tensor) -> None:
    """target (b, l, D) += vectors (b, l, D) times matrices (b, H, E, E), head by head."""
    width = matrices.shape[-1]
    for part, own, matrix in zip(
        target.split(width, 2), vectors.split(width, 2), matrices.unbind(1), strict=True
    ):
        part.baddbmm_(own, matrix)
