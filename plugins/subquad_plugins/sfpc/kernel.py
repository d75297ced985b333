"""What `fir.py` needs of a continued sequence, in Triton: it is read where it lies and never made
longer.

Per call, with N = B L D numbers of s bytes each: `correlate_continued` loads x once for each of W
taps, W N s, and writes N s. `sums_continued` loads x 16 times and y once for every 16 taps, 17 N s
ceil(W / 16), and writes (P, D, W) partial sums of 4 bytes, P at most 128. Counted in the
interpreter, tests/unit/plugins/interpreted/traffic.py. A token is loaded again by its neighbours:
where the caches answer, memory moves 2 N s, and 2 N s ceil(W / 16). Sums are made in fp32.

Letters: B batch, L length, D width, W taps.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from subquad_plugins.numerics.launching import launch

MIRRORED, MIRRORED_ZERO, REPEATED, ZEROS = (tl.constexpr(kind) for kind in range(4))
KINDS = {"neumann": 0, "dirichlet": 1, "periodic": 2, "cyclic": 2, "shift": 3}
"""How a sequence goes on beyond its ends, see `extension.source_of`."""

TOKENS = 32
CHANNELS = 64
"""Of a tile of `correlate_continued`."""

SUM_TOKENS = 16
SUM_CHANNELS = 32
SUM_TAPS = 16
"""Of a tile of `sums_continued`."""

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
        x, taps.T.contiguous(), _counts(x, keep, matrix), y,
        length, dim, tiles, before, taps.shape[1], *x.stride(),
        KIND=KINDS[matrix], COUNTED=keep is not None and matrix != "shift",
        TOKENS=TOKENS, CHANNELS=CHANNELS,
    )  # fmt: skip
    return y


def sums_continued(
    x: Tensor, y: Tensor, taps: int, before: int, matrix: str, keep: Tensor | None
) -> Tensor:
    """`lagged_sums` of `extend(x, ..)` and y, (D, W) float32; y (B, L, D), the rest as of
    `correlate_continued`.
    """
    batch, length, dim = x.shape
    tiles = triton.cdiv(length, SUM_TOKENS)
    parts = min(MOST_PARTS, batch * tiles)
    sums = torch.empty(parts, taps, dim, dtype=torch.float32, device=x.device)
    launch(
        sums_kernel, (parts, triton.cdiv(dim, SUM_CHANNELS), triton.cdiv(taps, SUM_TAPS)),
        x, y, _counts(x, keep, matrix), sums,
        length, dim, tiles, batch * tiles, before, taps, *x.stride(), *y.stride(),
        KIND=KINDS[matrix], COUNTED=keep is not None and matrix != "shift",
        TOKENS=SUM_TOKENS, CHANNELS=SUM_CHANNELS, TAPS=SUM_TAPS,
    )  # fmt: skip
    return sums.sum(0).T


def _counts(x: Tensor, keep: Tensor | None, matrix: str) -> Tensor:
    """Real tokens of each sample, (B,), where they count; else any tensor."""
    return x if keep is None or matrix == "shift" else keep.sum(1, dtype=torch.int32)


@triton.jit
def _modulo(value, period):
    """The remainder that is not negative."""
    rest = value % period
    return tl.where(rest < 0, rest + period, rest).to(tl.int64)


@triton.jit
def _source(position, n, KIND: tl.constexpr):
    """`extension.source_of`: the token that stands at a position, and its sign."""
    weight = tl.full(position.shape, 1.0, tl.float32)
    if KIND == MIRRORED:
        place = _modulo(position, 2 * n)
        return tl.minimum(place, 2 * n - 1 - place), weight
    if KIND == REPEATED:
        return _modulo(position, n), weight
    if KIND == MIRRORED_ZERO:
        place = _modulo(position, 2 * n + 2)
        mirrored = place > n
        source = tl.where(mirrored, 2 * n - place, place)
        sign = tl.where(mirrored, -weight, weight)
        sign = tl.where((place == n) | (place == 2 * n + 1), 0.0, sign)
        return tl.minimum(tl.maximum(source, 0), n - 1), sign
    inside = (position >= 0) & (position < n)
    return tl.where(inside, position, 0).to(tl.int64), tl.where(inside, weight, 0.0)


@triton.jit
def correlate_kernel(
    x, taps, counts, y,
    length, dim, tiles, before, num_taps, x_sample, x_token, x_channel,
    KIND: tl.constexpr, COUNTED: tl.constexpr, TOKENS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """One tile of tokens and channels of one sample."""
    sample = (tl.program_id(0) // tiles).to(tl.int64)
    token = (tl.program_id(0) % tiles) * TOKENS + tl.arange(0, TOKENS)
    channel = (tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)).to(tl.int64)
    n = tl.maximum(tl.load(counts + sample), 1) if COUNTED else length
    total = tl.zeros((TOKENS, CHANNELS), tl.float32)
    for w in range(num_taps):
        source, sign = _source(token + w - before, n, KIND)
        place = x + sample * x_sample + source[:, None] * x_token + channel[None, :] * x_channel
        value = (
            tl.load(place, mask=channel[None, :] < dim, other=0.0).to(tl.float32) * sign[:, None]
        )
        total += value * tl.load(taps + w * dim + channel, mask=channel < dim, other=0.0)[None, :]
    inside = (token[:, None] < length) & (channel[None, :] < dim)
    tl.store(
        y + (sample * length + token[:, None]) * dim + channel[None, :],
        total.to(y.dtype.element_ty),
        mask=inside,
    )


@triton.jit
def sums_kernel(
    x, y, counts, sums,
    length, dim, tiles, all_tiles, before, num_taps,
    x_sample, x_token, x_channel, y_sample, y_token, y_channel,
    KIND: tl.constexpr, COUNTED: tl.constexpr, TOKENS: tl.constexpr, CHANNELS: tl.constexpr,
    TAPS: tl.constexpr,
):  # fmt: skip
    """A block of channels and taps, over every P-th tile of tokens."""
    channel = (tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)).to(tl.int64)
    tap = tl.program_id(2) * TAPS + tl.arange(0, TAPS)
    total = tl.zeros((TAPS, CHANNELS), tl.float32)
    for tile in range(tl.program_id(0), all_tiles, tl.num_programs(0)):
        sample = (tile // tiles).to(tl.int64)
        token = (tile % tiles) * TOKENS + tl.arange(0, TOKENS)
        n = tl.maximum(tl.load(counts + sample), 1) if COUNTED else length
        source, sign = _source(token[:, None] + tap[None, :] - before, n, KIND)
        place = (
            x
            + sample * x_sample
            + source[:, :, None] * x_token
            + channel[None, None, :] * x_channel
        )
        value = (
            tl.load(place, mask=channel[None, None, :] < dim, other=0.0).to(tl.float32)
            * sign[:, :, None]
        )
        other = (
            y
            + sample * y_sample
            + token[:, None].to(tl.int64) * y_token
            + channel[None, :] * y_channel
        )
        inside = (token[:, None] < length) & (channel[None, :] < dim)
        weight = tl.load(other, mask=inside, other=0.0).to(tl.float32)
        total += tl.sum(value * weight[:, None, :], 0)
    place = (
        sums + (tl.program_id(0).to(tl.int64) * num_taps + tap[:, None]) * dim + channel[None, :]
    )
    tl.store(place, total, mask=(tap[:, None] < num_taps) & (channel[None, :] < dim))
