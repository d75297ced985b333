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

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from subquad_plugins.numerics.launching import launch

CHUNK = 64
"""Tokens between two states that are kept."""

FORWARD = {"channels": 64, "tokens": 8}
BACKWARD = {"channels": 128, "tokens": 4}
"""Of a tile, as many as registers hold with up to 16 states."""

_LOG2_E = tl.constexpr(1.4426950408889634)


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
            *given, *shared, y, starts, last,
            length, channels, chunks, *gate.stride()[:2], **tile,
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
            u, dt, gate, b, c, a, bias, skip, starts,
            grads[0].contiguous(), grads[1].float().contiguous(),
            *tokens, *states, *sums,
            a.new_empty(batch, CHUNK // tile["TOKENS"], *a.shape),
            length, channels, starts.shape[1], *gate.stride()[:2], **tile,
        )  # fmt: skip
        found = [*tokens, *(x.sum(0) for x in states), *(x.sum(0) for x in sums[:3]), sums[3]]
        return tuple(x.to(dtype) for x, dtype in zip(found, ctx.dtypes, strict=True))


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
    """Where tokens of a sample lie in (L, E) and (L, N): (T, C) and (T, N / 4, 1, 4)."""
    at = row[:, None].to(tl.int64) * channels + channel[None, :]
    seen = (row < length)[:, None] & (channel < channels)[None, :]
    at_state = row[:, None, None, None].to(tl.int64) * STATES + state[None]
    return at, seen, at_state, (row < length)[:, None, None, None] & (state < STATES)[None]


@triton.jit
def _over_states(x):
    """(T, N / 4, C, 4) to (T, C)."""
    return tl.sum(tl.sum(x, 1), 2)


@triton.jit
def _stepped(steps, x, rates, b, h, token):
    """What enters the states at each token of a tile, and the states after it, (T, N / 4, C, 4)."""
    decay = tl.exp2(steps[:, None, :, None] * rates[None])
    entering = (steps * x)[:, None, :, None] * b
    carried = tl.where(token == 0, decay * h[None], 0.0)
    _, states = tl.associative_scan((decay, entering + carried), 0, _joined)
    return entering, states


@triton.jit
def forward_kernel(
    u, dt, gate, b, c, a, bias, skip, start, y, starts, last,
    length, channels, chunks, gate_sample, gate_token,
    STATES: tl.constexpr, QUARTERS: tl.constexpr, CHANNELS: tl.constexpr, TOKENS: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    """A block of channels of one sample."""
    sample = tl.program_id(1).to(tl.int64)
    channel, state, place, real = _block(channels, STATES, QUARTERS, CHANNELS)
    within = channel < channels
    size = channels.to(tl.int64) * STATES
    gate += sample * gate_sample
    tokens = sample * length
    u += tokens * channels
    dt += tokens * channels
    y += tokens * channels
    b += tokens * STATES
    c += tokens * STATES
    arange = tl.arange(0, TOKENS)
    token = arange[:, None, None, None]
    rates = _loaded(a, place, real) * _LOG2_E
    biases = _loaded(bias, channel, within)[None, :]
    skips = _loaded(skip, channel, within)[None, :]
    h = _loaded(start + sample * size, place, real)
    for first in range(0, length, TOKENS):
        if first % CHUNK == 0:  # pyright: ignore[reportOperatorIssue]
            _stored(starts + (sample * chunks + first // CHUNK) * size, place, h, real)
        row = first + arange
        at, seen, at_state, known = _tile(row, channel, state, length, channels, STATES)
        at_gate = row[:, None].to(tl.int64) * gate_token + channel[None, :]
        x = _loaded(u, at, seen)
        z = _loaded(gate, at_gate, seen)
        steps = _softplus(_loaded(dt, at, seen, float("-inf")) + biases)
        entry = _loaded(b, at_state, known)
        _, states = _stepped(steps, x, rates, entry, h, token)
        out = _over_states(states * _loaded(c, at_state, known)) + skips * x
        _stored(y, at, out * z * tl.sigmoid(z), seen)
        h = tl.sum(tl.where(token == TOKENS - 1, states, 0.0), 0)
    _stored(last + sample * size, place, h, real)


@triton.jit
def backward_kernel(
    u, dt, gate, b, c, a, bias, skip, starts, grad, carried,
    to_u, to_dt, to_gate, to_b, to_c, to_a, to_bias, to_skip, to_start, tiles,
    length, channels, chunks, gate_sample, gate_token,
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
    gate += sample * gate_sample
    tokens = sample * length
    u += tokens * channels
    dt += tokens * channels
    grad += tokens * channels
    to_u += tokens * channels
    to_dt += tokens * channels
    to_gate += tokens * channels
    b += tokens * STATES
    c += tokens * STATES
    arange = tl.arange(0, TOKENS)
    token = arange[:, None, None, None]
    rates = _loaded(a, place, real) * _LOG2_E
    biases = _loaded(bias, channel, within)[None, :]
    skips = _loaded(skip, channel, within)[None, :]
    after = _loaded(carried + sample * size, place, real)
    rate_sum = tl.zeros((QUARTERS, CHANNELS, 4), tl.float32)
    bias_sum = tl.zeros((TOKENS, CHANNELS), tl.float32)
    skip_sum = tl.zeros((TOKENS, CHANNELS), tl.float32)
    tiles += sample * (CHUNK // TOKENS) * size
    partial = (tl.program_id(0).to(tl.int64) * tl.num_programs(1) + sample) * length * STATES
    for later_chunks in range(chunks):
        chunk = chunks - 1 - later_chunks
        h = _loaded(starts + (sample * chunks + chunk) * size, place, real)
        for tile in range(CHUNK // TOKENS):
            _stored(tiles + tile * size, place, h, real)
            row = chunk * CHUNK + tile * TOKENS + arange
            at, seen, at_state, known = _tile(row, channel, state, length, channels, STATES)
            x = _loaded(u, at, seen)
            steps = _softplus(_loaded(dt, at, seen, float("-inf")) + biases)
            entry = _loaded(b, at_state, known)
            _, states = _stepped(steps, x, rates, entry, h, token)
            h = tl.sum(tl.where(token == TOKENS - 1, states, 0.0), 0)
        tl.debug_barrier()
        for later_tiles in range(CHUNK // TOKENS):
            tile = CHUNK // TOKENS - 1 - later_tiles
            row = chunk * CHUNK + tile * TOKENS + arange
            at, seen, at_state, known = _tile(row, channel, state, length, channels, STATES)
            at_gate = row[:, None].to(tl.int64) * gate_token + channel[None, :]
            x = _loaded(u, at, seen)
            z = _loaded(gate, at_gate, seen)
            to_y = _loaded(grad, at, seen)
            raw = _loaded(dt, at, seen, float("-inf")) + biases
            steps = _softplus(raw)
            entry = _loaded(b, at_state, known)
            read = _loaded(c, at_state, known)
            h = _loaded(tiles + tile * size, place, real)
            entering, states = _stepped(steps, x, rates, entry, h, token)

            open = tl.sigmoid(z)
            to_z = to_y * (_over_states(states * read) + skips * x)
            to_z *= open * (1.0 + z * (1.0 - open))
            _stored(to_gate, at, to_z, seen)
            to_y *= z * open
            skip_sum += to_y * x

            # d y / d h_t, with what later states have of h_t
            later = (row + 1 < length)[:, None] & (arange + 1 < TOKENS)[:, None]
            fading = _loaded(dt + channels, at, seen & later, float("-inf"))
            fading = tl.exp2(_softplus(fading + biases)[:, None, :, None] * rates[None])
            to_h = to_y[:, None, :, None] * read + tl.where(token == TOKENS - 1, after, 0.0)
            _, to_h = tl.associative_scan((fading, to_h), 0, _joined, reverse=True)
            after = tl.exp2(steps[:, None, :, None] * rates[None]) * to_h
            after = tl.sum(tl.where(token == 0, after, 0.0), 0)

            to_read = tl.sum(to_y[:, None, :, None] * states, 2, keep_dims=True)
            _stored(to_c + partial, at_state, to_read, known)
            to_entry = tl.sum((steps * x)[:, None, :, None] * to_h, 2, keep_dims=True)
            _stored(to_b + partial, at_state, to_entry, known)
            to_entering = _over_states(to_h * entry)
            to_x = to_entering * steps + skips * to_y
            _stored(to_u, at, to_x, seen)
            kept = to_h * (states - entering)
            rate_sum += tl.sum(kept * steps[:, None, :, None], 0)
            to_raw = to_entering * x + _over_states(kept * rates[None]) / _LOG2_E
            to_raw *= tl.sigmoid(raw)
            _stored(to_dt, at, to_raw, seen)
            bias_sum += to_raw
        tl.debug_barrier()
    _stored(to_a + sample * size, place, rate_sum, real)
    _stored(to_start + sample * size, place, after, real)
    _stored(to_bias + sample * channels, channel, tl.sum(bias_sum, 0), within)
    _stored(to_skip + sample * channels, channel, tl.sum(skip_sum, 0), within)
