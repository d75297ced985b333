"""Flash-CUR: attention through landmarks, C U+ (R V), in one autograd function of Triton kernels.

    R = softmax(s Qh K^T)      U = softmax(s Qh Kh^T)      C = softmax(s Q Kh^T)
    W = U+ (R V)               out = C W

`rows_kernel` reads K and V once and makes R V; `middle_kernel` makes U, its start, all steps of its
inverse and W of one head; `columns_kernel` reads Q once and writes the output. Backward,
`columns_back_kernel` reads Q and the output's gradient and writes that of Q, `middle_back_kernel`
goes back through the inverse, `rows_back_kernel` reads K and V and writes their gradients, and
`picked_kernel` adds the gradients of picked rows where these stand. Nothing of size L x m is kept.

Loads and stores, in N = B H L E numbers of the long side: forward 3 N and N, backward 4 N and 3 N,
each number once a pass. Beside them what is of size m: the landmarks, R V and W, and the operands
of 4 products of m x m matrices in each step of the inverse, of 11 backward, 4 bytes a number, which
the cache holds. Counted in the interpreter, tests/unit/plugins/interpreted/traffic.py.

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
Departures: the long side is cut into parts where heads do not fill the chip, and matrices of more
than 128 landmarks into tiles.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from subquad_plugins.numerics.landmark_programs import (
    BACK,
    FORWARD,
    PASSING,
    Few,
    Inverse,
    Product,
    Sizes,
    columns_back_kernel,
    columns_kernel,
    middle_back_kernel,
    middle_kernel,
    picked_kernel,
    rows_back_kernel,
    rows_kernel,
)
from subquad_plugins.numerics.launching import launch
from subquad_plugins.numerics.tiles import as_rows, filled, flags, precision

PROGRAMS = 528
"""That fill a GPU: four for each of the 132 processors of an H100 or H200."""

TILE = 128
"""Rows and columns of a product of matrices that registers hold at once."""


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
        q, k, v, q_hat, k_hat = map(_dense, (q, k, v, q_hat, k_hat))
        given = q, k, v, q_hat, k_hat, keep, q_keep, k_keep
        call = _Call(*given, scale=scale)
        batch, heads, length, _ = q.shape
        p, r, width = q_hat.shape[2], k_hat.shape[2], v.shape[3]
        parts, run = call.over(k.shape[2], "rows")
        sums = q.new_empty(parts, batch, heads, p, width, dtype=torch.float32)
        logs = torch.empty_like(sums[..., 0])
        run(rows_kernel, as_rows(sums), call.queries, call.k, call.v, call.keep, logs)
        mixed = torch.empty_like(sums[0])
        total = torch.empty_like(logs[0])
        rows = torch.empty_like(mixed, dtype=v.dtype)
        w = v.new_empty(batch, heads, r, width)
        steps = call.squares(inverse.iterations + 2)
        call.middle(
            middle_kernel, inverse, FORWARD, as_rows(sums), logs, call.queries, call.keys,
            as_rows(mixed), total, as_rows(rows), steps, call.squares(PASSING.index("to Z")),
            as_rows(w), parts=parts,
        )  # fmt: skip
        out = q.new_empty(batch, length, heads, width).transpose(1, 2)
        _, run = call.over(length, "columns")
        run(columns_kernel, call.q, call.keys, as_rows(w), as_rows(out))
        ctx.save_for_backward(*given, mixed, total, steps, w)
        ctx.inverse = inverse
        ctx.scale = scale
        ctx.set_materialize_grads(False)
        return out, rows

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        *given, mixed, total, steps, w = ctx.saved_tensors
        q, k, v, q_hat, k_hat, *_ = given
        call = _Call(*given, scale=ctx.scale)
        grad, of_rows = grads
        if grad is None:
            grad = v.new_zeros(()).expand(*q.shape[:3], v.shape[3])
        to_q = torch.empty_like(q)
        parts, run = call.over(q.shape[2], "columns_back")
        to_k_hat = w.new_empty(parts, *w.shape[:3], k.shape[3], dtype=torch.float32)
        to_w = w.new_empty(parts, *w.shape, dtype=torch.float32)
        run(
            columns_back_kernel, call.q, call.keys, as_rows(w), as_rows(_dense(grad)),
            as_rows(to_q), as_rows(to_k_hat), as_rows(to_w),
        )  # fmt: skip
        by_u_q = mixed.new_empty(*mixed.shape[:3], q.shape[3])
        by_u_k = torch.empty_like(to_k_hat[0])
        to_mixed = torch.empty_like(mixed, dtype=v.dtype)
        inner = torch.empty_like(total)
        call.middle(
            middle_back_kernel, ctx.inverse, BACK, as_rows(to_w), call.queries, call.keys,
            as_rows(mixed), as_rows(_dense(of_rows)), steps,
            call.squares(len(PASSING)), as_rows(to_mixed), inner, as_rows(by_u_q), as_rows(by_u_k),
            parts=parts,
        )  # fmt: skip
        to_k, to_v = torch.empty_like(k), torch.empty_like(v)  # where the work of U was
        parts, run = call.over(k.shape[2], "rows_back")
        to_q_hat = by_u_q.new_empty(parts, *by_u_q.shape)
        run(
            rows_back_kernel, call.k, call.v, call.keep, call.queries, as_rows(to_mixed), total,
            inner, as_rows(to_q_hat), as_rows(to_k), as_rows(to_v),
        )  # fmt: skip
        ends = []
        for whole, hat, few, sums, by_u in (
            (to_q, q_hat, call.queries, to_q_hat, by_u_q),
            (to_k, k_hat, call.keys, to_k_hat, by_u_k),
        ):
            is_picked = few.chosen is not None
            target = whole if is_picked else torch.empty_like(hat)
            launch(
                picked_kernel, (call.heads,), as_rows(target), few, as_rows(sums), as_rows(by_u),
                len(sums), COUNT=filled(few.size), ROWS=_rows(filled(few.size)),
                num_warps=call.warps,
            )  # fmt: skip
            ends.append(None if is_picked else target)
        return to_q, to_k, to_v, *ends, None, None, None, None, None


class _Call:
    """What kernels are told of one call, and how they are started."""

    def __init__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        q_hat: Tensor,
        k_hat: Tensor,
        keep: Tensor | None,
        q_keep: Tensor | None,
        k_keep: Tensor | None,
        *,
        scale: float,
    ):
        self.q, self.k, self.v = map(as_rows, (q, k, v))
        self.queries = _few(q, q_hat, q_keep)
        self.keys = _few(k, k_hat, k_keep)
        self.keep = flags(keep)
        self.scale = scale
        self.heads = len(q) * q.shape[1]
        self.is_half = q.dtype != torch.float32
        counts = filled(self.queries.size), filled(self.keys.size)
        products = precision(q.dtype)
        splits = 3 if products == "tf32x3" else 2
        self.sizes = Sizes(
            *counts, max(counts), _rows(max(counts)), min(max(counts), TILE), splits, products
        )  # fmt: skip
        self.width = max(self.k.FILLED, self.v.FILLED).value
        self.warps = 4 if max(self.sizes.M, self.width) <= 64 and self.is_half else 8

    def squares(self, count: int) -> Tensor:
        """Room for so many matrices of each head."""
        sizes = self.sizes
        shape = (count, self.heads, sizes.SPLITS, sizes.M, sizes.M)
        return self.q.x.new_empty(shape, dtype=torch.bfloat16)

    def over(self, length: int, tiles: str) -> tuple[int, Any]:
        """In how many parts so many tokens are met, and what starts a kernel for each of them."""
        tile = _TILES[tiles][(self.sizes.M > 64) + (self.sizes.M > 128)]
        larger = (self.width > 64) + 2 * (not self.is_half)
        if larger:
            tile = _Tile(max(16, tile.tokens >> larger), 8, 2)
        tiles_there = triton.cdiv(length, tile.tokens)
        of_part = triton.cdiv(tiles_there, triton.cdiv(PROGRAMS, self.heads))
        parts = triton.cdiv(tiles_there, of_part)

        def run(kernel: Any, *args: Any) -> None:
            launch(
                kernel, (self.heads, parts), *args, of_part * tile.tokens, self.scale,
                SIZES=self.sizes, TOKENS=tile.tokens, num_warps=tile.warps,
                num_stages=tile.stages,
            )  # fmt: skip

        return parts, run

    def middle(
        self,
        kernel: Any,
        inverse: Inverse,
        products: tuple[Product, ...],
        *args: Any,
        parts: int,
    ) -> None:
        """Start a kernel of the matrices of each head."""
        table = _table(products, inverse.iterations, self.q.x.device)
        launch(
            kernel, (self.heads,), *args, table, parts, len(table), inverse.iterations + 2,
            self.scale, INVERSE=inverse, SIZES=self.sizes, num_warps=self.warps,
            num_stages=1,
        )  # fmt: skip


@cache
def _table(products: tuple[Product, ...], iterations: int, device: torch.device) -> Tensor:
    """The products of all steps as numbers, (products, 10): where matrices lie, whether they are
    turned, and factors.

    U and Z of each step are kept, the others lie behind them.
    """
    steps = range(iterations)
    rows = []
    for step in reversed(steps) if products is BACK else steps:
        places = {"": 0, "U": 0, "Z": step + 1, "next Z": step + 2}
        for number, name in enumerate(PASSING):
            places[name] = iterations + 2 + number
        for target, x, y, factor, plus, weight, more, share in products:
            row = [places[target]]
            for operand in (x, y):
                row += [places[operand.rstrip("'")], operand.endswith("'")]
            rows.append([*row, factor, places[plus], weight, places[more], share])
    return torch.tensor(rows, dtype=torch.float32, device=device)


class _Tile(NamedTuple):
    """How a kernel meets tokens: so many at once, warps, and stages of its pipeline."""

    tokens: int
    warps: int
    stages: int


_TILES = {
    "rows": (_Tile(128, 4, 3), _Tile(128, 8, 3), _Tile(64, 8, 3)),
    "columns": (_Tile(128, 4, 3), _Tile(128, 8, 3), _Tile(64, 8, 3)),
    "columns_back": (_Tile(64, 4, 3), _Tile(32, 8, 3), _Tile(16, 8, 3)),
    "rows_back": (_Tile(64, 4, 3), _Tile(32, 8, 3), _Tile(32, 8, 2)),
}
"""Of bf16 heads up to 64 wide, for up to 64 landmarks, the best of four on an H200, and for more.
Wider heads and float32 have fewer tokens, so that a tile fits.
"""


def _rows(count: int) -> int:
    """Of a square matrix, as many as registers hold beside others."""
    return count if count <= TILE else 16


def _few(x: Tensor, hat: Tensor, keep: Tensor | None) -> Few:
    """Landmarks of x: rows of it, or rows of their own."""
    is_picked = hat.dim() == 3
    rows = as_rows(x if is_picked else hat)
    return Few(rows, hat.contiguous() if is_picked else None, flags(keep), hat.shape[2])


def _dense(x: Any) -> Any:
    """With the numbers of a row side by side."""
    return x if x is None or x.stride(-1) == 1 else x.contiguous()
