"""The Triton programs of AGF's core, which `kernel.py` starts: each computes one tile of tokens, or
one part of them, of one sample and head.

Letters: B batch, L length, D width, H heads, E head width, K order, P parts.
"""

# To pyright a reduction may return a constant, and a constant argument is no constant.
# pyright: reportArgumentType=false, reportCallIssue=false, reportPossiblyUnboundVariable=false

from __future__ import annotations

import triton
import triton.language as tl

MASKED_LOGIT = tl.constexpr(-1e9)


@triton.jit
def _places(token, length, dim, heads, WIDTH: tl.constexpr, FILLED: tl.constexpr):
    """Where the numbers of some tokens of this program's sample and head are, and which of them
    exist.
    """
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
def _product(left, right, PRECISION: tl.constexpr):
    """left^T right."""
    return tl.dot(tl.trans(left), right, input_precision=PRECISION)


@triton.jit
def _step(table, k):
    """Slope, shift and back of one step of the recurrence."""
    return tl.load(table + 3 * k), tl.load(table + 3 * k + 1), tl.load(table + 3 * k + 2)


@triton.jit
def _differentiated(y, coefficients, table, order, weight, sums):
    """F at y and its derivative; the sum of weight times each polynomial is written to `sums`."""
    older = tl.zeros_like(y)
    newer = tl.full(y.shape, 1.0, tl.float32)
    older_slope = tl.zeros_like(y)
    newer_slope = tl.zeros_like(y)
    value = newer * tl.load(coefficients)
    rise = newer_slope
    tl.store(sums, tl.sum(weight))
    for k in range(order):
        slope, shift, back = _step(table, k)
        line = slope * y + shift
        grown_slope = line * newer_slope + slope * newer - back * older_slope
        grown = line * newer - back * older
        older_slope = newer_slope
        newer_slope = grown_slope
        older = newer
        newer = grown
        value += tl.load(coefficients + k + 1) * newer
        rise += tl.load(coefficients + k + 1) * newer_slope
        tl.store(sums + k + 1, tl.sum(weight * newer))
    return value, rise


@triton.jit
def state_kernel(
    left, right, value, keep, state, left_gram, right_gram, top, total, length, dim, heads, tiles,
    MASKED: tl.constexpr, GRAMS: tl.constexpr, WIDTH: tl.constexpr, FILLED: tl.constexpr,
    TOKENS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """exp(v - top)^T value over one part of the tokens, with the largest logit so far taken off;
    U^T U, V^T V alike.
    """
    feature = tl.arange(0, FILLED)
    highest = tl.full((FILLED,), float("-inf"), tl.float32)
    sums = tl.zeros((FILLED,), tl.float32)
    summed = tl.zeros((FILLED, FILLED), tl.float32)
    if GRAMS:
        of_left = tl.zeros((FILLED, FILLED), tl.float32)
        of_right = tl.zeros((FILLED, FILLED), tl.float32)
    for tile in range(tl.program_id(0) * tiles, (tl.program_id(0) + 1) * tiles):
        token = tile * TOKENS + tl.arange(0, TOKENS)
        place, inside = _places(token, length, dim, heads, WIDTH, FILLED)
        v, _ = _right_logits(right, keep, token, place, inside, length, heads, MASKED)
        v = tl.where(token[:, None] < length, v, float("-inf"))
        new = tl.maximum(highest, tl.max(v, 0))
        weight = tl.exp(v - new[None, :])
        shrunk = tl.exp(highest - new)
        values = tl.load(value + place, mask=inside, other=0.0).to(tl.float32)
        summed = summed * shrunk[:, None] + _product(weight, values, PRECISION)
        if GRAMS:
            of_right *= shrunk[:, None] * shrunk[None, :]
            of_right += _product(weight, weight, PRECISION)
            vectors = tl.where(inside, _vectors(left, place, inside, WIDTH, FILLED), 0.0)
            of_left += _product(vectors, vectors, PRECISION)
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
    older = tl.zeros_like(y)
    newer = tl.full(y.shape, 1.0, tl.float32)
    value = newer * tl.load(coefficients)
    for k in range(order):
        slope, shift, back = _step(table, k)
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
    left, logits, coefficients, table, state, grad, to_gram,
    to_left, to_logits, to_state, to_coefficients, length, dim, heads, order, tiles,
    GRAMS: tl.constexpr, WIDTH: tl.constexpr, FILLED: tl.constexpr, TOKENS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients of u, s and the coefficients, and that of the state summed over one part of the
    tokens.
    """
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
        number = tl.program_id(1).to(tl.int64) * tl.cdiv(length, TOKENS) + tile
        sums = to_coefficients + number * (order + 1)
        value, rise = _differentiated(y, coefficients, table, order, weight, sums)
        # dy/ds = 2 sigma (1 - sigma) = (1 - y^2) / 2
        to_s = weight * rise * (1 - y * y) * 0.5
        tl.store(to_logits + place, to_s.to(to_logits.dtype.element_ty), mask=inside)
        through = weight * value
        if GRAMS:
            both = tl.load(to_gram + square, mask=exists, other=0.0)
            through += vectors * tl.dot(vectors, both, input_precision=PRECISION)
        to_u = through - vectors * tl.sum(through, 1)[:, None]
        tl.store(to_left + place, to_u.to(to_left.dtype.element_ty), mask=inside)
        summed += _product(vectors * value, gradient, PRECISION)
    first = tl.program_id(0).to(tl.int64) * tl.num_programs(1) * WIDTH * WIDTH
    tl.store(to_state + first + square, summed, mask=exists)


@triton.jit
def right_kernel(
    right, value, keep, to_state, inner, top, total, to_gram, to_right, to_value,
    length, dim, heads,
    MASKED: tl.constexpr, GRAMS: tl.constexpr, WIDTH: tl.constexpr, FILLED: tl.constexpr,
    TOKENS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients of v and the values, for one tile; `inner` (B, H, E) is that of V times V,
    summed over the tokens.
    """
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
