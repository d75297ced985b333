"""Every band of a sequence with a weight of its own, in Triton: a launch for each level of the
transform and one for each level back. Each filters, thins out (or fills up), continues the sequence
beyond its ends and makes both bands, or joins them.

Not all levels in one launch: each level's approximations are continued anew beyond the ends, from
the other end too, where another program makes them. Loads of a level, with N = B K D coefficients
of each band, filters of F taps and tiles of T = 8 pairs, 4 above 32 taps: (2 T + F - 2) / T N, and
2 N written, either way; 2.75 N with 8 taps. For the weights' gradient the transform loads N more.
Counted in the interpreter, tests/unit/plugins/interpreted/traffic.py. Only neighbours load a number
again, at the same time: where the caches answer them, memory moves 4 N. Tokens and details have the
given format, approximations are fp32, as sums are.

Letters: B batch, L length, D width, F filter length, J levels, K coefficients of a level.
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
from subquad_plugins.numerics.row_kernel import rows_of, source
from subquad_plugins.wavelet.dwt import coefficients_of, window
from subquad_plugins.wavelet.filters import FilterBank, Taps

CHANNELS = 256
PAIRS = 8
LONG = 32
"""Of a tile: channels, and pairs of tokens; half of them where filters have more taps than that."""

Size = tuple[int, Tensor | None]
"""Tokens of a level, and of each sample, (B,), if they differ."""


class Mix(torch.autograd.Function):
    """See `dwt.wavelet_mix`; x in float32, bfloat16 or float16, weights in float32."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weights: Tensor, bank: FilterBank, mode: str, include_approx: bool,
        lengths: Tensor | None,
    ) -> Tensor:  # fmt: skip
        sizes: list[Size] = [(x.shape[1], lengths)]
        for _ in range(len(weights) - include_approx):
            length, lengths = (
                None if tokens is None else coefficients_of(tokens, len(bank), mode)
                for tokens in sizes[-1]
            )
            sizes.append((length, lengths))
        back = bank.rec_low, bank.rec_high
        ctx.given = bank, mode, include_approx, sizes
        taps = bank.dec_low[::-1], bank.dec_high[::-1]
        bands, _ = _analysed(x, taps, mode, mode, include_approx, sizes, None)
        ctx.save_for_backward(weights, *bands)
        return _rebuilt(bands, weights, back, mode, "", sizes)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Transposed, the way back is a transform and the transform a way back."""
        weights, *bands = ctx.saved_tensors
        bank, mode, include_approx, sizes = ctx.given
        if not ctx.needs_input_grad[1]:
            bands = None
        taps = bank.rec_low, bank.rec_high
        beyond = "even" if mode == "periodization" else "zero"
        bands, to_weights = _analysed(grads[0], taps, mode, beyond, include_approx, sizes, bands)
        taps = bank.dec_low[::-1], bank.dec_high[::-1]
        to_x = _rebuilt(bands, weights, taps, mode, "" if mode == "zero" else mode, sizes)
        return to_x, to_weights, None, None, None, None


def _analysed(
    x: Tensor, taps: tuple[Taps, Taps], mode: str, beyond: str, include_approx: bool,
    sizes: list[Size], others: list[Tensor] | None,
) -> tuple[list[Tensor], Tensor | None]:  # fmt: skip
    """Details, the finest first, and the approximation if included; sums of products with others.

    Args:
        mode: of the transform, which places the filters.
        beyond: how x goes on, of `continuation.source`.
    """
    batch, _, dim = x.shape
    width = len(taps[0])
    pairs = PAIRS if width <= LONG else PAIRS // 2
    low: Tensor | None = x.contiguous()
    bands = []
    products = []
    for number, ((length, lengths), (count, counts)) in enumerate(
        zip(sizes[:-1], sizes[1:], strict=True)
    ):
        last = number == len(sizes) - 2
        given = low
        low = x.new_empty(batch, count, dim, dtype=torch.float32)
        if last and not include_approx:
            low = None
        high = x.new_empty(batch, count, dim)
        tiles = triton.cdiv(count, pairs)
        grid = (batch * tiles, triton.cdiv(dim, CHANNELS))
        products.append(x.new_empty(grid, dtype=torch.float32))
        launch(
            analysis_kernel, grid,
            given, low, high, others and others[number], products[-1], lengths, counts,
            length, count, dim, tiles,
            BEFORE=window(length, width, mode)[1], LOW=taps[0], HIGH=taps[1], WIDTH=width,
            MODE=beyond, PAIRS=pairs, CHANNELS=CHANNELS,
        )  # fmt: skip
        bands.append(high)
    if low is not None:
        bands.append(low)
        products.append(low * others[-1] if others else low)
    return bands, others and torch.stack([product.sum() for product in products])


def _rebuilt(
    bands: list[Tensor], weights: Tensor, taps: tuple[Taps, Taps], mode: str, fold: str,
    sizes: list[Size],
) -> Tensor:  # fmt: skip
    """The weighted bands made one.

    Args:
        fold: how what stands beyond the ends came from within, if it is to be brought back there.
    """
    batch, _, dim = bands[0].shape
    width = len(taps[0])
    pairs = PAIRS if width <= LONG else PAIRS // 2
    low = None
    if len(bands) == len(sizes):
        low = bands[-1] * weights[-1]
    for number in reversed(range(len(sizes) - 1)):
        (length, lengths), (count, counts) = sizes[number : number + 2]
        dtype = torch.float32 if number else bands[0].dtype
        out = bands[0].new_empty(batch, length, dim, dtype=dtype)
        tiles = triton.cdiv(length, 2 * pairs)
        launch(
            synthesis_kernel, (batch * tiles, triton.cdiv(dim, CHANNELS)),
            bands[number], low, out, weights, number, lengths, counts, length, count, dim, tiles,
            BEFORE=window(length, width, mode)[1], LOW=taps[0], HIGH=taps[1], WIDTH=width,
            MODE="periodic" if mode == "periodization" and not fold else "zero", FOLD=fold,
            PAIRS=pairs, CHANNELS=CHANNELS,
        )  # fmt: skip
        low = out
    assert low is not None
    return low


@triton.jit
def _count(counts, sample, most):
    """Tokens of a sample."""
    return most if counts is None else tl.load(counts + sample).to(tl.int32)


@triton.jit(do_not_specialize=("length", "count", "tiles"))
def analysis_kernel(
    x, low, high, other, sums, lengths, counts, length, count, dim, tiles,
    BEFORE: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, WIDTH: tl.constexpr,
    MODE: tl.constexpr, PAIRS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """PAIRS coefficients of both bands, sum_i taps_i x~_{2k+i-BEFORE}, zero behind a sample's own."""
    sample = (tl.program_id(0) // tiles).to(tl.int64)
    start = (tl.program_id(0) % tiles) * PAIRS
    channel = (tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)).to(tl.int64)
    n = _count(lengths, sample, length)
    m = _count(counts, sample, count)
    rows = rows_of(
        x + sample * length * dim + channel, 2 * start - BEFORE, n, dim, channel < dim, MODE,
        2 * PAIRS + WIDTH - 2,
    )  # fmt: skip
    place = (sample * count + start) * dim + channel
    product = tl.zeros((CHANNELS,), tl.float32)
    for k in tl.static_range(PAIRS):
        slow = tl.zeros((CHANNELS,), tl.float32)
        fast = tl.zeros((CHANNELS,), tl.float32)
        for i in tl.static_range(WIDTH):
            slow += rows[2 * k + i] * LOW[i]
            fast += rows[2 * k + i] * HIGH[i]
        inside = channel < tl.where(start + k < count, dim, 0)
        fast = tl.where(start + k < m, fast, 0.0)
        tl.store(high + place + k * dim, fast.to(high.dtype.element_ty), mask=inside)
        if low is not None:
            tl.store(low + place + k * dim, tl.where(start + k < m, slow, 0.0), mask=inside)
        if other is not None:
            theirs = tl.load(other + place + k * dim, mask=inside, other=0.0)
            product += fast * theirs.to(tl.float32)
    if other is not None:
        tl.store(sums + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1), tl.sum(product))


@triton.jit
def _filled(
    lows, highs, weight, place: tl.constexpr,
    LOW: tl.constexpr, HIGH: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The token at a place: from the coefficients up to half of it, by every second tap."""
    at: tl.constexpr = place // 2
    odd: tl.constexpr = place % 2
    total = highs[at] * HIGH[odd]
    for i in tl.static_range(1, WIDTH // 2):
        total += highs[at - i] * HIGH[2 * i + odd]
    total *= weight
    if len(lows) > 0:
        for i in tl.static_range(WIDTH // 2):
            total += lows[at - i] * LOW[2 * i + odd]
    return total


@triton.jit
def _bands(low, high, start, m, dim, exists, MODE: tl.constexpr, ROWS: tl.constexpr):
    """Coefficients of both, none of an approximation that was dropped."""
    highs = rows_of(high, start, m, dim, exists, MODE, ROWS)
    lows = ()
    if low is not None:
        lows = rows_of(low, start, m, dim, exists, MODE, ROWS)
    return lows, highs


@triton.jit
def _folded(
    totals, low, high, weight, start, n, m, dim, exists,
    BEFORE: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, WIDTH: tl.constexpr,
    MODE: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """The tile, with what stands beyond the sequence's ends added to the tokens it came from."""
    left = (BEFORE + 1) // 2
    right = (n + BEFORE) // 2
    for number in range(left + m + WIDTH // 2 - 1 - right):
        pair = tl.where(number < left, number, number - left + right)
        lows, highs = _bands(
            low, high, pair - WIDTH // 2 + 1, m, dim, exists, "zero", WIDTH // 2
        )
        for odd in tl.static_range(2):
            value = _filled(lows, highs, weight, WIDTH - 2 + odd, LOW, HIGH, WIDTH)
            p = tl.cast(2 * pair + odd - BEFORE, tl.int64)
            index, scale, first, last = source(MODE, p, n)
            outside = tl.where((p < 0) | (p >= n), 1, 0)
            grown = ()
            for i in tl.static_range(TOKENS):
                share = tl.where(index == start + i, scale, 0) + tl.where(start + i == 0, first, 0)
                share = (share + tl.where(start + i == n - 1, last, 0)) * outside
                grown += (totals[i] + value * share,)
            totals = grown
    return totals


@triton.jit(do_not_specialize=("number", "length", "count", "tiles"))
def synthesis_kernel(
    high, low, out, weights, number, lengths, counts, length, count, dim, tiles,
    BEFORE: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, WIDTH: tl.constexpr,
    MODE: tl.constexpr, FOLD: tl.constexpr, PAIRS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """2 PAIRS tokens, sum_k taps_{t+BEFORE-2k} of both bands."""
    sample = (tl.program_id(0) // tiles).to(tl.int64)
    start = (tl.program_id(0) % tiles) * PAIRS
    channel = (tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)).to(tl.int64)
    exists = channel < dim
    n = _count(lengths, sample, length)
    m = _count(counts, sample, count)
    weight = tl.load(weights + number)
    high += sample * count * dim + channel
    if low is not None:
        low += sample * count * dim + channel
    earlier: tl.constexpr = (WIDTH - 1 - BEFORE) // 2
    shift: tl.constexpr = BEFORE + 2 * earlier
    rows: tl.constexpr = (2 * PAIRS + 1 + shift) // 2
    lows, highs = _bands(low, high, start - earlier, m, dim, exists, MODE, rows)
    totals = ()
    for i in tl.static_range(2 * PAIRS):
        totals += (_filled(lows, highs, weight, i + shift, LOW, HIGH, WIDTH),)
    if FOLD != "":
        if (2 * start < WIDTH) | (2 * start + 2 * PAIRS > n - WIDTH):
            totals = _folded(
                totals, low, high, weight, 2 * start, n, m, dim, exists,
                BEFORE, LOW, HIGH, WIDTH, FOLD, 2 * PAIRS,
            )  # fmt: skip
    place = out + (sample * length + 2 * start) * dim + channel
    for i in tl.static_range(2 * PAIRS):
        inside = channel < tl.where(2 * start + i < length, dim, 0)
        value = tl.where(2 * start + i < n, totals[i], 0.0)
        tl.store(place + i * dim, value.to(out.dtype.element_ty), mask=inside)
