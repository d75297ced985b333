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

from subquad_plugins.numerics.tiles import (
    LOG2_E,
    read,
    read_line,
    seen,
    tokens_of,
    write,
    write_line,
    zeros,
)

MASKED_LOGIT = tl.constexpr(-1e9)
U, S, V, VALUE = (tl.constexpr(part) for part in range(4))
"""What lies side by side in a row of a token."""


@triton.jit
def _exp(x):
    """As exp2: one instruction, which takes small numbers as they come."""
    return tl.exp2(x * LOG2_E)


@triton.jit
def _vectors(projected, first, TOKENS: tl.constexpr):
    """U = softmax(u) along the features."""
    u = read(projected, U, first, TOKENS).to(tl.float32)
    if projected.FILLED != projected.WIDTH:
        u = tl.where(tl.arange(0, projected.FILLED)[None, :] < projected.WIDTH, u, float("-inf"))
    u = _exp(u - tl.max(u, 1)[:, None])
    return u * (1 / tl.sum(u, 1))[:, None]


@triton.jit
def _variable(projected, first, TOKENS: tl.constexpr):
    """y = 2 sigmoid(s) - 1."""
    return 2 / (1 + _exp(-read(projected, S, first, TOKENS).to(tl.float32))) - 1


@triton.jit
def _right_logits(projected, keep, first, TOKENS: tl.constexpr):
    """v, and which tokens are real."""
    v = read(projected, V, first, TOKENS).to(tl.float32)
    real = seen(keep, projected, first, TOKENS)
    if keep is not None:
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
    projected, keep, state, left_gram, right_gram, top, total, span,
    TOKENS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """V^T value of one part of the tokens, with V a softmax over these, its largest logits and
    its sums above them; U^T U, V^T V alike.
    """
    number: tl.constexpr = projected.x.dtype.element_ty
    WIDTH: tl.constexpr = projected.FILLED
    feature = tl.arange(0, WIDTH)
    highest = tl.full((WIDTH,), float("-inf"), tl.float32)
    sums = tl.zeros((WIDTH,), tl.float32)
    summed = zeros(state, WIDTH)
    if left_gram is not None:
        of_left = zeros(state, WIDTH)
        of_right = zeros(state, WIDTH)
    start, end = tokens_of(projected, span)
    for first in range(start, end, TOKENS):
        there = seen(None, projected, first, TOKENS)[:, None]
        v, _ = _right_logits(projected, keep, first, TOKENS)
        v = tl.where(there, v, float("-inf"))
        new = tl.maximum(highest, tl.max(v, 0))
        weight = _exp(v - new[None, :])
        shrunk = _exp(highest - new)
        sums = sums * shrunk + tl.sum(weight, 0)
        weight = weight.to(number)
        values = read(projected, VALUE, first, TOKENS)
        summed *= shrunk[None, :]
        summed = tl.dot(tl.trans(values), weight, summed, input_precision=PRECISION)
        if left_gram is not None:
            of_right *= shrunk[:, None] * shrunk[None, :]
            of_right = tl.dot(tl.trans(weight), weight, of_right, input_precision=PRECISION)
            vectors = _vectors(projected, first, TOKENS)
            vectors = tl.where(there, vectors, 0.0).to(number)
            of_left = tl.dot(tl.trans(vectors), vectors, of_left, input_precision=PRECISION)
        highest = new
    part = tl.program_id(1)
    write_line(top, part, state.length, feature, highest)
    write_line(total, part, state.length, feature, sums)
    share = (1 / sums)[:, None]
    write(state, part, 0, tl.trans(summed) * share)
    if left_gram is not None:
        write(left_gram, part, 0, of_left)
        write(right_gram, part, 0, of_right * (share * (1 / sums)[None, :]))


@triton.jit
def out_kernel(
    projected, coefficients, table, state, out, span,
    ORDER: tl.constexpr, TOKENS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """(U * F) times the state."""
    number: tl.constexpr = out.x.dtype.element_ty
    matrix = read(state, 0, 0, state.FILLED).to(number)
    start, end = tokens_of(projected, span)
    for first in range(start, end, TOKENS):
        y = _variable(projected, first, TOKENS)
        value, _ = _polynomial(y, coefficients, table, ORDER)
        filtered = _vectors(projected, first, TOKENS) * value
        write(out, 0, first, tl.dot(filtered.to(number), matrix, input_precision=PRECISION))


@triton.jit
def left_kernel(
    projected, coefficients, table, state, grad, to_gram, to_projected, to_state, to_coefficients,
    span, ORDER: tl.constexpr, DEGREES: tl.constexpr, TOKENS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients of u and s, and those of the coefficients and the state summed over one part of
    the tokens.
    """
    number: tl.constexpr = projected.x.dtype.element_ty
    WIDTH: tl.constexpr = projected.FILLED
    # Turned here: within the loop it would be written to shared memory for each tile.
    matrix = tl.trans(read(state, 0, 0, state.FILLED).to(number))
    if to_gram is not None:
        # Where U^T U has the gradient G, U has U (G + G^T).
        both = read(to_gram, 0, 0, to_gram.FILLED)
        both = (both + tl.trans(both)).to(number)
    summed = zeros(state, WIDTH)
    sums = tl.zeros((TOKENS, DEGREES), tl.float32)
    start, end = tokens_of(projected, span)
    for first in range(start, end, TOKENS):
        gradient = read(grad, 0, first, TOKENS)
        y = _variable(projected, first, TOKENS)
        vectors = _vectors(projected, first, TOKENS)
        to_filtered = tl.dot(gradient, matrix, input_precision=PRECISION)
        # Without this Triton lays U and y out twice, as loaded and as products come.
        vectors += 0 * to_filtered
        weight = vectors * to_filtered
        _, rise = _polynomial(y, coefficients, table, ORDER)
        # dy/ds = 2 sigma (1 - sigma) = (1 - y^2) / 2
        write(to_projected, S, first, weight * rise * (0.5 - 0.5 * y * y))
        value, _ = _polynomial(y, coefficients, table, ORDER)
        filtered = (vectors * value).to(number)
        summed = tl.dot(tl.trans(gradient), filtered, summed, input_precision=PRECISION)
        through = weight * value
        sums = _added_sums(sums, weight, y, table, ORDER)
        if to_gram is not None:
            through += vectors * tl.dot(vectors.to(number), both, input_precision=PRECISION)
        write(to_projected, U, first, through - vectors * tl.sum(through, 1)[:, None])
    part = tl.program_id(1)
    write(to_state, part, 0, tl.trans(summed))
    degree = tl.arange(0, DEGREES)
    write_line(to_coefficients, part, ORDER + 1, degree, tl.sum(sums, 0))


@triton.jit
def right_kernel(
    projected, keep, state, to_state, right_gram, to_gram, top, total, to_projected, span,
    TOKENS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients of v and the values.

    V is kept as exp(v - top), as half precision could not hold it over its sums; what these
    divide are the matrices that it is multiplied with.
    """
    number: tl.constexpr = projected.x.dtype.element_ty
    feature = tl.arange(0, projected.FILLED)
    highest = read_line(top, 0, state.length, feature, 0.0)
    share = 1 / read_line(total, 0, state.length, feature, 1.0)
    matrix = (read(to_state, 0, 0, to_state.FILLED) * share[:, None]).to(number)
    turned = tl.trans(matrix)
    # The gradient of V times V, summed over the tokens.
    inner = tl.sum(read(state, 0, 0, state.FILLED) * matrix.to(tl.float32), 1)
    if to_gram is not None:
        both = read(to_gram, 0, 0, to_gram.FILLED)
        both += tl.trans(both)
        inner += tl.sum(read(right_gram, 0, 0, right_gram.FILLED) * both, 1) * share
        both = (both * share[:, None]).to(number)
    start, end = tokens_of(projected, span)
    for first in range(start, end, TOKENS):
        v, real = _right_logits(projected, keep, first, TOKENS)
        weight = _exp(v - highest[None, :])
        operand = weight.to(number)
        values = read(projected, VALUE, first, TOKENS)
        write(to_projected, VALUE, first, tl.dot(operand, matrix, input_precision=PRECISION))
        to_v = tl.dot(values, turned, input_precision=PRECISION) - inner[None, :]
        if to_gram is not None:
            to_v += tl.dot(operand, both, input_precision=PRECISION) * share[None, :]
        write(to_projected, V, first, tl.where(real[:, None], to_v * weight, 0.0))
