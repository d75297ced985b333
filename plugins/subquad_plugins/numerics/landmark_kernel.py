"""Softmax attention with few queries or few keys, in Triton: the long side is cut into parts that
run side by side.

torch's fused attention starts a program for each tile of queries. For R V those are few, and most
of a GPU would wait. Here the side that a program runs along is split, and its parts are added
afterwards; nothing of size Lq x Lk is kept.

Loads per call, of N numbers of the long side (B H L E): the short side goes in T tiles of 32 rows,
and the long side is read again for each. Few queries: forward 2 T N for K and V, backward (2 + 4 T)
N, writing 2 N. Few keys: forward (1 + 2 T) N, writing N; backward (2 + 4 T) N, writing N, and torch
reads output and gradient once more. At 64 rows that is 4 N, 10 N, 5 N and 10 N. What the L2 cache
answers of it depends on the number of heads. Counted in the interpreter,
tests/unit/plugins/interpreted/traffic.py. Beside them parts of 4 bytes a number for the short side,
`PROGRAMS` tiles at most. Sums in fp32.

Letters: B batch, H heads, Lq and Lk query and key length, E head width, Ev value width, P parts.
Reference: CUR attention, Algorithm 2 (Flash-CUR). It gives no backward pass; this is that of
softmax attention, with weights computed again from the log of their sums. Departures: keys are
split; the few rows are gathered before, and U is made by torch; one pair of kernels serves R V and
C W.
"""

# To pyright a reduction may return a constant.
# pyright: reportArgumentType=false, reportCallIssue=false

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from subquad_plugins.numerics.launching import launch

TILE = 32
"""Queries or keys of a tile."""

PROGRAMS = 264
"""That fill a GPU: two for each of the 132 processors of an H100 or H200."""


class ThinAttention(torch.autograd.Function):
    """softmax(scale Q K^T) V.

    Args:
        q: (B, H, Lq, E), float32, bfloat16 or float16.
        k: (B, H, Lk, E), likewise.
        v: (B, H, Lk, Ev), likewise.
        mask: which keys count, bool, (B or 1, H or 1, 1, Lk), or None; a query without any gets 0.
        scale: of the scores.

    Returns:
        (B, H, Lq, Ev), dtype of v.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float
    ) -> Tensor:
        q, k, v = (_rows(rows) for rows in (q, k, v))
        mask = (
            q if mask is None else mask.expand(len(q), q.shape[1], 1, k.shape[2]).view(torch.uint8)
        )
        ctx.scale = scale
        ctx.masked = mask is not q
        parts, tiles = _parts(k.shape[2], q)
        out = _for_parts(parts, v.new_empty(0), (*q.shape[:3], v.shape[3]))
        logs = torch.empty(parts, *q.shape[:3], device=q.device)
        heads = len(q) * q.shape[1]
        launch(
            forward_kernel, (heads, triton.cdiv(q.shape[2], TILE), parts),
            q, k, v, mask, out, logs, *_numbers(q, k, v, mask), tiles, scale,
            MASKED=ctx.masked, **_tile(q, v),
        )  # fmt: skip
        total = logs.logsumexp(0)
        # A query that sees no key at all has weights exp(-inf - inf) = 0.
        total = torch.where(total == -torch.inf, torch.inf, total)
        out = (
            out[0] if parts == 1 else (out * torch.exp(logs - total)[..., None]).sum(0).to(v.dtype)
        )
        ctx.save_for_backward(q, k, v, mask, out, total)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        q, k, v, mask, out, total = ctx.saved_tensors
        grad = _rows(grads[0])
        inner = (grad.float() * out.float()).sum(-1).contiguous()
        numbers = (*_numbers(q, k, v, mask), *grad.stride()[:3])
        tile = _tile(q, v)
        heads = len(q) * q.shape[1]
        q_parts, q_tiles = _parts(q.shape[2], k)
        k_parts, k_tiles = _parts(k.shape[2], q)
        to_q = _for_parts(k_parts, q, q.shape)
        to_k = _for_parts(q_parts, k, k.shape)
        to_v = _for_parts(q_parts, v, v.shape)
        launch(
            query_kernel, (heads, triton.cdiv(q.shape[2], TILE), k_parts),
            q, k, v, mask, grad, total, inner, to_q, *numbers, k_tiles, ctx.scale,
            MASKED=ctx.masked, **tile,
        )  # fmt: skip
        launch(
            key_kernel, (heads, triton.cdiv(k.shape[2], TILE), q_parts),
            q, k, v, mask, grad, total, inner, to_k, to_v, *numbers, q_tiles, ctx.scale,
            MASKED=ctx.masked, **tile,
        )  # fmt: skip
        to_q, to_k, to_v = (
            sums[0] if len(sums) == 1 else sums.sum(0).to(like.dtype)
            for sums, like in ((to_q, q), (to_k, k), (to_v, v))
        )
        return to_q, to_k, to_v, None, None


def _rows(x: Tensor) -> Tensor:
    """With the numbers of a row beside each other; other strides may be any."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _parts(length: int, across: Tensor) -> tuple[int, int]:
    """Into how many parts to cut a length, and tiles in each, where programs stand across tiles
    of another tensor.
    """
    tiles = triton.cdiv(length, TILE)
    others = across.shape[0] * across.shape[1] * triton.cdiv(across.shape[2], TILE)
    tiles_of_part = triton.cdiv(tiles, max(1, PROGRAMS // others))
    return triton.cdiv(tiles, tiles_of_part), tiles_of_part


def _for_parts(parts: int, like: Tensor, shape: Any) -> Tensor:
    """Where parts are written: one as such, several in fp32, to be added."""
    return torch.empty(
        parts, *shape, dtype=like.dtype if parts == 1 else torch.float32, device=like.device
    )


def _numbers(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[int, ...]:
    """Sizes and strides, as all kernels take them."""
    strides = (stride for tensor in (q, k, v) for stride in tensor.stride()[:3])
    return (
        q.shape[1],
        q.shape[2],
        k.shape[2],
        *strides,
        mask.stride(0),
        mask.stride(1),
        mask.stride(3),
    )


def _tile(q: Tensor, v: Tensor) -> dict[str, Any]:
    """Widths are filled up to powers of two; fp32 is multiplied in three parts unless torch may
    use one.
    """
    exact = q.dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest"
    filled, v_filled = (max(16, triton.next_power_of_2(tensor.shape[3])) for tensor in (q, v))
    return {
        "WIDTH": q.shape[3],
        "V_WIDTH": v.shape[3],
        "FILLED": filled,
        "V_FILLED": v_filled,
        "TILE": TILE,
        "PRECISION": "tf32x3" if exact else "tf32",
        "num_warps": 8 if max(filled, v_filled) >= 32 else 4,
    }


@triton.jit
def _load(
    x, sample_stride, head_stride, row_stride, row, length, heads,
    WIDTH: tl.constexpr, FILLED: tl.constexpr,
):  # fmt: skip
    """Some rows of this program's sample and head, in fp32, zeros beyond the end."""
    column = tl.arange(0, FILLED)
    sample = (tl.program_id(0) // heads).to(tl.int64)
    head = (tl.program_id(0) % heads).to(tl.int64)
    place = (
        sample * sample_stride
        + head * head_stride
        + row[:, None].to(tl.int64) * row_stride
        + column[None, :]
    )
    return tl.load(
        x + place, mask=(row[:, None] < length) & (column[None, :] < WIDTH), other=0.0
    ).to(tl.float32)


@triton.jit
def _store(x, value, row, length, WIDTH: tl.constexpr, FILLED: tl.constexpr):
    """Some rows of (P, B, H, length, WIDTH), of this program's part, sample and head."""
    column = tl.arange(0, FILLED)
    first = (tl.program_id(2).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)) * length
    place = (first + row[:, None]) * WIDTH + column[None, :]
    tl.store(
        x + place,
        value.to(x.dtype.element_ty),
        mask=(row[:, None] < length) & (column[None, :] < WIDTH),
    )


@triton.jit
def _mask_row(mask, heads, m_sample, m_head):
    """Where the mask of this program's sample and head begins."""
    sample = (tl.program_id(0) // heads).to(tl.int64)
    head = (tl.program_id(0) % heads).to(tl.int64)
    return mask + sample * m_sample + head * m_head


@triton.jit
def _scores(
    queries, keys, keep, column, k_length, scale, m_key,
    MASKED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """scale Q K^T of two tiles, -inf where a key does not count."""
    real = column < k_length
    if MASKED:
        real = tl.load(keep + column.to(tl.int64) * m_key, mask=real, other=0) != 0
    scores = tl.dot(queries, tl.trans(keys), input_precision=PRECISION) * scale
    return tl.where(real[None, :], scores, float("-inf"))


@triton.jit
def forward_kernel(
    q, k, v, mask, out, logs, heads, q_length, k_length,
    q_sample, q_head, q_row, k_sample, k_head, k_row, v_sample, v_head, v_row,
    m_sample, m_head, m_key, tiles, scale,
    MASKED: tl.constexpr, WIDTH: tl.constexpr, V_WIDTH: tl.constexpr, FILLED: tl.constexpr,
    V_FILLED: tl.constexpr, TILE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Attention of one tile of queries to one part of the keys, and the logs of the weights'
    sums.
    """
    row = tl.program_id(1) * TILE + tl.arange(0, TILE)
    queries = _load(q, q_sample, q_head, q_row, row, q_length, heads, WIDTH, FILLED)
    highest = tl.full((TILE,), float("-inf"), tl.float32)
    sums = tl.zeros((TILE,), tl.float32)
    summed = tl.zeros((TILE, V_FILLED), tl.float32)
    keep = _mask_row(mask, heads, m_sample, m_head)
    last = tl.minimum((tl.program_id(2) + 1) * tiles, tl.cdiv(k_length, TILE))
    for tile in range(tl.program_id(2) * tiles, last):
        column = tile * TILE + tl.arange(0, TILE)
        keys = _load(k, k_sample, k_head, k_row, column, k_length, heads, WIDTH, FILLED)
        scores = _scores(queries, keys, keep, column, k_length, scale, m_key, MASKED, PRECISION)
        new = tl.maximum(highest, tl.max(scores, 1))
        # As long as no key counts, -inf must not be subtracted from -inf.
        base = tl.where(new == float("-inf"), 0.0, new)
        weights = tl.exp(scores - base[:, None])
        shrunk = tl.exp(highest - base)
        values = _load(v, v_sample, v_head, v_row, column, k_length, heads, V_WIDTH, V_FILLED)
        summed = summed * shrunk[:, None] + tl.dot(weights, values, input_precision=PRECISION)
        sums = sums * shrunk + tl.sum(weights, 1)
        highest = new
    some = sums > 0
    sums = tl.where(some, sums, 1.0)
    _store(out, summed / sums[:, None], row, q_length, V_WIDTH, V_FILLED)
    first = (tl.program_id(2).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)) * q_length
    total = tl.where(some, highest + tl.log(sums), float("-inf"))
    tl.store(logs + first + row, total, mask=row < q_length)


@triton.jit
def _slopes(values, gradient, scores, total, inner, row, q_length, PRECISION: tl.constexpr):
    """Weights of two tiles, and the gradient of their scores."""
    place = tl.program_id(0).to(tl.int64) * q_length + row
    weights = tl.exp(
        scores - tl.load(total + place, mask=row < q_length, other=float("inf"))[:, None]
    )
    through = tl.dot(gradient, tl.trans(values), input_precision=PRECISION)
    return weights, weights * (
        through - tl.load(inner + place, mask=row < q_length, other=0.0)[:, None]
    )


@triton.jit
def query_kernel(
    q, k, v, mask, grad, total, inner, to_q, heads, q_length, k_length,
    q_sample, q_head, q_row, k_sample, k_head, k_row, v_sample, v_head, v_row,
    m_sample, m_head, m_key, g_sample, g_head, g_row, tiles, scale,
    MASKED: tl.constexpr, WIDTH: tl.constexpr, V_WIDTH: tl.constexpr, FILLED: tl.constexpr,
    V_FILLED: tl.constexpr, TILE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradient of one tile of queries by one part of the keys."""
    row = tl.program_id(1) * TILE + tl.arange(0, TILE)
    queries = _load(q, q_sample, q_head, q_row, row, q_length, heads, WIDTH, FILLED)
    gradient = _load(grad, g_sample, g_head, g_row, row, q_length, heads, V_WIDTH, V_FILLED)
    summed = tl.zeros((TILE, FILLED), tl.float32)
    keep = _mask_row(mask, heads, m_sample, m_head)
    last = tl.minimum((tl.program_id(2) + 1) * tiles, tl.cdiv(k_length, TILE))
    for tile in range(tl.program_id(2) * tiles, last):
        column = tile * TILE + tl.arange(0, TILE)
        keys = _load(k, k_sample, k_head, k_row, column, k_length, heads, WIDTH, FILLED)
        values = _load(v, v_sample, v_head, v_row, column, k_length, heads, V_WIDTH, V_FILLED)
        scores = _scores(queries, keys, keep, column, k_length, scale, m_key, MASKED, PRECISION)
        _, slopes = _slopes(values, gradient, scores, total, inner, row, q_length, PRECISION)
        summed += tl.dot(slopes, keys, input_precision=PRECISION)
    _store(to_q, summed * scale, row, q_length, WIDTH, FILLED)


@triton.jit
def key_kernel(
    q, k, v, mask, grad, total, inner, to_k, to_v, heads, q_length, k_length,
    q_sample, q_head, q_row, k_sample, k_head, k_row, v_sample, v_head, v_row,
    m_sample, m_head, m_key, g_sample, g_head, g_row, tiles, scale,
    MASKED: tl.constexpr, WIDTH: tl.constexpr, V_WIDTH: tl.constexpr, FILLED: tl.constexpr,
    V_FILLED: tl.constexpr, TILE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients of one tile of keys and values by one part of the queries."""
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    keys = _load(k, k_sample, k_head, k_row, column, k_length, heads, WIDTH, FILLED)
    values = _load(v, v_sample, v_head, v_row, column, k_length, heads, V_WIDTH, V_FILLED)
    summed = tl.zeros((TILE, FILLED), tl.float32)
    v_summed = tl.zeros((TILE, V_FILLED), tl.float32)
    keep = _mask_row(mask, heads, m_sample, m_head)
    last = tl.minimum((tl.program_id(2) + 1) * tiles, tl.cdiv(q_length, TILE))
    for tile in range(tl.program_id(2) * tiles, last):
        row = tile * TILE + tl.arange(0, TILE)
        queries = _load(q, q_sample, q_head, q_row, row, q_length, heads, WIDTH, FILLED)
        gradient = _load(grad, g_sample, g_head, g_row, row, q_length, heads, V_WIDTH, V_FILLED)
        scores = _scores(queries, keys, keep, column, k_length, scale, m_key, MASKED, PRECISION)
        weights, slopes = _slopes(values, gradient, scores, total, inner, row, q_length, PRECISION)
        summed += tl.dot(tl.trans(slopes), queries, input_precision=PRECISION)
        v_summed += tl.dot(tl.trans(weights), gradient, input_precision=PRECISION)
    _store(to_k, summed * scale, column, k_length, WIDTH, FILLED)
    _store(to_v, v_summed, column, k_length, V_WIDTH, V_FILLED)
