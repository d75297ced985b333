"""Flash-CUR: attention through landmarks, C U+ (R V), in one autograd function of Triton kernels.

    R = softmax(s Qh K^T)      U = softmax(s Qh Kh^T)      C = softmax(s Q Kh^T)
    W = U+ (R V)               out = C W

`rows_kernel` reads K and V once and makes R V; `middle_kernel` makes U, its start, all steps of its
inverse and W of one head; `columns_kernel` reads Q once and writes the output. Backward,
`columns_back_kernel` reads Q and the output's gradient and writes that of Q, `middle_back_kernel`
goes back through the inverse, `rows_back_kernel` reads K and V and writes their gradients, and
`picked_kernel` adds the gradients of picked rows where these stand. Nothing of size L x m is kept.

Loads and stores, in N = B H L E numbers of the long side: forward 3 N and N, backward 4 N and 3 N,
each number once a pass. Beside them what is of size m: the landmarks, R V and W, U and Z of each
step, 4 bytes a number. Counted in the interpreter, tests/unit/plugins/interpreted/traffic.py.

Operands of products with tokens keep their format; sums, exponents and what is of size m x m are
fp32. A product of two m x m matrices takes each as a sum of bf16 numbers: two of them (3 products)
for tokens in half precision, three (6 products) for float32. Measured for m = 32, 64, 128, logits
of deviation 1 to 10, 6 steps, bf16 tokens, against float64: Z is off by 1e-5 with two, 6e-7 with
three, 6e-7 in fp32, 8e-4 in one TF32 product and 7e-3 in one bf16 product. With two, output and
gradients are off by as much as with fp32 throughout: that much comes from rounding W to bf16.

Letters: B batch, H heads, Lq and Lk query and key length, E head width, Ev value width, p and r
landmarks of Q and K, P parts.
Reference: CUR attention, Algorithm 2 (Flash-CUR), which gives no backward pass: this one computes
weights again from the logs of their sums. The inverse: Xiong et al. 2021, Nystromformer, Eq. 11.
Departures: the long side is cut into parts where heads do not fill the chip.
"""

# To pyright a reduction may return a constant, and a constant argument is no constant.
# pyright: reportArgumentType=false, reportCallIssue=false, reportPossiblyUnboundVariable=false

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from subquad_plugins.numerics.launching import launch

PROGRAMS = 528
"""That fill a GPU: four for each of the 132 processors of an H100 or H200."""

LOG2E = tl.constexpr(1.4426950408889634)


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


class Landmarks(torch.autograd.Function):
    """softmax(s Q Kh^T) U+ softmax(s Qh K^T) V.

    Args:
        q: (B, H, Lq, E), float32, bfloat16 or float16.
        k: (B, H, Lk, E), likewise.
        v: (B, H, Lk, Ev), likewise.
        q_hat: (B, H, p, E), likewise, or (B, H, p) whole numbers: rows of q.
        k_hat: (B, H, r, E) or (B, H, r), likewise.
        keep: which keys count, (B, Lk) bool, or None; each sample has one at least.
        q_keep: which of q_hat count, (B, H, p) bool, or None.
        k_keep: which of k_hat count, (B, H, r) bool, or None; each head has one at least.
        inverse: how U is inverted.
        scale: s.

    Returns:
        (B, H, Lq, Ev) and R V, (B, H, p, Ev), dtype of v.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        q_hat: Tensor,
        k_hat: Tensor,
        keep: Tensor | None,
        q_keep: Tensor | None,
        k_keep: Tensor | None,
        inverse: Inverse,
        scale: float,
    ) -> tuple[Tensor, Tensor]:
        q, k, v = (
            tensor if tensor.stride(-1) == 1 else tensor.contiguous() for tensor in (q, k, v)
        )
        q_hat, k_hat = q_hat.contiguous(), k_hat.contiguous()
        sides = _sides(q, k, v, q_hat, k_hat, keep, q_keep, k_keep)
        batch, heads, length, _ = q.shape
        p, r, width = q_hat.shape[2], k_hat.shape[2], v.shape[3]
        tile = _tile("rows", sides)
        parts, tiles = _parts(sides, k.shape[2], tile)
        sums = torch.empty(parts, batch, heads, p, width, device=q.device)
        logs = torch.empty(parts, batch, heads, p, device=q.device)
        launch(
            rows_kernel, (batch * heads, parts),
            *sides.queries, k, v, sides.keep, sums, logs, heads, p, k.shape[2], tiles,
            *_strides(k, v), scale, **sides.constants, **tile,
        )  # fmt: skip
        splits = _splits(sides)
        kept = (splits, inverse.iterations + 2, batch, heads, r, p)
        steps = torch.empty(kept, dtype=torch.bfloat16, device=q.device)
        mixed = torch.empty(batch, heads, p, width, device=q.device)
        total = torch.empty(batch, heads, p, device=q.device)
        rows = v.new_empty(mixed.shape)
        w = v.new_empty(batch, heads, r, width)
        launch(
            middle_kernel, (batch * heads,),
            *sides.queries, *sides.keys, *sides.kept, sums, logs, mixed, total, rows, steps, w,
            heads, parts, p, r, scale, **_inverted(sides, inverse),
        )  # fmt: skip
        out = q.new_empty(batch, length, heads, width).transpose(1, 2)
        tile = _tile("columns", sides)
        parts, tiles = _parts(sides, length, tile)
        launch(
            columns_kernel, (batch * heads, parts),
            q, *sides.keys, sides.kept[1], w, out, heads, r, length, tiles,
            *_strides(q, out), scale, **sides.constants, **tile,
        )  # fmt: skip
        ctx.save_for_backward(q, k, v, q_hat, k_hat, keep, q_keep, k_keep, mixed, total, steps, w)
        ctx.inverse = inverse
        ctx.scale = scale
        ctx.set_materialize_grads(False)
        return out, rows

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        q, k, v, q_hat, k_hat, keep, q_keep, k_keep, mixed, total, steps, w = ctx.saved_tensors
        sides = _sides(q, k, v, q_hat, k_hat, keep, q_keep, k_keep)
        batch, heads, length, _ = q.shape
        p, r = q_hat.shape[2], k_hat.shape[2]
        grad, of_rows = grads
        if grad is None:
            grad = v.new_zeros(()).expand(batch, heads, length, v.shape[3])
        if grad.stride(-1) != 1:
            grad = grad.contiguous()
        to_q, to_k, to_v = (torch.empty_like(tensor) for tensor in (q, k, v))
        tile = _tile("columns_back", sides)
        parts, tiles = _parts(sides, length, tile)
        to_k_hat = torch.empty(parts, batch, heads, r, k.shape[3], device=q.device)
        to_w = torch.empty(parts, batch, heads, r, v.shape[3], device=q.device)
        launch(
            columns_back_kernel, (batch * heads, parts),
            q, *sides.keys, sides.kept[1], w, grad, to_q, to_k_hat, to_w, heads, r, length, tiles,
            *_strides(q, grad, to_q), ctx.scale, **sides.constants, **tile,
        )  # fmt: skip
        by_u_q = torch.empty(batch, heads, p, q.shape[3], device=q.device)
        by_u_k = torch.empty(batch, heads, r, k.shape[3], device=q.device)
        to_mixed = torch.empty_like(mixed)
        inner = torch.empty_like(total)
        launch(
            middle_back_kernel, (batch * heads,),
            *sides.queries, *sides.keys, *sides.kept, mixed, steps, to_w,
            mixed if of_rows is None else of_rows.contiguous(), to_mixed, inner, by_u_q, by_u_k,
            torch.empty(steps.shape[2:], device=q.device),
            steps.new_empty(len(steps), 3, batch, heads, p, p),
            heads, parts, p, r, ctx.scale, WITH_ROWS=of_rows is not None,
            **_inverted(sides, ctx.inverse),
        )  # fmt: skip
        tile = _tile("rows_back", sides)
        q_parts, tiles = _parts(sides, k.shape[2], tile)
        to_q_hat = torch.empty(q_parts, batch, heads, p, q.shape[3], device=q.device)
        launch(
            rows_back_kernel, (batch * heads, q_parts),
            *sides.queries, k, v, sides.keep, to_mixed.to(v.dtype), total, inner,
            to_q_hat, to_k, to_v, heads, p, k.shape[2], tiles,
            *_strides(k, v, to_k, to_v), ctx.scale, **sides.constants, **tile,
        )  # fmt: skip
        ends = []
        for whole, hat, sums, by_u in (
            (to_q, q_hat, to_q_hat, by_u_q),
            (to_k, k_hat, to_k_hat, by_u_k),
        ):
            is_picked = hat.dim() == 3
            target = whole if is_picked else torch.empty_like(hat)
            launch(
                picked_kernel, (batch * heads,),
                target, hat, sums, by_u, heads, len(sums), hat.shape[2], *target.stride()[:3],
                PICKED=is_picked, WIDTH=whole.shape[3], FILLED=_filled(whole.shape[3]),
                COUNT=_filled(hat.shape[2]),
            )  # fmt: skip
            ends.append(None if is_picked else target)
        return to_q, to_k, to_v, *ends, None, None, None, None, None


class _Sides(NamedTuple):
    """What kernels are told of both sides: landmarks, where they stand, which count, and sizes."""

    queries: tuple[Any, ...]
    keys: tuple[Any, ...]
    kept: tuple[Tensor, Tensor]
    keep: Tensor
    constants: dict[str, Any]
    heads: int
    is_half: bool


def _sides(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_hat: Tensor,
    k_hat: Tensor,
    keep: Tensor | None,
    q_keep: Tensor | None,
    k_keep: Tensor | None,
) -> _Sides:
    exact = q.dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest"
    constants = {
        "PICKED_Q": q_hat.dim() == 3,
        "PICKED_K": k_hat.dim() == 3,
        "MASKED": keep is not None,
        "MASKED_Q": q_keep is not None,
        "MASKED_K": k_keep is not None,
        "WIDTH": q.shape[3],
        "FILLED": _filled(q.shape[3]),
        "V_WIDTH": v.shape[3],
        "V_FILLED": _filled(v.shape[3]),
        "P": _filled(q_hat.shape[2]),
        "R": _filled(k_hat.shape[2]),
        "PRECISION": "tf32x3" if exact else "tf32",
    }
    queries = q if q_hat.dim() == 3 else q_hat
    keys = k if k_hat.dim() == 3 else k_hat
    return _Sides(
        (queries, q_hat, *queries.stride()[:3]),
        (keys, k_hat, *keys.stride()[:3]),
        tuple(
            q if mask is None else mask.contiguous().view(torch.uint8) for mask in (q_keep, k_keep)
        ),
        q if keep is None else keep.contiguous().view(torch.uint8),
        constants,
        len(q) * q.shape[1],
        q.dtype != torch.float32,
    )


def _inverted(sides: _Sides, inverse: Inverse) -> dict[str, Any]:
    """Constants of the kernels of one head's U."""
    constants = dict(sides.constants)
    del constants["MASKED"]
    largest = max(constants["P"], constants["R"])
    return {
        **constants,
        "STEPS": inverse.iterations,
        "BY_ROWS": inverse.by_rows,
        "THROUGH": inverse.through_start,
        "SPLITS": _splits(sides),
        "num_warps": 8 if largest > 64 else 4,
        "num_stages": 1,
    }


def _splits(sides: _Sides) -> int:
    """bf16 numbers for one of U and its inverse."""
    return 2 if sides.constants["PRECISION"] == "tf32" else 3


def _filled(count: int) -> int:
    return max(16, triton.next_power_of_2(count))


def _strides(*tensors: Tensor) -> tuple[int, ...]:
    return tuple(stride for tensor in tensors for stride in tensor.stride()[:3])


_TILES = {
    "rows": (128, 4, 3),
    "columns": (128, 4, 3),
    "columns_back": (64, 4, 3),
    "rows_back": (64, 4, 3),
}
"""Tokens of a tile, warps and stages of the pipeline, of bf16 heads up to 64 wide and up to 64
landmarks: the best of four on an H200.
"""


def _tile(kernel: str, sides: _Sides) -> dict[str, Any]:
    """Fewer tokens for more landmarks, wider heads and float32, so that a tile fits."""
    tokens, warps, stages = _TILES[kernel]
    constants = sides.constants
    landmarks = max(constants["P"], constants["R"])
    width = max(constants["FILLED"], constants["V_FILLED"])
    larger = (landmarks > 64) + (width > 64) + 2 * (not sides.is_half)
    if larger:
        tokens = max(16, tokens >> larger)
        stages = 2
    return {"TOKENS": tokens, "num_warps": 8 if larger else warps, "num_stages": stages}


def _parts(sides: _Sides, length: int, tile: dict[str, Any]) -> tuple[int, int]:
    """How many parts have a token, and tiles in each of them."""
    tiles = triton.cdiv(length, tile["TOKENS"])
    tiles_of_part = triton.cdiv(tiles, triton.cdiv(PROGRAMS, sides.heads))
    return triton.cdiv(tiles, tiles_of_part), tiles_of_part


@triton.jit
def _place(row, start, stride, there, WIDTH: tl.constexpr, FILLED: tl.constexpr):
    """Where rows of numbers are, and which of them exist."""
    column = tl.arange(0, FILLED)
    place = start + row[:, None].to(tl.int64) * stride + column[None, :]
    inside = there[:, None]
    if WIDTH != FILLED:
        inside = inside & (column[None, :] < WIDTH)
    return place, inside


@triton.jit
def _start(heads, sample_stride, head_stride):
    """Where this program's head begins."""
    head = tl.program_id(0).to(tl.int64)
    return (head // heads) * sample_stride + (head % heads) * head_stride


@triton.jit
def _small(count, COUNT: tl.constexpr, WIDTH: tl.constexpr, FILLED: tl.constexpr):
    """Places in a matrix (.., count, WIDTH) of this program's head, and which of them exist."""
    row = tl.arange(0, COUNT)
    start = tl.program_id(0).to(tl.int64) * count * WIDTH
    return _place(row, start, WIDTH, row < count, WIDTH, FILLED)


@triton.jit
def _square(r, p, R: tl.constexpr, P: tl.constexpr):
    """Places in an (r, p) matrix, and which of them exist."""
    row = tl.arange(0, R)[:, None]
    column = tl.arange(0, P)[None, :]
    return row * p + column, (row < r) & (column < p)


@triton.jit
def _landmarks(
    x, index, sample_stride, head_stride, row_stride, heads, count,
    PICKED: tl.constexpr, COUNT: tl.constexpr, WIDTH: tl.constexpr, FILLED: tl.constexpr,
):  # fmt: skip
    """The landmarks of this program's head, zeros behind the last one."""
    number = tl.arange(0, COUNT)
    row = number.to(tl.int64)
    if PICKED:
        start = tl.program_id(0).to(tl.int64) * count
        row = tl.load(index + start + number, mask=number < count, other=0)
    place, inside = _place(
        row, _start(heads, sample_stride, head_stride), row_stride, number < count, WIDTH, FILLED
    )
    return tl.load(x + place, mask=inside, other=0.0)


@triton.jit
def _counted(keep, count, COUNT: tl.constexpr, MASKED: tl.constexpr):
    """Which landmarks of this program's head count."""
    number = tl.arange(0, COUNT)
    there = number < count
    if MASKED:
        start = tl.program_id(0).to(tl.int64) * count
        there = there & (tl.load(keep + start + number, mask=there, other=0) != 0)
    return there


@triton.jit
def _weights(scores):
    """exp2 of the scores but for the largest of each row, and its sum; a row of -inf has zeros."""
    top = tl.max(scores, 1)
    top = tl.where(top == float("-inf"), 0.0, top)
    weights = tl.exp2(scores - top[:, None])
    return weights, tl.sum(weights, 1)


@triton.jit
def _parts_of(x, SPLITS: tl.constexpr):
    """An fp32 matrix as a sum of SPLITS bf16 ones, the largest first."""
    high = x.to(tl.bfloat16)
    x -= high.to(tl.float32)
    low = x.to(tl.bfloat16)
    if SPLITS == 2:
        return high, low
    else:
        return high, low, (x - low.to(tl.float32)).to(tl.bfloat16)


@triton.jit
def _turned(x, SPLITS: tl.constexpr):
    """The parts of a transposed matrix."""
    if SPLITS == 2:
        return tl.trans(x[0]), tl.trans(x[1])
    else:
        return tl.trans(x[0]), tl.trans(x[1]), tl.trans(x[2])


@triton.jit
def _whole(x, SPLITS: tl.constexpr):
    """The fp32 matrix that has these parts."""
    total = x[0].to(tl.float32) + x[1].to(tl.float32)
    if SPLITS == 3:
        total += x[2].to(tl.float32)
    return total


@triton.jit
def _product(x, y, start, SPLITS: tl.constexpr):
    """start + x y of matrices in parts, without the smallest products."""
    product = tl.dot(x[0], y[1], start)
    product = tl.dot(x[1], y[0], product)
    if SPLITS == 3:
        product = tl.dot(x[1], y[1], product)
        product = tl.dot(x[2], y[0], product)
        product = tl.dot(x[0], y[2], product)
    return tl.dot(x[0], y[0], product)


@triton.jit
def _times(x, y, start, SPLITS: tl.constexpr):
    """start + x y of fp32 matrices."""
    return _product(_parts_of(x, SPLITS), _parts_of(y, SPLITS), start, SPLITS)


@triton.jit
def _kept(x, place, inside, distance, SPLITS: tl.constexpr):
    """The parts of a matrix that `_keep` has written."""
    high = tl.load(x + place, mask=inside, other=0.0)
    low = tl.load(x + distance + place, mask=inside, other=0.0)
    if SPLITS == 2:
        return high, low
    else:
        return high, low, tl.load(x + 2 * distance + place, mask=inside, other=0.0)


@triton.jit
def _keep(x, parts, place, inside, distance, SPLITS: tl.constexpr):
    """Write the parts of a matrix, so far from one another."""
    tl.store(x + place, parts[0], mask=inside)
    tl.store(x + distance + place, parts[1], mask=inside)
    if SPLITS == 3:
        tl.store(x + 2 * distance + place, parts[2], mask=inside)


@triton.jit
def _middle(queries, keys, q_there, k_there, scale, SPLITS: tl.constexpr):
    """U, zeros in rows and columns of landmarks that are not there."""
    if SPLITS == 3:
        scores = _times(queries.to(tl.float32), tl.trans(keys).to(tl.float32), None, SPLITS)
    else:
        scores = tl.dot(queries, tl.trans(keys))
    scores = tl.where(k_there[None, :], scores * (scale * LOG2E), float("-inf"))
    weights, total = _weights(scores)
    return tl.where(q_there[:, None], weights / total[:, None], 0.0)


@triton.jit
def _norms(u, BY_ROWS: tl.constexpr):
    """Sums of U's columns, the largest, and the largest of a row; 1 of a matrix of zeros."""
    sums = tl.sum(u, 0)
    top = tl.max(sums, 0)
    top = tl.where(top == 0, 1.0, top)
    rows = 1.0
    if BY_ROWS:
        rows = tl.max(tl.sum(u, 1), 0)
        rows = tl.where(rows == 0, 1.0, rows)
    return sums, top, rows


@triton.jit
def rows_kernel(
    q, index, q_sample, q_head, q_row, k, v, keep, sums, logs, heads, p, length, tiles,
    k_sample, k_head, k_row, v_sample, v_head, v_row, scale,
    PICKED_Q: tl.constexpr, PICKED_K: tl.constexpr, MASKED: tl.constexpr, MASKED_Q: tl.constexpr,
    MASKED_K: tl.constexpr, WIDTH: tl.constexpr, FILLED: tl.constexpr, V_WIDTH: tl.constexpr,
    V_FILLED: tl.constexpr, P: tl.constexpr, R: tl.constexpr, PRECISION: tl.constexpr,
    TOKENS: tl.constexpr,
):  # fmt: skip
    """R V of one part of the keys, and the logs of the weights' sums, to base 2."""
    queries = _landmarks(q, index, q_sample, q_head, q_row, heads, p, PICKED_Q, P, WIDTH, FILLED)
    top = tl.full((P,), float("-inf"), tl.float32)
    total = tl.zeros((P,), tl.float32)
    mixed = tl.zeros((P, V_FILLED), tl.float32)
    k_start = _start(heads, k_sample, k_head)
    v_start = _start(heads, v_sample, v_head)
    last = tl.minimum((tl.program_id(1) + 1) * tiles, tl.cdiv(length, TOKENS))
    for tile in range(tl.program_id(1) * tiles, last):
        token = tile * TOKENS + tl.arange(0, TOKENS)
        there = token < length
        place, inside = _place(token, k_start, k_row, there, WIDTH, FILLED)
        keys = tl.load(k + place, mask=inside, other=0.0)
        place, inside = _place(token, v_start, v_row, there, V_WIDTH, V_FILLED)
        values = tl.load(v + place, mask=inside, other=0.0)
        counts = there
        if MASKED:
            start = (tl.program_id(0).to(tl.int64) // heads) * length
            counts = tl.load(keep + start + token, mask=there, other=0) != 0
        scores = tl.dot(queries, tl.trans(keys), input_precision=PRECISION) * (scale * LOG2E)
        scores = tl.where(counts[None, :], scores, float("-inf"))
        new = tl.maximum(top, tl.max(scores, 1))
        if MASKED:  # as long as no key counts, -inf must not be subtracted from -inf
            base = tl.where(new == float("-inf"), 0.0, new)
        else:
            base = new
        weights = tl.exp2(scores - base[:, None])
        shrunk = tl.exp2(top - base)
        total = total * shrunk + tl.sum(weights, 1)
        mixed = mixed * shrunk[:, None]
        mixed = tl.dot(weights.to(values.dtype), values, mixed, input_precision=PRECISION)
        top = new
    some = total > 0
    number = tl.arange(0, P)
    part = tl.program_id(1).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)
    start = part * p
    small, exists = _place(number, start * V_WIDTH, V_WIDTH, number < p, V_WIDTH, V_FILLED)
    total = tl.where(some, total, 1.0)
    tl.store(sums + small, mixed / total[:, None], mask=exists)
    log = tl.where(some, top + tl.log2(total), float("-inf"))
    tl.store(logs + start + number, log, mask=number < p)


@triton.jit
def middle_kernel(
    q, q_index, q_sample, q_head, q_row, k, k_index, k_sample, k_head, k_row, q_keep, k_keep,
    sums, logs, mixed, total, rows, steps, w, heads, parts, p, r, scale,
    PICKED_Q: tl.constexpr, PICKED_K: tl.constexpr, MASKED_Q: tl.constexpr,
    MASKED_K: tl.constexpr, WIDTH: tl.constexpr, FILLED: tl.constexpr, V_WIDTH: tl.constexpr,
    V_FILLED: tl.constexpr, P: tl.constexpr, R: tl.constexpr, PRECISION: tl.constexpr,
    STEPS: tl.constexpr, BY_ROWS: tl.constexpr, THROUGH: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """R V of all parts, U, its inverse and W of one head; Z behind each step is kept."""
    number = tl.arange(0, P)
    place, inside = _small(p, P, V_WIDTH, V_FILLED)
    summed = tl.zeros((P, V_FILLED), tl.float32)
    top = tl.full((P,), float("-inf"), tl.float32)
    weight = tl.zeros((P,), tl.float32)
    for part in range(parts):
        start = (part * tl.num_programs(0) + tl.program_id(0)).to(tl.int64) * p
        log = tl.load(logs + start + number, mask=number < p, other=float("-inf"))
        new = tl.maximum(top, log)
        base = tl.where(new == float("-inf"), 0.0, new)
        shrunk, share = tl.exp2(top - base), tl.exp2(log - base)
        further = part * tl.num_programs(0).to(tl.int64) * p * V_WIDTH
        found = tl.load(sums + further + place, mask=inside, other=0.0)
        summed = summed * shrunk[:, None] + found * share[:, None]
        weight = weight * shrunk + share
        top = new
    some = weight > 0
    weight = tl.where(some, weight, 1.0)
    summed = summed / weight[:, None]
    tl.store(mixed + place, summed, mask=inside)
    tl.store(rows + place, summed.to(rows.dtype.element_ty), mask=inside)
    start = tl.program_id(0).to(tl.int64) * p
    # a query that sees no key at all has weights exp2(-inf - inf) = 0
    whole = tl.where(some, top + tl.log2(weight), float("inf"))
    tl.store(total + start + number, whole, mask=number < p)
    queries = _landmarks(q, q_index, q_sample, q_head, q_row, heads, p, PICKED_Q, P, WIDTH, FILLED)
    keys = _landmarks(k, k_index, k_sample, k_head, k_row, heads, r, PICKED_K, R, WIDTH, FILLED)
    q_there = _counted(q_keep, p, P, MASKED_Q)
    k_there = _counted(k_keep, r, R, MASKED_K)
    u = _middle(queries, keys, q_there, k_there, scale, SPLITS)
    _, column, row = _norms(u, BY_ROWS)
    z = tl.trans(u) / column / row
    square, exists = _square(r, p, R, P)
    size = tl.num_programs(0).to(tl.int64) * r * p
    steps += tl.program_id(0).to(tl.int64) * r * p
    distance = (STEPS + 2) * size
    u = _parts_of(u, SPLITS)
    _keep(steps, _turned(u, SPLITS), square, exists, distance, SPLITS)
    z = _parts_of(z, SPLITS)
    _keep(steps + size, z, square, exists, distance, SPLITS)
    tl.debug_barrier()
    for step in range(STEPS):
        u_turned = _kept(steps, square, exists, distance, SPLITS)
        a = _parts_of(_product(_turned(u_turned, SPLITS), z, None, SPLITS), SPLITS)
        less_b = _parts_of(_product(a, a, -7 * _whole(a, SPLITS), SPLITS), SPLITS)
        c = -0.25 * _product(a, less_b, 15 * _whole(a, SPLITS), SPLITS)
        z = _parts_of(_product(z, _parts_of(c, SPLITS), 3.25 * _whole(z, SPLITS), SPLITS), SPLITS)
        _keep(steps + (step + 2) * size, z, square, exists, distance, SPLITS)
    place, inside = _small(r, R, V_WIDTH, V_FILLED)
    at, there = _small(p, P, V_WIDTH, V_FILLED)
    tl.debug_barrier()
    again = tl.load(mixed + at, mask=there, other=0.0)
    result = _product(z, _parts_of(again, SPLITS), None, SPLITS)
    tl.store(w + place, result.to(w.dtype.element_ty), mask=inside)


@triton.jit
def columns_kernel(
    q, k, index, k_sample, k_head, k_row, keep, w, out, heads, r, length, tiles,
    q_sample, q_head, q_row, o_sample, o_head, o_row, scale,
    PICKED_Q: tl.constexpr, PICKED_K: tl.constexpr, MASKED: tl.constexpr, MASKED_Q: tl.constexpr,
    MASKED_K: tl.constexpr, WIDTH: tl.constexpr, FILLED: tl.constexpr, V_WIDTH: tl.constexpr,
    V_FILLED: tl.constexpr, P: tl.constexpr, R: tl.constexpr, PRECISION: tl.constexpr,
    TOKENS: tl.constexpr,
):  # fmt: skip
    """C W of one part of the queries."""
    keys = _landmarks(k, index, k_sample, k_head, k_row, heads, r, PICKED_K, R, WIDTH, FILLED)
    counts = _counted(keep, r, R, MASKED_K)
    small, exists = _small(r, R, V_WIDTH, V_FILLED)
    values = tl.load(w + small, mask=exists, other=0.0)
    q_start = _start(heads, q_sample, q_head)
    o_start = _start(heads, o_sample, o_head)
    last = tl.minimum((tl.program_id(1) + 1) * tiles, tl.cdiv(length, TOKENS))
    for tile in range(tl.program_id(1) * tiles, last):
        token = tile * TOKENS + tl.arange(0, TOKENS)
        there = token < length
        place, inside = _place(token, q_start, q_row, there, WIDTH, FILLED)
        queries = tl.load(q + place, mask=inside, other=0.0)
        scores = tl.dot(queries, tl.trans(keys), input_precision=PRECISION) * (scale * LOG2E)
        weights, total = _weights(tl.where(counts[None, :], scores, float("-inf")))
        mixed = tl.dot(weights.to(values.dtype), values, input_precision=PRECISION)
        place, inside = _place(token, o_start, o_row, there, V_WIDTH, V_FILLED)
        tl.store(out + place, (mixed / total[:, None]).to(out.dtype.element_ty), mask=inside)


@triton.jit
def columns_back_kernel(
    q, k, index, k_sample, k_head, k_row, keep, w, grad, to_q, to_k, to_w, heads, r, length, tiles,
    q_sample, q_head, q_row, g_sample, g_head, g_row, t_sample, t_head, t_row, scale,
    PICKED_Q: tl.constexpr, PICKED_K: tl.constexpr, MASKED: tl.constexpr, MASKED_Q: tl.constexpr,
    MASKED_K: tl.constexpr, WIDTH: tl.constexpr, FILLED: tl.constexpr, V_WIDTH: tl.constexpr,
    V_FILLED: tl.constexpr, P: tl.constexpr, R: tl.constexpr, PRECISION: tl.constexpr,
    TOKENS: tl.constexpr,
):  # fmt: skip
    """Gradients of one part of the queries, and those of the landmarks of K and of W by it."""
    keys = _landmarks(k, index, k_sample, k_head, k_row, heads, r, PICKED_K, R, WIDTH, FILLED)
    counts = _counted(keep, r, R, MASKED_K)
    small, exists = _small(r, R, V_WIDTH, V_FILLED)
    values = tl.load(w + small, mask=exists, other=0.0)
    by_keys = tl.zeros((R, FILLED), tl.float32)
    by_values = tl.zeros((R, V_FILLED), tl.float32)
    q_start = _start(heads, q_sample, q_head)
    g_start = _start(heads, g_sample, g_head)
    t_start = _start(heads, t_sample, t_head)
    last = tl.minimum((tl.program_id(1) + 1) * tiles, tl.cdiv(length, TOKENS))
    for tile in range(tl.program_id(1) * tiles, last):
        token = tile * TOKENS + tl.arange(0, TOKENS)
        there = token < length
        place, inside = _place(token, q_start, q_row, there, WIDTH, FILLED)
        queries = tl.load(q + place, mask=inside, other=0.0)
        place, inside = _place(token, g_start, g_row, there, V_WIDTH, V_FILLED)
        gradient = tl.load(grad + place, mask=inside, other=0.0)
        scores = tl.dot(queries, tl.trans(keys), input_precision=PRECISION) * (scale * LOG2E)
        weights, total = _weights(tl.where(counts[None, :], scores, float("-inf")))
        weights = weights / total[:, None]
        through = tl.dot(gradient, tl.trans(values), input_precision=PRECISION)
        slopes = weights * (through - tl.sum(weights * through, 1)[:, None])
        slopes = (slopes * scale).to(queries.dtype)
        by_values = tl.dot(
            tl.trans(weights.to(gradient.dtype)), gradient, by_values, input_precision=PRECISION
        )
        by_keys = tl.dot(tl.trans(slopes), queries, by_keys, input_precision=PRECISION)
        back = tl.dot(slopes, keys, input_precision=PRECISION)
        place, inside = _place(token, t_start, t_row, there, WIDTH, FILLED)
        tl.store(to_q + place, back.to(to_q.dtype.element_ty), mask=inside)
    number = tl.arange(0, R)
    start = (tl.program_id(1).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)) * r
    small, exists = _place(number, start * WIDTH, WIDTH, number < r, WIDTH, FILLED)
    tl.store(to_k + small, by_keys, mask=exists)
    small, exists = _place(number, start * V_WIDTH, V_WIDTH, number < r, V_WIDTH, V_FILLED)
    tl.store(to_w + small, by_values, mask=exists)


@triton.jit
def middle_back_kernel(
    q, q_index, q_sample, q_head, q_row, k, k_index, k_sample, k_head, k_row, q_keep, k_keep,
    mixed, steps, to_w, of_rows, to_mixed, inner, to_q, to_k, to_u, work, heads, parts, p, r, scale,
    WITH_ROWS: tl.constexpr,
    PICKED_Q: tl.constexpr, PICKED_K: tl.constexpr, MASKED_Q: tl.constexpr,
    MASKED_K: tl.constexpr, WIDTH: tl.constexpr, FILLED: tl.constexpr, V_WIDTH: tl.constexpr,
    V_FILLED: tl.constexpr, P: tl.constexpr, R: tl.constexpr, PRECISION: tl.constexpr,
    STEPS: tl.constexpr, BY_ROWS: tl.constexpr, THROUGH: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """From the gradient of W to those of R V and, through the inverse and U, of the landmarks."""
    number = tl.arange(0, P)
    queries = _landmarks(q, q_index, q_sample, q_head, q_row, heads, p, PICKED_Q, P, WIDTH, FILLED)
    keys = _landmarks(k, k_index, k_sample, k_head, k_row, heads, r, PICKED_K, R, WIDTH, FILLED)
    q_there = _counted(q_keep, p, P, MASKED_Q)
    k_there = _counted(k_keep, r, R, MASKED_K)
    square, exists = _square(r, p, R, P)
    size = tl.num_programs(0).to(tl.int64) * r * p
    steps += tl.program_id(0).to(tl.int64) * r * p
    distance = (STEPS + 2) * size
    z = _kept(steps + (STEPS + 1) * size, square, exists, distance, SPLITS)
    place, inside = _small(r, R, V_WIDTH, V_FILLED)
    gradient = tl.zeros((R, V_FILLED), tl.float32)
    for part in range(parts):
        further = part * tl.num_programs(0).to(tl.int64) * r * V_WIDTH
        gradient += tl.load(to_w + further + place, mask=inside, other=0.0)
    gradient = _parts_of(gradient, SPLITS)
    place, inside = _small(p, P, V_WIDTH, V_FILLED)
    summed = tl.load(mixed + place, mask=inside, other=0.0)
    through = tl.zeros((P, V_FILLED), tl.float32)
    if WITH_ROWS:
        through += tl.load(of_rows + place, mask=inside, other=0.0).to(tl.float32)
    through = _product(_turned(z, SPLITS), gradient, through, SPLITS)
    tl.store(to_mixed + place, through, mask=inside)
    start = tl.program_id(0).to(tl.int64) * p
    tl.store(inner + start + number, tl.sum(through * summed, 1), mask=number < p)
    g = _product(gradient, _turned(_parts_of(summed, SPLITS), SPLITS), None, SPLITS)
    to_u += tl.program_id(0).to(tl.int64) * r * p
    tl.store(to_u + square, tl.zeros((R, P), tl.float32), mask=exists)
    own, fits = _square(p, p, P, P)
    further = tl.num_programs(0).to(tl.int64) * p * p
    work += tl.program_id(0).to(tl.int64) * p * p
    apart = 3 * further
    for back in range(STEPS):
        z = _kept(steps + (STEPS - back) * size, square, exists, distance, SPLITS)
        u_turned = _kept(steps, square, exists, distance, SPLITS)
        a = _parts_of(_product(_turned(u_turned, SPLITS), z, None, SPLITS), SPLITS)
        _keep(work, a, own, fits, apart, SPLITS)
        less_b = _parts_of(_product(a, a, -7 * _whole(a, SPLITS), SPLITS), SPLITS)
        _keep(work + further, less_b, own, fits, apart, SPLITS)
        c = -0.25 * _product(a, less_b, 15 * _whole(a, SPLITS), SPLITS)
        _keep(work + 2 * further, _parts_of(c, SPLITS), own, fits, apart, SPLITS)
        tl.debug_barrier()  # operands that are read again need no registers
        g = _parts_of(g, SPLITS)
        to_c = _parts_of(-0.25 * _product(_turned(z, SPLITS), g, None, SPLITS), SPLITS)
        c = _turned(_kept(work + 2 * further, own, fits, apart, SPLITS), SPLITS)
        g = _product(g, c, 3.25 * _whole(g, SPLITS), SPLITS)
        less_b = _turned(_kept(work + further, own, fits, apart, SPLITS), SPLITS)
        to_a = _product(to_c, less_b, 15 * _whole(to_c, SPLITS), SPLITS)
        a = _turned(_kept(work, own, fits, apart, SPLITS), SPLITS)
        less_to_b = _parts_of(_product(a, to_c, None, SPLITS), SPLITS)
        to_a = _product(a, less_to_b, to_a - 7 * _whole(less_to_b, SPLITS), SPLITS)
        to_a = _product(less_to_b, a, to_a, SPLITS)
        tl.debug_barrier()
        a_parts = _parts_of(to_a, SPLITS)
        by_u = tl.load(to_u + square, mask=exists, other=0.0)
        by_u = _product(z, _turned(a_parts, SPLITS), by_u, SPLITS)
        tl.store(to_u + square, by_u, mask=exists)
        g = _product(u_turned, a_parts, g, SPLITS)
    u = _middle(queries, keys, q_there, k_there, scale, SPLITS)
    sums, column, row = _norms(u, BY_ROWS)
    by_u = tl.load(to_u + square, mask=exists, other=0.0)
    by_u = tl.trans(by_u + g / column / row)
    if THROUGH:
        # rows of a softmax have one sum, so that only the largest column's has a gradient
        highest = (sums == column).to(tl.float32)
        share = tl.sum(tl.sum(g * tl.trans(u), 1), 0) / column / row / column
        by_u -= (share * highest / tl.maximum(tl.sum(highest, 0), 1.0))[None, :]
    slopes = u * (by_u - tl.sum(u * by_u, 1)[:, None]) * scale
    slopes = _parts_of(slopes, SPLITS)
    place, inside = _small(p, P, WIDTH, FILLED)
    tl.store(
        to_q + place,
        _product(slopes, _parts_of(keys.to(tl.float32), SPLITS), None, SPLITS),
        mask=inside,
    )
    place, inside = _small(r, R, WIDTH, FILLED)
    back_keys = _product(
        _turned(slopes, SPLITS), _parts_of(queries.to(tl.float32), SPLITS), None, SPLITS
    )
    tl.store(to_k + place, back_keys, mask=inside)


@triton.jit
def rows_back_kernel(
    q, index, q_sample, q_head, q_row, k, v, keep, grad, total, inner, to_q, to_k, to_v,
    heads, p, length, tiles,
    k_sample, k_head, k_row, v_sample, v_head, v_row, s_sample, s_head, s_row,
    t_sample, t_head, t_row, scale,
    PICKED_Q: tl.constexpr, PICKED_K: tl.constexpr, MASKED: tl.constexpr, MASKED_Q: tl.constexpr,
    MASKED_K: tl.constexpr, WIDTH: tl.constexpr, FILLED: tl.constexpr, V_WIDTH: tl.constexpr,
    V_FILLED: tl.constexpr, P: tl.constexpr, R: tl.constexpr, PRECISION: tl.constexpr,
    TOKENS: tl.constexpr,
):  # fmt: skip
    """Gradients of one part of the keys and values, and that of the landmarks of Q by it."""
    queries = _landmarks(q, index, q_sample, q_head, q_row, heads, p, PICKED_Q, P, WIDTH, FILLED)
    number = tl.arange(0, P)
    small, exists = _small(p, P, V_WIDTH, V_FILLED)
    gradient = tl.load(grad + small, mask=exists, other=0.0)
    start = tl.program_id(0).to(tl.int64) * p
    log = tl.load(total + start + number, mask=number < p, other=float("inf"))
    through_sum = tl.load(inner + start + number, mask=number < p, other=0.0)
    by_queries = tl.zeros((P, FILLED), tl.float32)
    k_start = _start(heads, k_sample, k_head)
    v_start = _start(heads, v_sample, v_head)
    s_start = _start(heads, s_sample, s_head)
    t_start = _start(heads, t_sample, t_head)
    last = tl.minimum((tl.program_id(1) + 1) * tiles, tl.cdiv(length, TOKENS))
    for tile in range(tl.program_id(1) * tiles, last):
        token = tile * TOKENS + tl.arange(0, TOKENS)
        there = token < length
        place, inside = _place(token, k_start, k_row, there, WIDTH, FILLED)
        keys = tl.load(k + place, mask=inside, other=0.0)
        place, inside = _place(token, v_start, v_row, there, V_WIDTH, V_FILLED)
        values = tl.load(v + place, mask=inside, other=0.0)
        counts = there
        if MASKED:
            sample = (tl.program_id(0).to(tl.int64) // heads) * length
            counts = tl.load(keep + sample + token, mask=there, other=0) != 0
        scores = tl.dot(keys, tl.trans(queries), input_precision=PRECISION) * (scale * LOG2E)
        weights = tl.exp2(tl.where(counts[:, None], scores, float("-inf")) - log[None, :])
        through = tl.dot(values, tl.trans(gradient), input_precision=PRECISION)
        slopes = (weights * (through - through_sum[None, :]) * scale).to(queries.dtype)
        to_values = tl.dot(weights.to(gradient.dtype), gradient, input_precision=PRECISION)
        place, inside = _place(token, t_start, t_row, there, V_WIDTH, V_FILLED)
        tl.store(to_v + place, to_values.to(to_v.dtype.element_ty), mask=inside)
        to_keys = tl.dot(slopes, queries, input_precision=PRECISION)
        place, inside = _place(token, s_start, s_row, there, WIDTH, FILLED)
        tl.store(to_k + place, to_keys.to(to_k.dtype.element_ty), mask=inside)
        by_queries = tl.dot(tl.trans(slopes), keys, by_queries, input_precision=PRECISION)
    start = (tl.program_id(1).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)) * p
    small, exists = _place(number, start * WIDTH, WIDTH, number < p, WIDTH, FILLED)
    tl.store(to_q + small, by_queries, mask=exists)


@triton.jit
def picked_kernel(
    target, index, sums, by_u, heads, parts, count, t_sample, t_head, t_row,
    PICKED: tl.constexpr, WIDTH: tl.constexpr, FILLED: tl.constexpr, COUNT: tl.constexpr,
):  # fmt: skip
    """The gradient of one head's landmarks, added to the rows they were picked from."""
    number = tl.arange(0, COUNT)
    there = number < count
    place, inside = _small(count, COUNT, WIDTH, FILLED)
    total = tl.load(by_u + place, mask=inside, other=0.0)
    for part in range(parts):
        further = part * tl.num_programs(0).to(tl.int64) * count * WIDTH
        total += tl.load(sums + further + place, mask=inside, other=0.0)
    row = number.to(tl.int64)
    if PICKED:
        start = tl.program_id(0).to(tl.int64) * count
        row = tl.load(index + start + number, mask=there, other=-1)
        # a row that was picked several times: each of its picks writes the sum
        same = (row[:, None] == row[None, :]).to(tl.float32)
        total = _times(same, total, None, 3)
    place, inside = _place(row, _start(heads, t_sample, t_head), t_row, there, WIDTH, FILLED)
    if PICKED:
        total += tl.load(target + place, mask=inside, other=0.0).to(tl.float32)
        tl.debug_barrier()
    tl.store(target + place, total.to(target.dtype.element_ty), mask=inside)
