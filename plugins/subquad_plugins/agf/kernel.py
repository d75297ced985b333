"""AGF's core in Triton: softmaxes, Jacobi recurrence and both products with the E x E state, without what lies between.

Loads and stores per call, with N = B L D numbers of s bytes. Forward reads u, s, v and the values and writes the
output, 5 N s; backward reads these four and the output's gradient and writes four gradients, 9 N s. Beside them each
tile of 16 tokens loads the E x E state in fp32, which the caches may answer: forward E / 4 N bytes, backward E / 2 N.
U^T U and V^T V, for the extra loss, take N s more forward, as the first pass reads u too, and E / 2 N bytes backward.
P partial sums of 4 B H E^2 bytes each, P at most `MOST_PARTS`, are written and added by torch: one set forward and one
backward, with the extra loss three forward. Counted in the interpreter, tests/unit/plugins/interpreted/traffic.py. All
sums are made in fp32.

Letters: B batch, L length, D width, H heads, E head width, K order, P parts.
"""

# To pyright a reduction may return a constant, and a constant argument is no constant.
# pyright: reportArgumentType=false, reportCallIssue=false, reportPossiblyUnboundVariable=false

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from subquad_plugins.numerics.jacobi import Step
from subquad_plugins.numerics.kernels import launch

TOKENS = 16
"""Of a tile: few, as the state of a wide head fills the registers."""

MOST_PARTS = 32
"""Parts of a sequence that are summed side by side: enough programs where there are few samples and heads."""

MASKED_LOGIT = tl.constexpr(-1e9)


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
        left, right, value, logits = (one.contiguous() for one in (left, right, value, logits))
        keep = None if keep is None else keep.contiguous().view(torch.uint8)
        table = _table(steps, len(coefficients) - 1, left.device)
        ctx.num_heads, ctx.grams = num_heads, grams
        state, top, total, *products = _state(left, right, value, keep, num_heads, grams)
        out = torch.empty_like(value)
        sizes = _sizes(left, num_heads)
        launch(
            out_kernel, (triton.cdiv(left.shape[1], TOKENS), len(left) * num_heads),
            left, logits, coefficients, table, state, out, *sizes, len(coefficients) - 1, **_tile(left, num_heads),
        )  # fmt: skip
        ctx.save_for_backward(left, right, value, logits, coefficients, table, keep, state, top, total, products[1])
        return out, *products  # pyright: ignore[reportReturnType]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        left, right, value, logits, coefficients, table, keep, state, top, total, right_gram = ctx.saved_tensors
        grad, heads = grads[0].contiguous(), ctx.num_heads
        # Where U^T U has the gradient G, U has U (G + G^T).
        left_sum, right_sum = ((one + one.mT).contiguous() for one in grads[1:])
        sizes, tile, order = _sizes(left, heads), _tile(left, heads), len(coefficients) - 1
        parts, tiles = _parts(left.shape[1])
        to_left, to_right, to_value, to_logits = (torch.empty_like(one) for one in (left, right, value, logits))
        to_state = torch.empty(parts, *state.shape, device=state.device)
        everywhere = (len(left) * heads, triton.cdiv(left.shape[1], TOKENS))
        sums = torch.empty(*everywhere, order + 1, device=left.device)
        launch(
            left_kernel, (parts, len(left) * heads),
            left, logits, coefficients, table, state, grad, left_sum, to_left, to_logits, to_state, sums,
            *sizes, order, tiles, GRAMS=ctx.grams, **tile,
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
    """V^T value, (B, H, E, E), the largest logits and the sums of V's softmax, (B, H, E); U^T U and V^T V, or zeros."""
    batch, length, dim = right.shape
    parts, tiles = _parts(length)
    shape = (parts, batch, num_heads, dim // num_heads)
    top, total = (torch.empty(shape, device=right.device) for _ in range(2))
    state = torch.empty(*shape, shape[-1], device=right.device)
    left_gram, right_gram = (torch.empty_like(state if grams else state[:0]) for _ in range(2))
    launch(
        state_kernel, (parts, batch * num_heads),
        left, right, value, value if keep is None else keep, state, left_gram, right_gram, top, total,
        *_sizes(right, num_heads), tiles, MASKED=keep is not None, GRAMS=grams, **_tile(right, num_heads),
    )  # fmt: skip
    highest = top.amax(0)
    share = torch.exp(top - highest)
    total = (total * share).sum(0)
    state = (state * share[..., None]).sum(0) / total[..., None]
    if not grams:
        return state, highest, total, *(state.new_zeros(1, 1) for _ in range(2))
    right_gram = (right_gram * share[..., None] * share[..., None, :]).sum(0) / (total[..., None] * total[..., None, :])
    return state, highest, total, left_gram.sum(0), right_gram


def _sizes(x: Tensor, num_heads: int) -> tuple[int, int, int]:
    return x.shape[1], x.shape[2], num_heads


def _parts(length: int) -> tuple[int, int]:
    """How many parts have a token, and tiles in each of them."""
    tiles = triton.cdiv(length, TOKENS)
    each = triton.cdiv(tiles, MOST_PARTS)
    return triton.cdiv(tiles, each), each


def _tile(x: Tensor, num_heads: int) -> dict[str, Any]:
    """A head's width is filled up to a power of two; fp32 is multiplied in three parts unless torch may use one."""
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
    rows = [(1.0, 0.0, 0.0)] * order if steps is None else [(one.slope, one.shift, one.back) for one in steps]
    return torch.tensor(rows, device=device)


@triton.jit
def _places(token, length, dim, heads, WIDTH: tl.constexpr, FILLED: tl.constexpr):
    """Where the numbers of some tokens of this program's sample and head are, and which of them exist."""
    feature = tl.arange(0, FILLED)
    sample = (tl.program_id(1) // heads).to(tl.int64)
    start = (tl.program_id(1) % heads) * WIDTH
    place = (sample * length + token[:, None]) * dim + start + feature[None, :]
    return place, (token[:, None] < length) & (feature[None, :] < WIDTH)


@triton.jit
def _square(WIDTH: tl.constexpr, FILLED: tl.constexpr):
    """Places in an E x E matrix of this program's sample and head, and which of them exist."""
    feature = tl.arange(0, FILLED)
    place = (tl.program_id(1).to(tl.int64) * WIDTH + feature[:, None]) * WIDTH + feature[None, :]
    return place, (feature[:, None] < WIDTH) & (feature[None, :] < WIDTH)


@triton.jit
def _vectors(left, place, inside, WIDTH: tl.constexpr, FILLED: tl.constexpr):
    """U = softmax(u) along the features."""
    u = tl.load(left + place, mask=inside, other=0.0).to(tl.float32)
    u = tl.where(tl.arange(0, FILLED)[None, :] < WIDTH, u, float("-inf"))
    u = tl.exp(u - tl.max(u, 1)[:, None])
    return u / tl.sum(u, 1)[:, None]


@triton.jit
def _right_logits(right, keep, token, place, inside, length, heads, MASKED: tl.constexpr):
    """v, and which tokens are real."""
    v = tl.load(right + place, mask=inside, other=0.0).to(tl.float32)
    real = token < length
    if MASKED:
        sample = (tl.program_id(1) // heads).to(tl.int64)
        real = tl.load(keep + sample * length + token, mask=token < length, other=0) != 0
        v = tl.where(real[:, None], v, MASKED_LOGIT)
    return v, real


@triton.jit
def state_kernel(
    left, right, value, keep, state, left_gram, right_gram, top, total, length, dim, heads, tiles,
    MASKED: tl.constexpr, GRAMS: tl.constexpr, WIDTH: tl.constexpr, FILLED: tl.constexpr, TOKENS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """exp(v - top)^T value over one part of the tokens, with the largest logit so far taken off; U^T U, V^T V alike."""
    feature = tl.arange(0, FILLED)
    highest = tl.full((FILLED,), float("-inf"), tl.float32)
    sums = tl.zeros((FILLED,), tl.float32)
    summed = tl.zeros((FILLED, FILLED), tl.float32)
    if GRAMS:
        of_left, of_right = tl.zeros((FILLED, FILLED), tl.float32), tl.zeros((FILLED, FILLED), tl.float32)
    for tile in range(tl.program_id(0) * tiles, (tl.program_id(0) + 1) * tiles):
        token = tile * TOKENS + tl.arange(0, TOKENS)
        place, inside = _places(token, length, dim, heads, WIDTH, FILLED)
        v, _ = _right_logits(right, keep, token, place, inside, length, heads, MASKED)
        v = tl.where(token[:, None] < length, v, float("-inf"))
        new = tl.maximum(highest, tl.max(v, 0))
        weight, shrunk = tl.exp(v - new[None, :]), tl.exp(highest - new)
        values = tl.load(value + place, mask=inside, other=0.0).to(tl.float32)
        summed = summed * shrunk[:, None] + tl.dot(tl.trans(weight), values, input_precision=PRECISION)
        if GRAMS:
            of_right *= shrunk[:, None] * shrunk[None, :]
            of_right += tl.dot(tl.trans(weight), weight, input_precision=PRECISION)
            vectors = tl.where(inside, _vectors(left, place, inside, WIDTH, FILLED), 0.0)
            of_left += tl.dot(tl.trans(vectors), vectors, input_precision=PRECISION)
        sums = sums * shrunk + tl.sum(weight, 0)
        highest = new
    first = (tl.program_id(0).to(tl.int64) * tl.num_programs(1)) * WIDTH
    row = first + tl.program_id(1) * WIDTH + feature
    tl.store(top + row, highest, mask=feature < WIDTH)
    tl.store(total + row, sums, mask=feature < WIDTH)
    square, exists = _square(WIDTH, FILLED)
    tl.store(state + first * WIDTH + square, summed, mask=exists)
    if GRAMS:
        tl.store(left_gram + first * WIDTH + square, of_left, mask=exists)
        tl.store(right_gram + first * WIDTH + square, of_right, mask=exists)


@triton.jit
def out_kernel(
    left, logits, coefficients, table, state, out, length, dim, heads, order,
    WIDTH: tl.constexpr, FILLED: tl.constexpr, TOKENS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """(U * F) times the state, for one tile of tokens."""
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    place, inside = _places(token, length, dim, heads, WIDTH, FILLED)
    y = 2 * tl.sigmoid(tl.load(logits + place, mask=inside, other=0.0).to(tl.float32)) - 1
    older, newer = tl.zeros((TOKENS, FILLED), tl.float32), tl.full((TOKENS, FILLED), 1.0, tl.float32)
    value = newer * tl.load(coefficients)
    for k in range(order):
        slope, shift, back = tl.load(table + 3 * k), tl.load(table + 3 * k + 1), tl.load(table + 3 * k + 2)
        grown = (slope * y + shift) * newer - back * older
        older = newer
        newer = grown
        value += tl.load(coefficients + k + 1) * newer
    filtered = _vectors(left, place, inside, WIDTH, FILLED) * value
    square, exists = _square(WIDTH, FILLED)
    matrix = tl.load(state + square, mask=exists, other=0.0)
    result = tl.dot(filtered, matrix, input_precision=PRECISION)
    tl.store(out + place, result.to(out.dtype.element_ty), mask=inside)


@triton.jit
def left_kernel(
    left, logits, coefficients, table, state, grad, to_gram, to_left, to_logits, to_state, to_coefficients,
    length, dim, heads, order, tiles, GRAMS: tl.constexpr,
    WIDTH: tl.constexpr, FILLED: tl.constexpr, TOKENS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients of u, s and the coefficients, and that of the state summed over one part of the tokens."""
    square, exists = _square(WIDTH, FILLED)
    summed = tl.zeros((FILLED, FILLED), tl.float32)
    last = tl.minimum((tl.program_id(0) + 1) * tiles, tl.cdiv(length, TOKENS))
    for tile in range(tl.program_id(0) * tiles, last):
        token = tile * TOKENS + tl.arange(0, TOKENS)
        place, inside = _places(token, length, dim, heads, WIDTH, FILLED)
        gradient = tl.load(grad + place, mask=inside, other=0.0).to(tl.float32)
        matrix = tl.load(state + square, mask=exists, other=0.0)
        to_filtered = tl.dot(gradient, tl.trans(matrix), input_precision=PRECISION)
        vectors = _vectors(left, place, inside, WIDTH, FILLED)
        weight = to_filtered * vectors
        y = 2 * tl.sigmoid(tl.load(logits + place, mask=inside, other=0.0).to(tl.float32)) - 1
        older, newer = tl.zeros((TOKENS, FILLED), tl.float32), tl.full((TOKENS, FILLED), 1.0, tl.float32)
        older_slope, newer_slope = tl.zeros((TOKENS, FILLED), tl.float32), tl.zeros((TOKENS, FILLED), tl.float32)
        value, rise = newer * tl.load(coefficients), newer_slope
        sums = to_coefficients + (tl.program_id(1).to(tl.int64) * tl.cdiv(length, TOKENS) + tile) * (order + 1)
        tl.store(sums, tl.sum(weight))
        for k in range(order):
            slope, shift, back = tl.load(table + 3 * k), tl.load(table + 3 * k + 1), tl.load(table + 3 * k + 2)
            line = slope * y + shift
            grown_slope = line * newer_slope + slope * newer - back * older_slope
            grown = line * newer - back * older
            older_slope, newer_slope = newer_slope, grown_slope
            older, newer = newer, grown
            value += tl.load(coefficients + k + 1) * newer
            rise += tl.load(coefficients + k + 1) * newer_slope
            tl.store(sums + k + 1, tl.sum(weight * newer))
        # dy/ds = 2 sigma (1 - sigma) = (1 - y^2) / 2
        to_s = weight * rise * (1 - y * y) * 0.5
        tl.store(to_logits + place, to_s.to(to_logits.dtype.element_ty), mask=inside)
        through = weight * value
        if GRAMS:
            both = tl.load(to_gram + square, mask=exists, other=0.0)
            through += vectors * tl.dot(vectors, both, input_precision=PRECISION)
        to_u = through - vectors * tl.sum(through, 1)[:, None]
        tl.store(to_left + place, to_u.to(to_left.dtype.element_ty), mask=inside)
        summed += tl.dot(tl.trans(vectors * value), gradient, input_precision=PRECISION)
    first = tl.program_id(0).to(tl.int64) * tl.num_programs(1) * WIDTH * WIDTH
    tl.store(to_state + first + square, summed, mask=exists)


@triton.jit
def right_kernel(
    right, value, keep, to_state, inner, top, total, to_gram, to_right, to_value, length, dim, heads,
    MASKED: tl.constexpr, GRAMS: tl.constexpr, WIDTH: tl.constexpr, FILLED: tl.constexpr, TOKENS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients of v and the values, for one tile; `inner` (B, H, E) is that of V times V, summed over the tokens."""
    feature = tl.arange(0, FILLED)
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    place, inside = _places(token, length, dim, heads, WIDTH, FILLED)
    v, real = _right_logits(right, keep, token, place, inside, length, heads, MASKED)
    row = tl.program_id(1).to(tl.int64) * WIDTH + feature
    highest = tl.load(top + row, mask=feature < WIDTH, other=0.0)
    sums = tl.load(total + row, mask=feature < WIDTH, other=1.0)
    vectors = tl.where(inside, tl.exp(v - highest[None, :]) / sums[None, :], 0.0)
    square, exists = _square(WIDTH, FILLED)
    matrix = tl.load(to_state + square, mask=exists, other=0.0)
    values = tl.load(value + place, mask=inside, other=0.0).to(tl.float32)
    back = tl.dot(vectors, matrix, input_precision=PRECISION)
    tl.store(to_value + place, back.to(to_value.dtype.element_ty), mask=inside)
    to_vectors = tl.dot(values, tl.trans(matrix), input_precision=PRECISION)
    if GRAMS:
        both = tl.load(to_gram + square, mask=exists, other=0.0)
        to_vectors += tl.dot(vectors, both, input_precision=PRECISION)
    to_v = vectors * (to_vectors - tl.load(inner + row, mask=feature < WIDTH, other=0.0)[None, :])
    to_v = tl.where(real[:, None], to_v, 0.0)
    tl.store(to_right + place, to_v.to(to_right.dtype.element_ty), mask=inside)
