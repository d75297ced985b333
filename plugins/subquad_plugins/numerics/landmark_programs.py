"""Programs of Flash-CUR for Triton, which `landmark_kernel` starts: one for each head, and those
that meet tokens for each part of them, too.

A matrix of size m x m lies in memory as two or three bf16 ones whose sum it is, (M, M) with zeros
behind the landmarks: registers hold no more than one tile of a product and parts of its operands.
Products are rows of a table, so that one piece of code serves them all.
"""

# To pyright a reduction may return a constant, a constant argument is no constant, and has no
# names, and a range of Triton is none.
# pyright: reportArgumentType=false, reportCallIssue=false, reportPossiblyUnboundVariable=false
# pyright: reportGeneralTypeIssues=false, reportAssignmentType=false
# pyright: reportAttributeAccessIssue=false, reportOperatorIssue=false

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from subquad_plugins.numerics.tiles import (
    LOG2_E,
    Rows,
    pick,
    put,
    read,
    read_line,
    seen,
    tokens_of,
    write,
    write_line,
    zeros,
)


class Few(NamedTuple):
    """Landmarks of each head.

    Attributes:
        rows: where they lie.
        chosen: which rows they are, (B, H, size); None where they have a tensor of their own.
        keep: which count, (B, H, size), or None.
        size: how many there are.
    """

    rows: Rows
    chosen: Tensor | None
    keep: Tensor | None
    size: int


class Sizes(NamedTuple):
    """Powers of two that hold the landmarks of Q and of K, and how numbers are multiplied.

    Attributes:
        P: of Q.
        R: of K.
        M: the larger one of P and R.
        ROWS: of an M x M matrix, as many as registers hold beside others.
        TILE: rows and columns of a product of such matrices at once.
        SPLITS: bf16 numbers for one of an M x M matrix.
        PRECISION: of products with tokens in float32.
    """

    P: int
    R: int
    M: int
    ROWS: int
    TILE: int
    SPLITS: int
    PRECISION: str


class Inverse(NamedTuple):
    """How U is inverted; see `pinv.pseudo_inverse`.

    Attributes:
        iterations: steps.
        by_rows: whether the start is divided by the largest row sum, too.
        through_start: whether gradients pass through the start's scale.
    """

    iterations: int
    by_rows: bool
    through_start: bool


class Product(NamedTuple):
    """target = factor (x y + weight plus + share more), of matrices by name; x and y may be turned:
    "A'" is the transpose of "A". A target is neither x nor y: it is written tile by tile.
    """

    target: str
    x: str
    y: str
    factor: float = 1.0
    plus: str = ""
    weight: float = 0.0
    more: str = ""
    share: float = 0.0


FORWARD = (
    Product("A", "U", "Z"),
    Product("B", "A", "A", 1, "A", -7),
    Product("C", "A", "B", -1 / 4, "A", 15),
    Product("next Z", "Z", "C", 1, "Z", 13 / 4),
)
"""A step of the inverse: no identity is added, so that zeros stay."""

BACK = (
    *FORWARD[:3],
    Product("to C", "Z'", "to Z", -1 / 4),
    Product("through C", "to Z", "C'", 1, "to Z", 13 / 4),
    Product("to B", "A'", "to C"),
    Product("to A", "to C", "B'", 1, "to C", 15, "to B", -7),
    Product("to A", "A'", "to B", 1, "to A", 1),
    Product("to A", "to B", "A'", 1, "to A", 1),
    Product("to turned U", "Z", "to A'", 1, "to turned U", 1),
    Product("to Z", "U'", "to A", 1, "through C", 1),
)
"""Back through a step. "to C" is the gradient of A B + 15 A."""

PASSING = "A", "B", "C", "to Z", "to turned U", "through C", "to C", "to B", "to A"
"""Matrices that are not kept, in the order of memory; forward has those before "to Z"."""

TO_Z = tl.constexpr(PASSING.index("to Z"))
TO_U = tl.constexpr(PASSING.index("to turned U"))


@triton.jit
def _summed(rows, parts, COUNT: tl.constexpr):
    """Rows of this program's head, summed over all parts."""
    total = read(rows, 0, 0, COUNT)
    for part in range(1, parts):
        total += read(rows, part, 0, COUNT)
    return total


@triton.jit
def _chosen(few, number):
    """The rows that landmarks of this program's head are, one that is not there behind the last."""
    if few.chosen is not None:
        number = read_line(few.chosen, 0, few.size, number, few.rows.length)
    return number


@triton.jit
def _landmarks(few, number):
    """Landmarks of this program's head, zeros behind the last one."""
    return pick(few.rows, _chosen(few, number))


@triton.jit
def _counted(few, number):
    """Which landmarks of this program's head count."""
    there = number < few.size
    if few.keep is not None:
        there = there & (read_line(few.keep, 0, few.size, number, 0) != 0)
    return there


@triton.jit
def _weights(queries, keys, counts, scale, SIZES: tl.constexpr):
    """exp2 of the scores but for the largest of each row, and its sum; zeros where none counts."""
    scores = tl.dot(queries, tl.trans(keys), input_precision=SIZES.PRECISION)
    scores = tl.where(counts[None, :], scores * (scale * LOG2_E), float("-inf"))
    top = tl.max(scores, 1)
    top = tl.where(top == float("-inf"), 0.0, top)
    weights = tl.exp2(scores - top[:, None])
    return weights, tl.sum(weights, 1)


@triton.jit
def _square(row, column, TURNED: tl.constexpr, M: tl.constexpr):
    """Places in an (M, M) matrix, or in its transpose."""
    if TURNED:
        return column[None, :] * M + row[:, None]
    else:
        return row[:, None] * M + column[None, :]


@triton.jit
def _split(x, SPLITS: tl.constexpr):
    """The bf16 parts of an fp32 matrix, the largest first."""
    high = x.to(tl.bfloat16)
    x -= high.to(tl.float32)
    low = x.to(tl.bfloat16)
    if SPLITS == 2:
        return high, low
    else:
        return high, low, (x - low.to(tl.float32)).to(tl.bfloat16)


@triton.jit
def _parts(x, place, M: tl.constexpr, SPLITS: tl.constexpr):
    """The bf16 parts of a matrix in memory, the largest first."""
    high = tl.load(x + place)
    low = tl.load(x + place + M * M)
    if SPLITS == 2:
        return high, low
    else:
        return high, low, tl.load(x + place + 2 * M * M)


@triton.jit
def _whole(x, place, M: tl.constexpr, SPLITS: tl.constexpr):
    """A part of a matrix in memory, in fp32."""
    parts = _parts(x, place, M, SPLITS)
    total = parts[0].to(tl.float32) + parts[1].to(tl.float32)
    if SPLITS == 3:
        total += parts[2].to(tl.float32)
    return total


@triton.jit
def _keep(x, place, matrix, M: tl.constexpr, SPLITS: tl.constexpr):
    """Write a part of an fp32 matrix, which all threads may read then."""
    parts = _split(matrix, SPLITS)
    tl.debug_barrier()
    for split in tl.static_range(SPLITS):
        tl.store(x + place + split * M * M, parts[split])
    tl.debug_barrier()


@triton.jit
def _product(x, y, total, SPLITS: tl.constexpr):
    """total + x y of matrices in parts, without the smallest products."""
    total = tl.dot(x[0], y[1], total)
    total = tl.dot(x[1], y[0], total)
    if SPLITS == 3:
        total = tl.dot(x[1], y[1], total)
        total = tl.dot(x[2], y[0], total)
        total = tl.dot(x[0], y[2], total)
    return tl.dot(x[0], y[0], total)


@triton.jit
def _times(x, row, TURNED: tl.constexpr, y, M: tl.constexpr, SPLITS: tl.constexpr):
    """Rows of x y, of a matrix in memory and an fp32 one."""
    left = _parts(x, _square(row, tl.arange(0, M), TURNED, M), M, SPLITS)
    total = tl.zeros((row.shape[0], y.shape[1]), tl.float32)
    return _product(left, _split(y, SPLITS), total, SPLITS)


@triton.jit
def _operand(x, row, column, turned, M: tl.constexpr, SPLITS: tl.constexpr):
    """The parts of some rows and columns of a matrix in memory, or of its transpose."""
    if turned != 0:
        parts = _parts(x, _square(row, column, True, M), M, SPLITS)
    else:
        parts = _parts(x, _square(row, column, False, M), M, SPLITS)
    return parts


@triton.jit
def _matrix(number, steps, work, kept, size):
    """Where a matrix lies: one that is kept, or one behind them, which is not."""
    place = tl.cast(number, tl.int64)
    if place < kept:
        start = steps + place * size
    else:
        start = work + (place - kept) * size
    return start


@triton.jit
def _run(table, ops, steps, work, kept, size, SIZES: tl.constexpr):
    """Products of this program's matrices, one for each row of `Product`s in the table.

    One loop for all of them: so the chip needs few registers for where operands lie.
    """
    M: tl.constexpr = SIZES.M
    SPLITS: tl.constexpr = SIZES.SPLITS
    TILE: tl.constexpr = SIZES.TILE
    BLOCK: tl.constexpr = min(M, 32)
    for op in range(ops):
        row = table + op * 10
        x = _matrix(tl.load(row + 1), steps, work, kept, size)
        y = _matrix(tl.load(row + 3), steps, work, kept, size)
        x_turned = tl.load(row + 2)
        y_turned = tl.load(row + 4)
        target = _matrix(tl.load(row), steps, work, kept, size)
        for tile in range((M // TILE) * (M // TILE)):
            down = tile // (M // TILE) * TILE + tl.arange(0, TILE)
            right = tile % (M // TILE) * TILE + tl.arange(0, TILE)
            place = _square(down, right, False, M)
            total = tl.zeros((TILE, TILE), tl.float32)
            for term in range(6, 10, 2):
                weight = tl.load(row + term + 1)
                if weight != 0:
                    more = _matrix(tl.load(row + term), steps, work, kept, size)
                    total += weight * _whole(more, place, M, SPLITS)
            for start in tl.range(0, M, BLOCK, num_stages=1):
                inner = start + tl.arange(0, BLOCK)
                first = _operand(x, down, inner, x_turned, M, SPLITS)
                second = _operand(y, inner, right, y_turned, M, SPLITS)
                total = _product(first, second, total, SPLITS)
            _keep(target, place, tl.load(row + 5) * total, M, SPLITS)


@triton.jit
def _middle(few_q, few_k, row, scale, SIZES: tl.constexpr):
    """Rows of U, zeros in rows and columns of landmarks that are not there."""
    number = tl.arange(0, SIZES.M)
    queries = _landmarks(few_q, row)
    keys = _landmarks(few_k, number)
    weights, total = _weights(queries, keys, _counted(few_k, number), scale, SIZES)
    return tl.where(_counted(few_q, row)[:, None], weights / total[:, None], 0.0)


@triton.jit
def _norms(columns, row, BY_ROWS: tl.constexpr):
    """The largest one of the columns' sums, and that of a row; 1 of a matrix of zeros."""
    top = tl.max(columns, 0)
    top = tl.where(top == 0, 1.0, top)
    if BY_ROWS:
        row = tl.where(row == 0, 1.0, row)
    else:
        row = 1.0
    return top, row


@triton.jit
def rows_kernel(
    sums, few_q, k, v, keep, logs, span, scale, SIZES: tl.constexpr, TOKENS: tl.constexpr
):
    """R V of one part of the keys, and the logs of the weights' sums, to base 2."""
    P: tl.constexpr = SIZES.P
    number = tl.arange(0, P)
    queries = _landmarks(few_q, number)
    top = tl.full((P,), float("-inf"), tl.float32)
    total = tl.zeros((P,), tl.float32)
    mixed = zeros(v, P)
    first, end = tokens_of(k, span)
    for start in range(first, end, TOKENS):
        keys = read(k, 0, start, TOKENS)
        values = read(v, 0, start, TOKENS)
        counts = seen(keep, k, start, TOKENS)
        scores = tl.dot(queries, tl.trans(keys), input_precision=SIZES.PRECISION)
        scores = tl.where(counts[None, :], scores * (scale * LOG2_E), float("-inf"))
        new = tl.maximum(top, tl.max(scores, 1))
        # as long as no key counts, -inf must not be subtracted from -inf
        base = tl.where(new == float("-inf"), 0.0, new) if keep is not None else new
        weights = tl.exp2(scores - base[:, None])
        shrunk = tl.exp2(top - base)
        total = total * shrunk + tl.sum(weights, 1)
        mixed = mixed * shrunk[:, None]
        mixed = tl.dot(weights.to(values.dtype), values, mixed, input_precision=SIZES.PRECISION)
        top = new
    some = total > 0
    total = tl.where(some, total, 1.0)
    part = tl.program_id(1)
    write(sums, part, 0, mixed / total[:, None])
    log = tl.where(some, top + tl.log2(total), float("-inf"))
    write_line(logs, part, few_q.size, number, log)


@triton.jit
def middle_kernel(
    sums, logs, few_q, few_k, mixed, total, rows, steps, work, w, table, parts, ops, kept, scale,
    INVERSE: tl.constexpr, SIZES: tl.constexpr,
):  # fmt: skip
    """R V of all parts, U, its inverse and W of one head; Z behind each step is kept."""
    M: tl.constexpr = SIZES.M
    SPLITS: tl.constexpr = SIZES.SPLITS
    ROWS: tl.constexpr = SIZES.ROWS
    number = tl.arange(0, M)
    steps += tl.program_id(0).to(tl.int64) * (SPLITS * M * M)
    work += tl.program_id(0).to(tl.int64) * (SPLITS * M * M)
    size = tl.num_programs(0).to(tl.int64) * (SPLITS * M * M)
    columns = tl.zeros((M,), tl.float32)
    highest = 0.0
    u = tl.zeros((ROWS, M), tl.float32)
    for first in range(0, M, ROWS):
        some = first + tl.arange(0, ROWS)
        summed = zeros(mixed, ROWS)
        top = tl.full((ROWS,), float("-inf"), tl.float32)
        weight = tl.zeros((ROWS,), tl.float32)
        for part in range(parts):
            log = read_line(logs, part, few_q.size, some, float("-inf"))
            new = tl.maximum(top, log)
            base = tl.where(new == float("-inf"), 0.0, new)
            shrunk = tl.exp2(top - base)
            share = tl.exp2(log - base)
            found = read(sums, part, first, ROWS)
            summed = summed * shrunk[:, None] + found * share[:, None]
            weight = weight * shrunk + share
            top = new
        visible = weight > 0
        weight = tl.where(visible, weight, 1.0)
        summed = summed / weight[:, None]
        write(mixed, 0, first, summed)
        write(rows, 0, first, summed)
        # a query that sees no key at all has weights exp2(-inf - inf) = 0
        log = tl.where(visible, top + tl.log2(weight), float("inf"))
        write_line(total, 0, few_q.size, some, log)
        u = _middle(few_q, few_k, some, scale, SIZES)
        _keep(steps, _square(some, number, False, M), u, M, SPLITS)
        columns += tl.sum(u, 0)
        highest = tl.maximum(highest, tl.max(tl.sum(u, 1), 0))
    column, row = _norms(columns, highest, INVERSE.by_rows)
    for first in range(0, M, ROWS):
        some = first + tl.arange(0, ROWS)
        if ROWS < M:
            u = _middle(few_q, few_k, some, scale, SIZES)
        _keep(steps + size, _square(some, number, True, M), u / column / row, M, SPLITS)
    _run(table, ops, steps, work, kept, size, SIZES)
    summed = read(mixed, 0, 0, M)
    for first in range(0, M, ROWS):
        some = first + tl.arange(0, ROWS)
        write(w, 0, first, _times(steps + (kept - 1) * size, some, False, summed, M, SPLITS))


@triton.jit
def columns_kernel(q, few_k, w, out, span, scale, SIZES: tl.constexpr, TOKENS: tl.constexpr):
    """C W of one part of the queries."""
    number = tl.arange(0, SIZES.R)
    keys = _landmarks(few_k, number)
    counts = _counted(few_k, number)
    values = read(w, 0, 0, SIZES.R)
    first, end = tokens_of(q, span)
    for start in range(first, end, TOKENS):
        queries = read(q, 0, start, TOKENS)
        weights, total = _weights(queries, keys, counts, scale, SIZES)
        mixed = tl.dot(weights.to(values.dtype), values, input_precision=SIZES.PRECISION)
        write(out, 0, start, mixed / total[:, None])


@triton.jit
def columns_back_kernel(
    q, few_k, w, grad, to_q, to_k, to_w, span, scale, SIZES: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """Gradients of one part of the queries, and those of the landmarks of K and of W by it."""
    R: tl.constexpr = SIZES.R
    number = tl.arange(0, R)
    keys = _landmarks(few_k, number)
    counts = _counted(few_k, number)
    values = read(w, 0, 0, SIZES.R)
    by_keys = zeros(q, R)
    by_values = zeros(w, R)
    first, end = tokens_of(q, span)
    for start in range(first, end, TOKENS):
        queries = read(q, 0, start, TOKENS)
        gradient = read(grad, 0, start, TOKENS)
        weights, total = _weights(queries, keys, counts, scale, SIZES)
        weights = weights / total[:, None]
        through = tl.dot(gradient, tl.trans(values), input_precision=SIZES.PRECISION)
        slopes = weights * (through - tl.sum(weights * through, 1)[:, None])
        slopes = (slopes * scale).to(queries.dtype)
        turned = tl.trans(weights.to(gradient.dtype))
        by_values = tl.dot(turned, gradient, by_values, input_precision=SIZES.PRECISION)
        by_keys = tl.dot(tl.trans(slopes), queries, by_keys, input_precision=SIZES.PRECISION)
        back = tl.dot(slopes, keys, input_precision=SIZES.PRECISION)
        write(to_q, 0, start, back)
    part = tl.program_id(1)
    write(to_k, part, 0, by_keys)
    write(to_w, part, 0, by_values)


@triton.jit
def middle_back_kernel(
    to_w, few_q, few_k, mixed, rows, steps, work, to_mixed, inner, to_q, to_k, table, parts, ops,
    kept, scale, INVERSE: tl.constexpr, SIZES: tl.constexpr,
):  # fmt: skip
    """From the gradient of W to those of R V and, through the inverse and U, of the landmarks."""
    M: tl.constexpr = SIZES.M
    SPLITS: tl.constexpr = SIZES.SPLITS
    ROWS: tl.constexpr = SIZES.ROWS
    number = tl.arange(0, M)
    steps += tl.program_id(0).to(tl.int64) * (SPLITS * M * M)
    work += tl.program_id(0).to(tl.int64) * (SPLITS * M * M)
    size = tl.num_programs(0).to(tl.int64) * (SPLITS * M * M)
    to_z = work + TO_Z * size
    to_u = work + TO_U * size
    gradient = _summed(to_w, parts, M)
    for first in range(0, M, ROWS):
        some = first + tl.arange(0, ROWS)
        summed = read(mixed, 0, first, ROWS)
        through = _times(steps + (kept - 1) * size, some, True, gradient, M, SPLITS)
        if rows is not None:
            through += read(rows, 0, first, ROWS).to(tl.float32)
        write(to_mixed, 0, first, through)
        write_line(inner, 0, few_q.size, some, tl.sum(through * summed, 1))
        none = tl.zeros((M, ROWS), tl.float32)
        by_z = _product(_split(gradient, SPLITS), _split(tl.trans(summed), SPLITS), none, SPLITS)
        _keep(to_z, _square(number, some, False, M), by_z, M, SPLITS)
        _keep(to_u, _square(number, some, False, M), none, M, SPLITS)
    _run(table, ops, steps, work, kept, size, SIZES)
    sums = tl.zeros((M,), tl.float32)
    highest = 0.0
    share = 0.0
    for first in range(0, M, ROWS):
        some = first + tl.arange(0, ROWS)
        u = _whole(steps, _square(some, number, False, M), M, SPLITS)
        sums += tl.sum(u, 0)
        highest = tl.maximum(highest, tl.max(tl.sum(u, 1), 0))
        by_z = _whole(to_z, _square(some, number, True, M), M, SPLITS)
        share += tl.sum(tl.sum(by_z * u, 1), 0)
    column, row = _norms(sums, highest, INVERSE.by_rows)
    share = share / column / row / column
    # rows of a softmax have one sum, so that only the largest column's has a gradient
    largest = (sums == column).to(tl.float32)
    by_column = share * largest / tl.maximum(tl.sum(largest, 0), 1.0)
    keys = _landmarks(few_k, number).to(tl.float32)
    by_keys = zeros(to_k, M)
    FEW: tl.constexpr = min(ROWS, 64)
    for first in range(0, M, FEW):
        some = first + tl.arange(0, FEW)
        across = _square(some, number, True, M)
        weights = _whole(steps, _square(some, number, False, M), M, SPLITS)
        by_u = _whole(to_z, across, M, SPLITS) / column / row
        by_u += _whole(to_u, across, M, SPLITS)
        if INVERSE.through_start:
            by_u -= by_column[None, :]
        slopes = weights * (by_u - tl.sum(weights * by_u, 1)[:, None]) * scale
        back = zeros(to_q, FEW)
        back = _product(_split(slopes, SPLITS), _split(keys, SPLITS), back, SPLITS)
        write(to_q, 0, first, back)
        queries = _landmarks(few_q, some).to(tl.float32)
        turned = _split(tl.trans(slopes), SPLITS)
        by_keys = _product(turned, _split(queries, SPLITS), by_keys, SPLITS)
    write(to_k, 0, 0, by_keys)


@triton.jit
def rows_back_kernel(
    k, v, keep, few_q, grad, total, inner, to_q, to_k, to_v, span, scale,
    SIZES: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """Gradients of one part of the keys and values, and that of the landmarks of Q by it."""
    P: tl.constexpr = SIZES.P
    number = tl.arange(0, P)
    queries = _landmarks(few_q, number)
    gradient = read(grad, 0, 0, P)
    log = read_line(total, 0, few_q.size, number, float("inf"))
    through_sum = read_line(inner, 0, few_q.size, number, 0.0)
    by_queries = zeros(k, P)
    first, end = tokens_of(k, span)
    for start in range(first, end, TOKENS):
        keys = read(k, 0, start, TOKENS)
        values = read(v, 0, start, TOKENS)
        counts = seen(keep, k, start, TOKENS)
        scores = tl.dot(keys, tl.trans(queries), input_precision=SIZES.PRECISION)
        scores = tl.where(counts[:, None], scores * (scale * LOG2_E), float("-inf"))
        weights = tl.exp2(scores - log[None, :])
        through = tl.dot(values, tl.trans(gradient), input_precision=SIZES.PRECISION)
        slopes = (weights * (through - through_sum[None, :]) * scale).to(queries.dtype)
        back = tl.dot(weights.to(gradient.dtype), gradient, input_precision=SIZES.PRECISION)
        write(to_v, 0, start, back)
        back = tl.dot(slopes, queries, input_precision=SIZES.PRECISION)
        write(to_k, 0, start, back)
        by_queries = tl.dot(tl.trans(slopes), keys, by_queries, input_precision=SIZES.PRECISION)
    write(to_q, tl.program_id(1), 0, by_queries)


@triton.jit
def picked_kernel(target, few, sums, by_u, parts, COUNT: tl.constexpr, ROWS: tl.constexpr):
    """The gradient of one head's landmarks, added to the rows they were picked from."""
    total = _summed(sums, parts, COUNT) + read(by_u, 0, 0, COUNT)
    if few.chosen is None:
        write(target, 0, 0, total)
    else:
        number = tl.arange(0, COUNT)
        for first in range(0, COUNT, ROWS):
            some = first + tl.arange(0, ROWS)
            row = _chosen(few, some)
            # the first one of a row's picks writes the sum of all
            same = row[:, None] == _chosen(few, number)[None, :]
            again = tl.max((same & (number[None, :] < some[:, None])).to(tl.int32), 1)
            row = tl.where(again == 0, row, few.rows.length)
            found = tl.dot(same.to(tl.float32), total, input_precision="tf32x3")
            put(target, row, found + pick(target, row).to(tl.float32))
