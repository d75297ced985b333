"""Rows of numbers of each head, as Triton's programs read and write them: tiles of a few rows each.

The first axis of a grid counts the heads of all samples, the second one parts of their tokens.
"""

# To pyright a constant argument is no constant.
# pyright: reportArgumentType=false, reportCallIssue=false

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2_E = tl.constexpr(1.4426950408889634)


class Rows(NamedTuple):
    """Rows of numbers of each head, ([parts], B, H, rows, width).

    Attributes:
        x: the tensor, whose rows lie densely.
        heads: H.
        part: stride, as are those that follow.
        sample: likewise.
        head: likewise.
        row: likewise.
        length: how many there are.
        WIDTH: numbers of a row.
        FILLED: the power of two that holds them.
    """

    x: Tensor
    heads: int | tl.constexpr
    part: int | tl.constexpr
    sample: int
    head: int | tl.constexpr
    row: tl.constexpr
    length: int
    WIDTH: tl.constexpr
    FILLED: tl.constexpr


def as_rows(x: Tensor | None) -> Any:
    """`Rows` of a tensor ([parts], B, H, rows, width); None stays None."""
    if x is None:
        return None
    part = x.stride(0) if x.dim() == 5 else 0
    *strides, row = x.stride()[-4:-1]
    *_, heads, count, width = x.shape
    fixed = tl.constexpr(width), tl.constexpr(filled(width))
    return Rows(x, heads, part, *strides, tl.constexpr(row), count, *fixed)


def filled(count: int) -> int:
    """The power of two that holds so many, and that products of matrices take."""
    return max(16, triton.next_power_of_2(count))


def flags(keep: Tensor | None) -> Tensor | None:
    """A mask as numbers that kernels read."""
    return None if keep is None else keep.contiguous().view(torch.uint8)


def precision(dtype: torch.dtype) -> str:
    """Of products in a format: float32 is multiplied in three parts unless torch may use one."""
    exact = dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest"
    return "tf32x3" if exact else "tf32"


@triton.jit
def _place(rows, part, first, row):
    """Where rows of this program's head lie, counted from the first, and which of their numbers
    exist.
    """
    head = tl.program_id(0).to(tl.int64)
    start = (head // rows.heads) * rows.sample + (head % rows.heads) * rows.head
    start += tl.cast(part, tl.int64) * rows.part + tl.cast(first, tl.int64) * rows.row
    column = tl.arange(0, rows.FILLED)
    inside = (row < rows.length - first)[:, None]
    if rows.WIDTH != rows.FILLED:
        inside = inside & (column[None, :] < rows.WIDTH)
    return rows.x + start + (row[:, None] * rows.row + column[None, :]), inside


@triton.jit
def read(rows, part, first, COUNT: tl.constexpr):
    """So many rows of this program's head, zeros where there are none."""
    place, inside = _place(rows, part, first, tl.arange(0, COUNT))
    return tl.load(place, mask=inside, other=0.0)


@triton.jit
def write(rows, part, first, numbers):
    """Likewise, in their format; what is no row is left out."""
    place, inside = _place(rows, part, first, tl.arange(0, numbers.shape[0]))
    tl.store(place, numbers.to(rows.x.dtype.element_ty), mask=inside)


@triton.jit
def pick(rows, row):
    """Any rows of this program's head, zeros where there are none."""
    place, inside = _place(rows, 0, 0, row)
    return tl.load(place, mask=inside, other=0.0)


@triton.jit
def put(rows, row, numbers):
    """Likewise, in their format; what is no row is left out."""
    place, inside = _place(rows, 0, 0, row)
    tl.store(place, numbers.to(rows.x.dtype.element_ty), mask=inside)


@triton.jit
def zeros(rows, COUNT: tl.constexpr):
    """So many rows of that width, to sum in."""
    return tl.zeros((COUNT, rows.FILLED), tl.float32)


@triton.jit
def _line(x, part, count, number):
    """Where a number for each row of this program's head lies, of ([parts], B, H, count)."""
    head = tl.cast(part, tl.int64) * tl.num_programs(0) + tl.program_id(0)
    return x + head * count + number


@triton.jit
def read_line(x, part, count, number, other):
    """Numbers for rows of this program's head, another one for what is no row."""
    return tl.load(_line(x, part, count, number), mask=number < count, other=other)


@triton.jit
def write_line(x, part, count, number, numbers):
    """Likewise."""
    tl.store(_line(x, part, count, number), numbers, mask=number < count)


@triton.jit
def tokens_of(rows, span):
    """The first token of this program's part, and the one behind its last."""
    first = tl.program_id(1) * span
    return first, tl.minimum(first + span, rows.length)


@triton.jit
def seen(keep, rows, first, COUNT: tl.constexpr):
    """Which tokens exist and count; keep is (B, L)."""
    token = first + tl.arange(0, COUNT)
    there = token < rows.length
    if keep is not None:
        sample = tl.program_id(0).to(tl.int64) // rows.heads
        there = tl.load(keep + sample * rows.length + token, mask=there, other=0) != 0
    return there
