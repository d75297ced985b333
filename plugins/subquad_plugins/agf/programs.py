"""The Triton programs of AGF's core, which `kernel.py` starts: each computes some tiles of tokens
of one sample and head, program (head of the batch, part of the tokens).

What lies in the operands' format is multiplied in it; sums, exponents and states are fp32.

Letters: B batch, L length, D width, H heads, E head width, K order, P parts.
"""

# To pyright a reduction may return a constant, a constant argument is no constant, and a range of
# constants never ends.
# pyright: reportArgumentType=false, reportCallIssue=false, reportPossiblyUnboundVariable=false
# pyright: reportOperatorIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import triton
import triton.language as tl

MASKED_LOGIT = tl.constexpr(-1e9)
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _start(first, length, row, HEADS: tl.constexpr, WIDTH: tl.constexpr):
    """Where the tile of tokens from `first` on begins, in rows of so many numbers."""
    head = tl.program_id(0)
    return ((head // HEADS).to(tl.int64) * length + first) * row + (head % HEADS) * WIDTH


@triton.jit
def _offsets(row: tl.constexpr, FILLED: tl.constexpr, TOKENS: tl.constexpr):
    """Where a tile's numbers are from there on."""
    return tl.arange(0, TOKENS)[:, None] * row + tl.arange(0, FILLED)[None, :]


@triton.jit
def _inside(first, length, WIDTH: tl.constexpr, FILLED: tl.constexpr, TOKENS: tl.constexpr):
    """Which of them exist."""
    inside = (first + tl.arange(0, TOKENS) < length)[:, None]
    if FILLED != WIDTH:
        inside &= tl.arange(0, FILLED)[None, :] < WIDTH
    return inside


@triton.jit
def _exp(x):
    """As exp2: one instruction, which takes small numbers as they come."""
    return tl.exp2(x * LOG2_E)


@triton.jit
def _square(WIDTH: tl.constexpr, FILLED: tl.constexpr):
    """Places in an E x E matrix of this program's sample and head, and which of them exist."""
    feature = tl.arange(0, FILLED)
    place = (tl.program_id(0).to(tl.int64) * WIDTH + feature[:, None]) * WIDTH + feature[None, :]
    return place, (feature[:, None] < WIDTH) & (feature[None, :] < WIDTH)


@triton.jit
def _vectors(places, inside, WIDTH: tl.constexpr, FILLED: tl.constexpr):
    """U = softmax(u) along the features."""
    u = tl.load(places, mask=inside, other=0.0).to(tl.float32)
    if FILLED != WIDTH:
        u = tl.where(tl.arange(0, FILLED)[None, :] < WIDTH, u, float("-inf"))
    u = _exp(u - tl.max(u, 1)[:, None])
    return u * (1 / tl.sum(u, 1))[:, None]


@triton.jit
def _variable(places, inside):
    """y = 2 sigmoid(s) - 1."""
    return 2 / (1 + _exp(-tl.load(places, mask=inside, other=0.0).to(tl.float32))) - 1


@triton.jit
def _right_logits(places, inside, keep, token, length, HEADS: tl.constexpr):
    """v, and which tokens are real."""
    v = tl.load(places, mask=inside, other=0.0).to(tl.float32)
    real = token < length
    if keep is not None:
        sample = (tl.program_id(0) // HEADS).to(tl.int64)
        real = tl.load(keep + sample * length + token, mask=real, other=0) != 0
        v = tl.where(real[:, None], v, MASKED_LOGIT)
    return v, real


@triton.jit
def _polynomial(y, coefficients, table, ORDER: tl.constexpr):
    """F(y) and F'(y), from the highest degree down: Clenshaw's scheme; of powers, Horner's, each
    by itself, as only one of them may be wanted.
    """
    highest = tl.load(coefficients + ORDER)
    value = tl.zeros_like(y) + highest
    rise = tl.zeros_like(y)
    older = tl.zeros_like(y)
    older_rise = tl.zeros_like(y)
    for k in tl.static_range(ORDER - 1, -1, -1):
        coefficient = tl.load(coefficients + k)
        if table is not None:
            slope = tl.load(table + 3 * k)
            line = slope * y + tl.load(table + 3 * k + 1)
            back = tl.load(table + 3 * k + 5)
            grown_rise = line * rise + slope * value - back * older_rise
            grown = line * value + coefficient - back * older
            older_rise = rise
            older = value
            rise = grown_rise
            value = grown
        else:
            rise = rise * y + (k + 1) * highest
            value = value * y + coefficient
            highest = coefficient
    return value, rise


@triton.jit
def _added_sums(sums, weight, y, table, ORDER: tl.constexpr):
    """`sums` (tokens, degrees) plus those over the features of weight times each polynomial."""
    degree = tl.arange(0, sums.shape[1])[None, :]
    older = tl.zeros_like(y)
    for k in tl.static_range(ORDER + 1):
        sums += tl.where(degree == k, tl.sum(weight, 1)[:, None], 0.0)
        if k < ORDER:
            grown = weight * y
            if table is not None:
                grown = tl.load(table + 3 * k) * grown + tl.load(table + 3 * k + 1) * weight
                grown -= tl.load(table + 3 * k + 2) * older
                older = weight
            weight = grown
    return sums


@triton.jit
def state_kernel(
    projected, keep, state, left_gram, right_gram, top, total, length, span,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, FILLED: tl.constexpr,
    TOKENS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """V^T value of one part of the tokens, with V a softmax over these, its largest logits and
    its sums above them; U^T U, V^T V alike.
    """
    dim: tl.constexpr = HEADS * WIDTH
    number: tl.constexpr = projected.dtype.element_ty
    feature = tl.arange(0, FILLED)
    highest = tl.full((FILLED,), float("-inf"), tl.float32)
    sums = tl.zeros((FILLED,), tl.float32)
    summed = tl.zeros((FILLED, FILLED), tl.float32)
    if left_gram is not None:
        of_left = tl.zeros((FILLED, FILLED), tl.float32)
        of_right = tl.zeros((FILLED, FILLED), tl.float32)
    offsets = _offsets(4 * dim, FILLED, TOKENS)
    part = tl.program_id(1)
    for first in range(part * span, tl.minimum((part + 1) * span, length), TOKENS):
        tile = projected + _start(first, length, 4 * dim, HEADS, WIDTH)
        inside = _inside(first, length, WIDTH, FILLED, TOKENS)
        token = first + tl.arange(0, TOKENS)
        v, _ = _right_logits(tile + 2 * dim + offsets, inside, keep, token, length, HEADS)
        v = tl.where(token[:, None] < length, v, float("-inf"))
        new = tl.maximum(highest, tl.max(v, 0))
        weight = _exp(v - new[None, :])
        shrunk = _exp(highest - new)
        sums = sums * shrunk + tl.sum(weight, 0)
        weight = weight.to(number)
        values = tl.load(tile + 3 * dim + offsets, mask=inside, other=0.0)
        summed *= shrunk[None, :]
        summed = tl.dot(tl.trans(values), weight, summed, input_precision=PRECISION)
        if left_gram is not None:
            of_right *= shrunk[:, None] * shrunk[None, :]
            of_right = tl.dot(tl.trans(weight), weight, of_right, input_precision=PRECISION)
            vectors = _vectors(tile + offsets, inside, WIDTH, FILLED)
            vectors = tl.where(inside, vectors, 0.0).to(number)
            of_left = tl.dot(tl.trans(vectors), vectors, of_left, input_precision=PRECISION)
        highest = new
    begin = part.to(tl.int64) * tl.num_programs(0) * WIDTH
    row = begin + tl.program_id(0).to(tl.int64) * WIDTH + feature
    tl.store(top + row, highest, mask=feature < WIDTH)
    tl.store(total + row, sums, mask=feature < WIDTH)
    square, exists = _square(WIDTH, FILLED)
    share = (1 / sums)[:, None]
    tl.store(state + begin * WIDTH + square, tl.trans(summed) * share, mask=exists)
    if left_gram is not None:
        tl.store(left_gram + begin * WIDTH + square, of_left, mask=exists)
        of_right *= share * (1 / sums)[None, :]
        tl.store(right_gram + begin * WIDTH + square, of_right, mask=exists)


@triton.jit
def out_kernel(
    projected, coefficients, table, state, out, length, span,
    ORDER: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, FILLED: tl.constexpr,
    TOKENS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """(U * F) times the state."""
    dim: tl.constexpr = HEADS * WIDTH
    number: tl.constexpr = out.dtype.element_ty
    square, exists = _square(WIDTH, FILLED)
    matrix = tl.load(state + square, mask=exists, other=0.0).to(number)
    offsets = _offsets(4 * dim, FILLED, TOKENS)
    out_offsets = _offsets(dim, FILLED, TOKENS)
    part = tl.program_id(1)
    for first in range(part * span, tl.minimum((part + 1) * span, length), TOKENS):
        tile = projected + _start(first, length, 4 * dim, HEADS, WIDTH)
        inside = _inside(first, length, WIDTH, FILLED, TOKENS)
        y = _variable(tile + dim + offsets, inside)
        value, _ = _polynomial(y, coefficients, table, ORDER)
        filtered = _vectors(tile + offsets, inside, WIDTH, FILLED) * value
        result = tl.dot(filtered.to(number), matrix, input_precision=PRECISION)
        tile = out + _start(first, length, dim, HEADS, WIDTH)
        tl.store(tile + out_offsets, result.to(number), mask=inside)


@triton.jit
def left_kernel(
    projected, coefficients, table, state, grad, to_gram, to_projected, to_state, to_coefficients,
    length, span,
    ORDER: tl.constexpr, DEGREES: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr,
    FILLED: tl.constexpr, TOKENS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients of u and s, and those of the coefficients and the state summed over one part of
    the tokens.
    """
    dim: tl.constexpr = HEADS * WIDTH
    number: tl.constexpr = projected.dtype.element_ty
    square, exists = _square(WIDTH, FILLED)
    # Turned here: within the loop it would be written to shared memory for each tile.
    matrix = tl.trans(tl.load(state + square, mask=exists, other=0.0).to(number))
    if to_gram is not None:
        # Where U^T U has the gradient G, U has U (G + G^T).
        both = tl.load(to_gram + square, mask=exists, other=0.0)
        both = (both + tl.trans(both)).to(number)
    summed = tl.zeros((FILLED, FILLED), tl.float32)
    sums = tl.zeros((TOKENS, DEGREES), tl.float32)
    offsets = _offsets(4 * dim, FILLED, TOKENS)
    grad_offsets = _offsets(dim, FILLED, TOKENS)
    part = tl.program_id(1)
    for first in range(part * span, tl.minimum((part + 1) * span, length), TOKENS):
        inside = _inside(first, length, WIDTH, FILLED, TOKENS)
        tile = grad + _start(first, length, dim, HEADS, WIDTH)
        gradient = tl.load(tile + grad_offsets, mask=inside, other=0.0)
        start = _start(first, length, 4 * dim, HEADS, WIDTH)
        tile = projected + start
        y = _variable(tile + dim + offsets, inside)
        vectors = _vectors(tile + offsets, inside, WIDTH, FILLED)
        to_filtered = tl.dot(gradient, matrix, input_precision=PRECISION)
        # Without this Triton lays U and y out twice, as loaded and as products come.
        vectors += 0 * to_filtered
        weight = vectors * to_filtered
        _, rise = _polynomial(y, coefficients, table, ORDER)
        # dy/ds = 2 sigma (1 - sigma) = (1 - y^2) / 2
        to_s = weight * rise * (0.5 - 0.5 * y * y)
        tl.store(to_projected + start + dim + offsets, to_s.to(number), mask=inside)
        value, _ = _polynomial(y, coefficients, table, ORDER)
        filtered = (vectors * value).to(number)
        summed = tl.dot(tl.trans(gradient), filtered, summed, input_precision=PRECISION)
        through = weight * value
        sums = _added_sums(sums, weight, y, table, ORDER)
        if to_gram is not None:
            through += vectors * tl.dot(vectors.to(number), both, input_precision=PRECISION)
        to_u = through - vectors * tl.sum(through, 1)[:, None]
        tl.store(to_projected + start + offsets, to_u.to(number), mask=inside)
    begin = part.to(tl.int64) * tl.num_programs(0)
    tl.store(to_state + begin * WIDTH * WIDTH + square, tl.trans(summed), mask=exists)
    degree = tl.arange(0, DEGREES)
    row = (begin + tl.program_id(0)) * (ORDER + 1) + degree
    tl.store(to_coefficients + row, tl.sum(sums, 0), mask=degree <= ORDER)


@triton.jit
def right_kernel(
    projected, keep, state, to_state, right_gram, to_gram, top, total, to_projected,
    length, span,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, FILLED: tl.constexpr,
    TOKENS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients of v and the values.

    V is kept as exp(v - top), as half precision could not hold it over its sums; what these
    divide are the matrices that it is multiplied with.
    """
    dim: tl.constexpr = HEADS * WIDTH
    number: tl.constexpr = projected.dtype.element_ty
    feature = tl.arange(0, FILLED)
    row = tl.program_id(0).to(tl.int64) * WIDTH + feature
    highest = tl.load(top + row, mask=feature < WIDTH, other=0.0)
    share = 1 / tl.load(total + row, mask=feature < WIDTH, other=1.0)
    square, exists = _square(WIDTH, FILLED)
    matrix = tl.load(to_state + square, mask=exists, other=0.0) * share[:, None]
    matrix = matrix.to(number)
    turned = tl.trans(matrix)
    # The gradient of V times V, summed over the tokens.
    inner = tl.sum(tl.load(state + square, mask=exists, other=0.0) * matrix.to(tl.float32), 1)
    if to_gram is not None:
        both = tl.load(to_gram + square, mask=exists, other=0.0)
        both += tl.trans(both)
        gram = tl.load(right_gram + square, mask=exists, other=0.0)
        inner += tl.sum(gram * both, 1) * share
        both = (both * share[:, None]).to(number)
    offsets = _offsets(4 * dim, FILLED, TOKENS)
    part = tl.program_id(1)
    for first in range(part * span, tl.minimum((part + 1) * span, length), TOKENS):
        start = _start(first, length, 4 * dim, HEADS, WIDTH)
        tile = projected + start
        inside = _inside(first, length, WIDTH, FILLED, TOKENS)
        token = first + tl.arange(0, TOKENS)
        v, real = _right_logits(tile + 2 * dim + offsets, inside, keep, token, length, HEADS)
        weight = _exp(v - highest[None, :])
        operand = weight.to(number)
        values = tl.load(tile + 3 * dim + offsets, mask=inside, other=0.0)
        to_value = tl.dot(operand, matrix, input_precision=PRECISION)
        tl.store(to_projected + start + 3 * dim + offsets, to_value.to(number), mask=inside)
        to_v = tl.dot(values, turned, input_precision=PRECISION) - inner[None, :]
        if to_gram is not None:
            to_v += tl.dot(operand, both, input_precision=PRECISION) * share[None, :]
        to_v = tl.where(real[:, None], to_v * weight, 0.0)
        tl.store(to_projected + start + 2 * dim + offsets, to_v.to(number), mask=inside)
