"""AGF's core in Triton: softmaxes, Jacobi recurrence and both products with the E x E state,
without what lies between.

Loads and stores per call, with N = B L D numbers of s bytes. Forward reads u, s, v and the values
and writes the output, 5 N s; backward reads these four and the output's gradient and writes four
gradients, 9 N s. Beside them each tile of 16 tokens loads the E x E state in fp32, which the caches
may answer: forward E / 4 N bytes, backward E / 2 N. U^T U and V^T V, for the extra loss, take N s
more forward, as the first pass reads u too, and E / 2 N bytes backward. P partial sums of 4 B H E^2
bytes each, P at most `MOST_PARTS`, are written and added by torch: one set forward and one
backward, with the extra loss three forward. Counted in the interpreter,
tests/unit/plugins/interpreted/traffic.py. All sums are made in fp32.

Letters: B batch, L length, D width, H heads, E head width, K order, P parts.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from subquad_plugins.agf.programs import left_kernel, out_kernel, right_kernel, state_kernel
from subquad_plugins.numerics.jacobi import Step
from subquad_plugins.numerics.launching import launch

TOKENS = 16
"""Of a tile: few, as the state of a wide head fills the registers."""

MOST_PARTS = 32
"""Parts of a sequence that are summed side by side: enough programs where there are few samples
and heads.
"""


class Core(torch.autograd.Function):
    """(softmax(u) * F(sigmoid(s))) (softmax_tokens(v)^T value), head by head.

    Args:
        left: u, (B, L, D), float32, bfloat16 or float16.
        right: v, likewise.
        value: likewise.
        logits: s, likewise.
        coefficients: (K+1,) float32.
        steps: the recurrence in y = 2 sigmoid(s) - 1, or None for powers of y.
        keep: (B, L) bool, or None.
        num_heads: H.
        grams: whether to return U^T U and V^T V.

    Returns:
        (B, L, D), dtype of value; then both products, (B, H, E, E) float32, or zeros.
    """

    @staticmethod
    def forward(
        ctx: Any,
        left: Tensor,
        right: Tensor,
        value: Tensor,
        logits: Tensor,
        coefficients: Tensor,
        steps: tuple[Step, ...] | None,
        keep: Tensor | None,
        num_heads: int,
        grams: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        left, right, value, logits = (
            tensor.contiguous() for tensor in (left, right, value, logits)
        )
        keep = None if keep is None else keep.contiguous().view(torch.uint8)
        table = _table(steps, len(coefficients) - 1, left.device)
        ctx.num_heads = num_heads
        ctx.grams = grams
        state, top, total, *products = _state(left, right, value, keep, num_heads, grams)
        out = torch.empty_like(value)
        sizes = _sizes(left, num_heads)
        launch(
            out_kernel, (triton.cdiv(left.shape[1], TOKENS), len(left) * num_heads),
            left, logits, coefficients, table, state, out, *sizes, len(coefficients) - 1,
            **_tile(left, num_heads),
        )  # fmt: skip
        ctx.save_for_backward(
            left, right, value, logits, coefficients, table, keep, state, top, total, products[1]
        )
        return out, *products  # pyright: ignore[reportReturnType]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        left, right, value, logits, coefficients, table, keep, state, top, total, right_gram = (
            ctx.saved_tensors
        )
        grad = grads[0].contiguous()
        heads = ctx.num_heads
        # Where U^T U has the gradient G, U has U (G + G^T).
        left_sum, right_sum = ((gradient + gradient.mT).contiguous() for gradient in grads[1:])
        sizes = _sizes(left, heads)
        tile = _tile(left, heads)
        order = len(coefficients) - 1
        parts, tiles = _parts(left.shape[1])
        to_left, to_right, to_value, to_logits = (
            torch.empty_like(tensor) for tensor in (left, right, value, logits)
        )
        to_state = torch.empty(parts, *state.shape, device=state.device)
        everywhere = (len(left) * heads, triton.cdiv(left.shape[1], TOKENS))
        sums = torch.empty(*everywhere, order + 1, device=left.device)
        launch(
            left_kernel, (parts, len(left) * heads),
            left, logits, coefficients, table, state, grad, left_sum,
            to_left, to_logits, to_state, sums, *sizes, order, tiles, GRAMS=ctx.grams, **tile,
        )  # fmt: skip
        whole = to_state.sum(0)
        inner = (state * whole).sum(-1) + (right_gram * right_sum).sum(-1)
        launch(
            right_kernel, everywhere[::-1],
            right, value, value if keep is None else keep, whole, inner, top, total, right_sum,
            to_right, to_value, *sizes, MASKED=keep is not None, GRAMS=ctx.grams, **tile,
        )  # fmt: skip
        return to_left, to_right, to_value, to_logits, sums.sum((0, 1)), None, None, None, None


def _state(
    left: Tensor, right: Tensor, value: Tensor, keep: Tensor | None, num_heads: int, grams: bool
) -> tuple[Tensor, ...]:
    """V^T value, (B, H, E, E), the largest logits and the sums of V's softmax, (B, H, E); U^T U
    and V^T V, or zeros.
    """
    batch, length, dim = right.shape
    parts, tiles = _parts(length)
    shape = (parts, batch, num_heads, dim // num_heads)
    top, total = (torch.empty(shape, device=right.device) for _ in range(2))
    state = torch.empty(*shape, shape[-1], device=right.device)
    left_gram, right_gram = (torch.empty_like(state if grams else state[:0]) for _ in range(2))
    launch(
        state_kernel, (parts, batch * num_heads),
        left, right, value, value if keep is None else keep,
        state, left_gram, right_gram, top, total, *_sizes(right, num_heads), tiles,
        MASKED=keep is not None, GRAMS=grams, **_tile(right, num_heads),
    )  # fmt: skip
    highest = top.amax(0)
    share = torch.exp(top - highest)
    total = (total * share).sum(0)
    state = (state * share[..., None]).sum(0) / total[..., None]
    if not grams:
        return state, highest, total, *(state.new_zeros(1, 1) for _ in range(2))
    right_gram = (right_gram * share[..., None] * share[..., None, :]).sum(0) / (
        total[..., None] * total[..., None, :]
    )
    return state, highest, total, left_gram.sum(0), right_gram


def _sizes(x: Tensor, num_heads: int) -> tuple[int, int, int]:
    return x.shape[1], x.shape[2], num_heads


def _parts(length: int) -> tuple[int, int]:
    """How many parts have a token, and tiles in each of them."""
    tiles = triton.cdiv(length, TOKENS)
    tiles_of_part = triton.cdiv(tiles, MOST_PARTS)
    return triton.cdiv(tiles, tiles_of_part), tiles_of_part


def _tile(x: Tensor, num_heads: int) -> dict[str, Any]:
    """A head's width is filled up to a power of two; fp32 is multiplied in three parts unless
    torch may use one.
    """
    width = x.shape[2] // num_heads
    exact = x.dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest"
    filled = max(16, triton.next_power_of_2(width))
    return {
        "WIDTH": width,
        "FILLED": filled,
        "TOKENS": TOKENS,
        "PRECISION": "tf32x3" if exact else "tf32",
        "num_warps": 8 if filled >= 64 else 4,
    }


@cache
def _table(steps: tuple[Step, ...] | None, order: int, device: torch.device) -> Tensor:
    """(K, 3) float32: slope, shift and back of each step; those of powers are 1, 0 and 0."""
    rows = (
        [(1.0, 0.0, 0.0)] * order
        if steps is None
        else [(step.slope, step.shift, step.back) for step in steps]
    )
    return torch.tensor(rows, device=device)
