"""What `fir.py` needs of a continued sequence, in Triton: it is read where it lies and never made
longer.

Each channel has taps of its own, so there is no product of matrices to share: a thread holds
neighbouring tokens of its channels and multiplies them with a block of taps. Loads per call, with N
= B L D numbers: `correlate_continued` meets W taps in b equal blocks of V, 12 at most, and loads
(15 + b V) / 16 N of x and b V / 16 N taps, 2.1 N and 1.1 N with 17 taps; it writes N.
`sums_continued` loads N of x and N of y for every 32 taps, and V - 1 tokens more of each run; it
writes (P, W, D) partial sums of 4 bytes. Counted in the interpreter,
tests/unit/plugins/interpreted/traffic.py. Only neighbours load a number again, at the same time:
where the caches answer them, memory moves 2 N for each. Sums are made in fp32, always in the same
order.

Letters: B batch, L length, D width, W taps, P parts.
"""

# To pyright a range of constants is never walked through, a tuple in a loop has one type, and a
# reduction may return a constant.
# pyright: reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from subquad_plugins.numerics.launching import launch
from subquad_plugins.numerics.row_kernel import rows_of
from subquad_plugins.sfpc.extension import MODES

CHANNELS = 256
"""Of a program."""

TOKENS = 16
MOST_TAPS = 12
"""Of a tile of `correlate_continued`, and taps that it meets at a time."""

SUM_TOKENS = 8
SUM_TAPS = 32
"""Tokens that `sums_continued` meets at a time, and taps of a program at most."""

MOST_PARTS = 128
"""Partial sums: enough programs to fill a GPU where there are few channels and taps."""


def correlate_continued(
    x: Tensor, taps: Tensor, before: int, matrix: str, keep: Tensor | None
) -> Tensor:
    """`correlate` of `extend(x, ..)`, without the longer sequence.

    Args:
        x: (B, L, D), float32, bfloat16 or float16, any strides.
        taps: (D, W) float32.
        before: tokens in front of a token's own that its output depends on.
        matrix: neumann, dirichlet, periodic, cyclic or shift.
        keep: (B, L) bool; only the number of real tokens counts.

    Returns:
        (B, L, D), dtype of x.
    """
    batch, length, dim = x.shape
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    tiles = triton.cdiv(length, TOKENS)
    launch(
        correlate_kernel, (batch * tiles, triton.cdiv(dim, CHANNELS)),
        x, taps.T.contiguous(), _counts(keep, matrix), y,
        length, dim, tiles, before, taps.shape[1], *x.stride(),
        MODE=MODES[matrix], TOKENS=TOKENS, CHANNELS=CHANNELS, TAPS=_even(taps.shape[1], MOST_TAPS),
    )  # fmt: skip
    return y


def sums_continued(
    x: Tensor, y: Tensor, taps: int, before: int, matrix: str, keep: Tensor | None
) -> Tensor:
    """`lagged_sums` of `extend(x, ..)` and y, (D, W) float32; y (B, L, D), the rest as of
    `correlate_continued`.
    """
    batch, length, dim = x.shape
    block = _even(taps, SUM_TAPS)
    run = SUM_TOKENS * triton.cdiv(min(length, triton.cdiv(batch * length, MOST_PARTS)), SUM_TOKENS)
    runs = triton.cdiv(length, run)
    parts = min(MOST_PARTS, batch * runs)
    sums = torch.empty(parts, taps, dim, dtype=torch.float32, device=x.device)
    launch(
        sums_kernel, (parts, triton.cdiv(dim, CHANNELS), triton.cdiv(taps, block)),
        x, y, _counts(keep, matrix), sums,
        length, dim, runs, batch * runs, run, before, taps, *x.stride(), *y.stride(),
        MODE=MODES[matrix], TOKENS=SUM_TOKENS, CHANNELS=CHANNELS, TAPS=block,
    )  # fmt: skip
    return sums.sum(0).T


def _even(taps: int, most: int) -> int:
    """Size of as few equal blocks of taps as there can be."""
    return triton.cdiv(taps, triton.cdiv(taps, most))


def _counts(keep: Tensor | None, matrix: str) -> Tensor | None:
    """Real tokens of each sample, (B,), where they count."""
    return None if keep is None or matrix == "shift" else keep.sum(1, dtype=torch.int32)


@triton.jit
def correlate_kernel(
    x, taps, counts, y,
    length, dim, tiles, before, num_taps, x_sample, x_token, x_channel,
    MODE: tl.constexpr, TOKENS: tl.constexpr, CHANNELS: tl.constexpr,
    TAPS: tl.constexpr,
):  # fmt: skip
    """One tile of tokens and channels of one sample: TAPS more tokens of x for every TAPS taps."""
    sample = (tl.program_id(0) // tiles).to(tl.int64)
    token = (tl.program_id(0) % tiles) * TOKENS
    channel = (tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)).to(tl.int64)
    exists = channel < dim
    n = length if counts is None else tl.maximum(tl.load(counts + sample), 1)
    x += sample * x_sample + channel * x_channel
    rows = rows_of(x, token - before, n, x_token, exists, MODE, TOKENS - 1)
    totals = (tl.zeros((CHANNELS,), tl.float32),) * TOKENS
    for tap in range(0, num_taps, TAPS):
        fresh = token - before + tap + TOKENS - 1
        rows += rows_of(x, fresh, n, x_token, exists, MODE, TAPS)
        factors = rows_of(taps + channel, tap, num_taps, dim, exists, "zero", TAPS)
        grown = ()
        for i in tl.static_range(TOKENS):
            total = totals[i]
            for w in tl.static_range(TAPS):
                total += rows[i + w] * factors[w]
            grown += (total,)
        totals = grown
        rows = rows[TAPS:]
    y += (sample * length + token) * dim + channel
    for i in tl.static_range(TOKENS):
        inside = channel < tl.where(token + i < length, dim, 0)
        tl.store(y + i * dim, totals[i].to(y.dtype.element_ty), mask=inside)


@triton.jit
def sums_kernel(
    x, y, counts, sums,
    length, dim, runs, all_runs, run, before, num_taps,
    x_sample, x_token, x_channel, y_sample, y_token, y_channel,
    MODE: tl.constexpr, TOKENS: tl.constexpr, CHANNELS: tl.constexpr,
    TAPS: tl.constexpr,
):  # fmt: skip
    """A block of channels and taps, over every P-th run of tokens: TOKENS more at a time."""
    channel = (tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)).to(tl.int64)
    exists = channel < dim
    tap = tl.program_id(2) * TAPS
    totals = (tl.zeros((CHANNELS,), tl.float32),) * TAPS
    for index in range(tl.program_id(0), all_runs, tl.num_programs(0)):
        sample = (index // runs).to(tl.int64)
        start = (index % runs) * run
        n = length if counts is None else tl.maximum(tl.load(counts + sample), 1)
        given = x + sample * x_sample + channel * x_channel
        taken = y + sample * y_sample + channel * y_channel
        rows = rows_of(given, start + tap - before, n, x_token, exists, MODE, TAPS - 1)
        for token in range(start, tl.minimum(start + run, length), TOKENS):
            fresh = token + tap - before + TAPS - 1
            rows += rows_of(given, fresh, n, x_token, exists, MODE, TOKENS)
            weights = rows_of(taken, token, length, y_token, exists, "zero", TOKENS)
            grown = ()
            for w in tl.static_range(TAPS):
                total = totals[w]
                for i in tl.static_range(TOKENS):
                    total += rows[i + w] * weights[i]
                grown += (total,)
            totals = grown
            rows = rows[TOKENS:]
    place = sums + (tl.program_id(0).to(tl.int64) * num_taps + tap) * dim + channel
    for w in tl.static_range(TAPS):
        inside = channel < tl.where(tap + w < num_taps, dim, 0)
        tl.store(place + w * dim, totals[w], mask=inside)
