"""AGF's core in Triton: softmaxes, polynomial and both products with the E x E state, without what
lies between.

Loads and stores per call, with N = B L D numbers: forward reads u, s, v and the values and writes
the output, 5 N; backward reads these four and the output's gradient and writes four gradients, 9 N.
U^T U and V^T V, for the extra loss, take N more forward, as the first pass reads u too. Each
program loads the E x E matrices that it needs once, in fp32: 1 forward and 3 backward, with the
extra loss 6. Where the heads of a batch do not fill the chip, the tokens are cut into parts, a
program for each, whose E x E sums torch adds. Counted in the interpreter,
tests/unit/plugins/interpreted/traffic.py.

F is computed by Horner's scheme on powers of y = 2 sigmoid(s) - 1 or by the recurrence, as
`numerics.jacobi.powers_of_y` says. Measured in fp32, errors of powers and of the recurrence, in
roundings of the largest value: 2 to 17 and 2 to 26 up to K = 10, 48 and 32 at K = 12 (a = b = 0),
51 and 33 at K = 16 (a = 1.5, b = 1), 1,460 and 59 at K = 24, 40,771 and 91 at K = 32. So powers
lose from K = 12 on. The recurrence takes 2.5 times the arithmetic.

Letters: B batch, L length, D width, H heads, E head width, K order, P parts.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from subquad_plugins.agf.programs import left_kernel, out_kernel, right_kernel, state_kernel
from subquad_plugins.numerics.jacobi import Step
from subquad_plugins.numerics.launching import launch
from subquad_plugins.numerics.tiles import Rows, as_rows, flags, precision

PROGRAMS = 528
"""That the tokens are cut for, at most: four for each of the 132 multiprocessors of an H200."""

LONGEST = 128
"""Tokens of the longest tile."""

TILES = {
    "state_kernel": ((128, 4), (64, 4)),
    "out_kernel": ((64, 4), (64, 4)),
    "left_kernel": ((64, 4), (128, 8)),
    "right_kernel": ((64, 4), (64, 4)),
}
"""Tokens of a tile and warps of a program, without and with U^T U and V^T V: the largest whose
registers an H200 holds. For half precision and heads up to 64 wide.
"""

OTHER_TILES = ((32, 8), (16, 8))


class Core(torch.autograd.Function):
    """(softmax(u) * F(sigmoid(s))) (softmax_tokens(v)^T value), head by head.

    Args:
        projected: u, s, v and the values side by side, (B, L, 4 D), float32, bfloat16 or float16.
        coefficients: (K+1,) float32.
        steps: the recurrence in y = 2 sigmoid(s) - 1, or None for powers of y.
        keep: (B, L) bool, or None.
        num_heads: H.
        grams: whether to return U^T U and V^T V.

    Returns:
        (B, L, D), dtype of projected; then both products, (B, H, E, E) float32, or None.
    """

    @staticmethod
    def forward(
        ctx: Any,
        projected: Tensor,
        coefficients: Tensor,
        steps: tuple[Step, ...] | None,
        keep: Tensor | None,
        num_heads: int,
        grams: bool,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        projected = projected.contiguous()
        keep = flags(keep)
        table = None if steps is None else _table(steps, projected.device)
        batch, length, dim = *projected.shape[:2], projected.shape[2] // 4
        heads = (batch, num_heads, dim // num_heads)
        parts, ctx.span = _parts(length, batch * num_heads)
        ctx.grams = grams
        ctx.grid = (batch * num_heads, parts)
        given = _heads(projected, 4, num_heads)
        top, total = (_empty(projected, parts, *heads) for _ in range(2))
        state, left_gram, right_gram = (
            _empty(projected, parts, *heads, heads[-1]) if wanted else None
            for wanted in (True, grams, grams)
        )
        found = (state, left_gram, right_gram, top, total)
        launch(
            state_kernel, ctx.grid, given, keep, *map(as_rows, found[:3]), top, total, ctx.span,
            **_constants(state_kernel, given, grams),
        )  # fmt: skip
        state, left_gram, right_gram, top, total = (
            _merged(*found) if parts > 1 else (part if part is None else part[0] for part in found)
        )
        out = projected.new_empty(batch, length, dim)
        launch(
            out_kernel, ctx.grid, given, coefficients, table, as_rows(state),
            _heads(out, 1, num_heads), ctx.span,
            ORDER=len(coefficients) - 1, **_constants(out_kernel, given, grams),
        )  # fmt: skip
        ctx.save_for_backward(projected, coefficients, table, keep, state, right_gram, top, total)
        return out, left_gram, right_gram

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        projected, coefficients, table, keep, state, right_gram, top, total = ctx.saved_tensors
        to_left_gram, to_right_gram = (
            None if grad is None else as_rows(grad.contiguous()) for grad in grads[1:]
        )
        num_heads = state.shape[1]
        terms = len(coefficients)
        to_projected = torch.empty_like(projected)
        to_state = _empty(projected, ctx.grid[1], *state.shape)
        sums = _empty(projected, *ctx.grid, terms)
        given, to_given = (_heads(x, 4, num_heads) for x in (projected, to_projected))
        launch(
            left_kernel, ctx.grid, given, coefficients, table, as_rows(state),
            _heads(grads[0].contiguous(), 1, num_heads), to_left_gram, to_given,
            as_rows(to_state), sums, ctx.span, ORDER=terms - 1,
            DEGREES=triton.next_power_of_2(terms), **_constants(left_kernel, given, ctx.grams),
        )  # fmt: skip
        to_state = to_state[0] if len(to_state) == 1 else to_state.sum(0)
        launch(
            right_kernel, ctx.grid, given, keep, as_rows(state), as_rows(to_state),
            as_rows(right_gram), to_right_gram, top, total, to_given, ctx.span,
            **_constants(right_kernel, given, ctx.grams),
        )  # fmt: skip
        return to_projected, sums.sum((0, 1)), None, None, None, None


def _heads(x: Tensor, parts: int, num_heads: int) -> Rows:
    """Parts side by side, (B, L, parts D), head by head."""
    rows = as_rows(x.unflatten(2, (parts, num_heads, -1)).permute(2, 0, 3, 1, 4))
    fixed = ("heads", "part", "head")  # of a model
    return rows._replace(**{name: tl.constexpr(getattr(rows, name)) for name in fixed})


def _empty(like: Tensor, *shape: int) -> Tensor:
    return like.new_empty(shape, dtype=torch.float32)


def _merged(
    state: Any, left_gram: Any, right_gram: Any, top: Tensor, total: Tensor
) -> tuple[Any, ...]:
    """What `state_kernel` found of each part, (P, ...), of all tokens."""
    highest = top.amax(0)
    share = torch.exp(top - highest) * total
    total = share.sum(0)
    share = share / total
    state = (state * share[..., None]).sum(0)
    if left_gram is not None:
        left_gram = left_gram.sum(0)
        right_gram = (right_gram * share[..., None] * share[..., None, :]).sum(0)
    return state, left_gram, right_gram, highest, total


def _parts(length: int, heads: int) -> tuple[int, int]:
    """How many parts have a token, and the tokens of each, whole tiles of any kernel."""
    tiles = triton.cdiv(length, LONGEST)
    span = triton.cdiv(tiles, max(1, PROGRAMS // heads)) * LONGEST
    return triton.cdiv(length, span), span


def _constants(kernel: Any, given: Rows, grams: bool) -> dict[str, Any]:
    """Of a kernel, for heads of that width."""
    dtype = given.x.dtype
    small = dtype != torch.float32 and given.FILLED.value <= 64
    tokens, warps = (TILES[kernel.__name__] if small else OTHER_TILES)[grams]
    return {
        "TOKENS": tokens,
        "PRECISION": precision(dtype),
        "num_warps": warps,
        "num_stages": 3 if small else 2,
    }


@cache
def _table(steps: tuple[Step, ...], device: torch.device) -> Tensor:
    """(K+1, 3) float32: slope, shift and back of each step, and zeros."""
    rows = [(step.slope, step.shift, step.back) for step in steps]
    return torch.tensor([*rows, (0.0, 0.0, 0.0)], dtype=torch.float32, device=device)
