"""The selective scan in Triton: states stay in registers, and are made again in the backward pass.

A program has some channels of one sample, and takes tokens by tiles. Of the states, memory sees
those at the start of each chunk alone, and in the backward pass those at the start of each tile of
the chunk. In numbers of u: the forward pass loads 3 and stores 1, the backward pass loads 7, three
of them again, and stores 3. b, c and their gradients are for each block of channels.

Letters: B batch, L length, E channels, N state width, T tokens of a tile, C channels of a block.
States are (N / 4, C, 4): so each thread has a channel, and sums over N take two exchanges.
Reference: Gu and Dao 2023, Mamba, Section 3.3.2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from subquad_plugins.numerics.launching import launch
from subquad_plugins.numerics.tiles import LOG2_E

CHUNK = 64
"""Tokens between two states that are kept."""

FORWARD = {"channels": 64, "tokens": 8}
BACKWARD = {"channels": 128, "tokens": 4}
"""Of a tile, as many as registers hold with up to 16 states."""


class Scan(torch.autograd.Function):
    """As `selective_scan`, with all arguments given; y (B, L, E) in u's format, and the last
    state (B, E, N) in fp32.

    u, dt and gate are float32, bfloat16 or float16 (B, L, E), b and c (B, L, N), a (E, N), bias and
    skip (E,), start (B, E, N).
    """

    @staticmethod
    def forward(
        ctx: Any,
        u: Tensor,
        dt: Tensor,
        gate: Tensor,
        b: Tensor,
        c: Tensor,
        a: Tensor,
        bias: Tensor,
        skip: Tensor,
        start: Tensor,
    ) -> tuple[Tensor, Tensor]:
        given = (u.contiguous(), dt.contiguous(), gate)
        shared = [x.float().contiguous() for x in (b, c, a, bias, skip, start)]
        batch, length, channels = u.shape
        chunks = triton.cdiv(length, CHUNK)
        tile = _sizes(a, **FORWARD)
        y = torch.empty_like(given[0])
        starts, last = (
            torch.empty(batch, count, *a.shape, dtype=torch.float32, device=u.device)
            for count in (chunks, 1)
        )
        launch(
            forward_kernel, (triton.cdiv(channels, tile["CHANNELS"]), batch),
            _Given(*given, *shared[:-1], *gate.stride()[:2]), shared[-1], y, starts, last,
            length, channels, chunks, **tile,
        )  # fmt: skip
        ctx.save_for_backward(*given, *shared[:-1], starts)
        ctx.dtypes = [x.dtype for x in (u, dt, gate, b, c, a, bias, skip, start)]
        return y, last[:, 0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        u, dt, gate, b, c, a, bias, skip, starts = ctx.saved_tensors
        batch, length, channels = u.shape
        tile = _sizes(a, **BACKWARD)
        blocks = triton.cdiv(channels, tile["CHANNELS"])
        tokens = [torch.empty_like(x) for x in (u, dt, u)]
        states = [b.new_empty(blocks, *b.shape) for _ in range(2)]
        sums = [a.new_empty(batch, *x.shape) for x in (a, bias, skip, a)]
        launch(
            backward_kernel, (blocks, batch),
            _Given(u, dt, gate, b, c, a, bias, skip, *gate.stride()[:2]), starts,
            grads[0].contiguous(), grads[1].float().contiguous(), _To(*tokens, *states), *sums,
            a.new_empty(batch, CHUNK // tile["TOKENS"], *a.shape),
            length, channels, starts.shape[1], **tile,
        )  # fmt: skip
        found = [*tokens, *(x.sum(0) for x in states), *(x.sum(0) for x in sums[:3]), sums[3]]
        return tuple(x.to(dtype) for x, dtype in zip(found, ctx.dtypes, strict=True))


class _Given(NamedTuple):
    """What both passes read, and the gate's strides."""

    u: Tensor
    dt: Tensor
    gate: Tensor
    b: Tensor
    c: Tensor
    a: Tensor
    bias: Tensor
    skip: Tensor
    gate_sample: Any
    gate_token: Any


class _To(NamedTuple):
    """Gradients by tokens."""

    u: Tensor
    dt: Tensor
    gate: Tensor
    b: Tensor
    c: Tensor


def _sizes(a: Tensor, channels: int, tokens: int) -> dict[str, int]:
    quarters = max(1, triton.next_power_of_2(a.shape[1]) // 4)
    return {
        "STATES": a.shape[1],
        "QUARTERS": quarters,
        "CHANNELS": channels,
        "TOKENS": max(1, min(tokens, 4 * tokens // quarters)),
        "CHUNK": CHUNK,
        "num_warps": 8,
    }


@triton.jit
def _softplus(x):
    # log(1 + e), with all digits of a small e
    e = tl.exp(-tl.abs(x))
    rounded = (1.0 + e) - 1.0
    log = tl.log(1.0 + e) * (e / tl.where(rounded == 0.0, 1.0, rounded))
    return tl.maximum(x, 0.0) + tl.where(rounded == 0.0, e, log)


@triton.jit
def _joined(decay, state, later_decay, later_state):
    return decay * later_decay, state * later_decay + later_state


@triton.jit
def _loaded(x, place, inside, other=0.0):
    return tl.load(x + place, mask=inside, other=other).to(tl.float32)


@triton.jit
def _stored(x, place, value, inside):
    tl.store(x + place, value.to(x.dtype.element_ty), mask=inside)


@triton.jit
def _block(channels, STATES: tl.constexpr, QUARTERS: tl.constexpr, CHANNELS: tl.constexpr):
    """Channels and numbers of states, and where states of a sample lie, (N / 4, C, 4)."""
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    state = 4 * tl.arange(0, QUARTERS)[:, None, None] + tl.arange(0, 4)[None, None, :]
    real = (channel < channels)[None, :, None] & (state < STATES)
    return channel, state, channel[None, :, None] * STATES + state, real


@triton.jit
def _tile(row, channel, state, length, channels, STATES: tl.constexpr):
    """Where tokens of this program's sample lie in (B, L, E) and (B, L, N), and which exist: (T, C)
    and (T, N / 4, 1, 4).
    """
    token = tl.program_id(1).to(tl.int64) * length + row
    at = token[:, None] * channels + channel[None, :]
    seen = (row < length)[:, None] & (channel < channels)[None, :]
    at_state = token[:, None, None, None] * STATES + state[None]
    return at, seen, at_state, (row < length)[:, None, None, None] & (state < STATES)[None]


@triton.jit
def _of_channels(given, channel, place, channels, real):
    """A log2(e), the bias and D."""
    within = channel < channels
    biases = _loaded(given.bias, channel, within)[None, :]
    return (
        _loaded(given.a, place, real) * LOG2_E,
        biases,
        _loaded(given.skip, channel, within)[None, :],
    )


@triton.jit
def _gate(given, row, channel, seen):
    start = given.gate + tl.program_id(1).to(tl.int64) * given.gate_sample
    return _loaded(start, row[:, None].to(tl.int64) * given.gate_token + channel[None, :], seen)


@triton.jit
def _over_states(x):
    """(T, N / 4, C, 4) to (T, C)."""
    return tl.sum(tl.sum(x, 1), 2)


@triton.jit
def _one(states, token, number):
    """Those of one token of a tile."""
    return tl.sum(tl.where(token == number, states, 0.0), 0)


@triton.jit
def _stepped(given, tile, rates, biases, h, token):
    """u, the steps before and behind softplus and b at each token of a tile; what enters the states
    there, and these after it, (T, N / 4, C, 4).
    """
    at, seen, at_state, known = tile
    x = _loaded(given.u, at, seen)
    raw = _loaded(given.dt, at, seen, float("-inf")) + biases
    steps = _softplus(raw)
    entry = _loaded(given.b, at_state, known)
    decay = tl.exp2(steps[:, None, :, None] * rates[None])
    entering = (steps * x)[:, None, :, None] * entry
    carried = tl.where(token == 0, decay * h[None], 0.0)
    _, states = tl.associative_scan((decay, entering + carried), 0, _joined)
    return x, raw, steps, entry, entering, states


@triton.jit
def forward_kernel(
    given, start, y, starts, last, length, channels, chunks,
    STATES: tl.constexpr, QUARTERS: tl.constexpr, CHANNELS: tl.constexpr, TOKENS: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    """A block of channels of one sample."""
    sample = tl.program_id(1).to(tl.int64)
    channel, state, place, real = _block(channels, STATES, QUARTERS, CHANNELS)
    size = channels.to(tl.int64) * STATES
    arange = tl.arange(0, TOKENS)
    token = arange[:, None, None, None]
    rates, biases, skips = _of_channels(given, channel, place, channels, real)
    h = _loaded(start + sample * size, place, real)
    for first in range(0, length, TOKENS):
        if first % CHUNK == 0:  # pyright: ignore[reportOperatorIssue]
            _stored(starts + (sample * chunks + first // CHUNK) * size, place, h, real)
        row = first + arange
        tile = _tile(row, channel, state, length, channels, STATES)
        x, _, _, _, _, states = _stepped(given, tile, rates, biases, h, token)
        z = _gate(given, row, channel, tile[1])
        out = _over_states(states * _loaded(given.c, tile[2], tile[3])) + skips * x
        _stored(y, tile[0], out * z * tl.sigmoid(z), tile[1])
        h = _one(states, token, TOKENS - 1)
    _stored(last + sample * size, place, h, real)


@triton.jit
def backward_kernel(
    given, starts, grad, carried, to, to_a, to_bias, to_skip, to_start, tiles,
    length, channels, chunks,
    STATES: tl.constexpr, QUARTERS: tl.constexpr, CHANNELS: tl.constexpr, TOKENS: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    """A block of channels of one sample: chunks from the last one on, and of each first the states
    at the start of its tiles.
    """
    sample = tl.program_id(1).to(tl.int64)
    channel, state, place, real = _block(channels, STATES, QUARTERS, CHANNELS)
    within = channel < channels
    size = channels.to(tl.int64) * STATES
    arange = tl.arange(0, TOKENS)
    token = arange[:, None, None, None]
    rates, biases, skips = _of_channels(given, channel, place, channels, real)
    after = _loaded(carried + sample * size, place, real)
    rate_sum = tl.zeros((QUARTERS, CHANNELS, 4), tl.float32)
    bias_sum = tl.zeros((TOKENS, CHANNELS), tl.float32)
    skip_sum = tl.zeros((TOKENS, CHANNELS), tl.float32)
    tiles += sample * (CHUNK // TOKENS) * size
    partial = tl.program_id(0).to(tl.int64) * tl.num_programs(1) * length * STATES
    for later_chunks in range(chunks):
        chunk = chunks - 1 - later_chunks
        h = _loaded(starts + (sample * chunks + chunk) * size, place, real)
        for number in range(CHUNK // TOKENS):
            _stored(tiles + number * size, place, h, real)
            row = chunk * CHUNK + number * TOKENS + arange
            tile = _tile(row, channel, state, length, channels, STATES)
            _, _, _, _, _, states = _stepped(given, tile, rates, biases, h, token)
            h = _one(states, token, TOKENS - 1)
        tl.debug_barrier()
        for later_tiles in range(CHUNK // TOKENS):
            number = CHUNK // TOKENS - 1 - later_tiles
            row = chunk * CHUNK + number * TOKENS + arange
            tile = _tile(row, channel, state, length, channels, STATES)
            at, seen, at_state, known = tile
            h = _loaded(tiles + number * size, place, real)
            x, raw, steps, entry, entering, states = _stepped(given, tile, rates, biases, h, token)
            z = _gate(given, row, channel, seen)
            to_y = _loaded(grad, at, seen)
            read = _loaded(given.c, at_state, known)

            open = tl.sigmoid(z)
            to_z = to_y * (_over_states(states * read) + skips * x)
            to_z *= open * (1.0 + z * (1.0 - open))
            _stored(to.gate, at, to_z, seen)
            to_y *= z * open
            skip_sum += to_y * x

            # d y / d h_t, with what later states have of h_t
            later = (row + 1 < length)[:, None] & (arange + 1 < TOKENS)[:, None]
            fading = _loaded(given.dt + channels, at, seen & later, float("-inf"))
            fading = tl.exp2(_softplus(fading + biases)[:, None, :, None] * rates[None])
            to_h = to_y[:, None, :, None] * read + tl.where(token == TOKENS - 1, after, 0.0)
            _, to_h = tl.associative_scan((fading, to_h), 0, _joined, reverse=True)
            after = _one(tl.exp2(steps[:, None, :, None] * rates[None]) * to_h, token, 0)

            to_read = tl.sum(to_y[:, None, :, None] * states, 2, keep_dims=True)
            _stored(to.c + partial, at_state, to_read, known)
            to_entry = tl.sum((steps * x)[:, None, :, None] * to_h, 2, keep_dims=True)
            _stored(to.b + partial, at_state, to_entry, known)
            to_entering = _over_states(to_h * entry)
            _stored(to.u, at, to_entering * steps + skips * to_y, seen)
            kept = to_h * (states - entering)
            rate_sum += tl.sum(kept * steps[:, None, :, None], 0)
            to_raw = to_entering * x + _over_states(kept * rates[None]) / LOG2_E
            to_raw *= tl.sigmoid(raw)
            _stored(to.dt, at, to_raw, seen)
            bias_sum += to_raw
        tl.debug_barrier()
    _stored(to_a + sample * size, place, rate_sum, real)
    _stored(to_start + sample * size, place, after, real)
    _stored(to_bias + sample * channels, channel, tl.sum(bias_sum, 0), within)
    _stored(to_skip + sample * channels, channel, tl.sum(skip_sum, 0), within)
