"""MDFWA's fusion in Triton, element by element.

Bytes per call, with N = B L D numbers of s bytes: forward 3 N s, backward 4 N s; with a gate 4 N s
and 7 N s. Beside them backward writes N / TOKENS sums of 4 bytes for the bias. Computed in fp32.

Letters: B batch, L length, D width.
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

TOKENS = 32
CHANNELS = 64
"""Of a tile."""


class Fusion(torch.autograd.Function):
    """See `fusion.fuse`; branches and gate in one dtype, float32, bfloat16 or float16; the bias
    in any of these.
    """

    @staticmethod
    def forward(
        ctx: Any, spectral: Tensor, banded: Tensor, gate: Tensor | None, bias: Tensor
    ) -> Tensor:
        spectral = spectral.contiguous()
        banded = banded.contiguous()
        gate = None if gate is None else gate.contiguous()
        ctx.save_for_backward(spectral, banded, gate, bias)
        out = torch.empty_like(spectral, dtype=torch.promote_types(spectral.dtype, bias.dtype))
        launch(
            forward_kernel, _grid(out),
            spectral, banded, gate, bias, out, *_sizes(out), TOKENS=TOKENS, CHANNELS=CHANNELS,
        )  # fmt: skip
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        spectral, banded, gate, bias = ctx.saved_tensors
        grid = _grid(spectral)
        to_spectral = torch.empty_like(spectral)
        to_banded, to_gate = (
            None if gate is None else torch.empty_like(spectral) for _ in range(2)
        )
        sums = torch.empty(grid[0], spectral.shape[-1], device=spectral.device)
        launch(
            backward_kernel, grid,
            spectral, banded, gate, bias, grads[0].contiguous(), to_spectral, to_banded, to_gate,
            sums, *_sizes(spectral), TOKENS=TOKENS, CHANNELS=CHANNELS,
        )  # fmt: skip
        # Without a gate both branches have the same gradient.
        if to_banded is None:
            to_banded = to_spectral
        return to_spectral, to_banded, to_gate, sums.sum(0).to(bias.dtype)


def _sizes(x: Tensor) -> tuple[int, int]:
    return x.numel() // x.shape[-1], x.shape[-1]


def _grid(x: Tensor) -> tuple[int, int]:
    tokens, dim = _sizes(x)
    return triton.cdiv(tokens, TOKENS), triton.cdiv(dim, CHANNELS)


@triton.jit
def _total(spectral, banded, gate, bias, tokens, dim, TOKENS: tl.constexpr, CHANNELS: tl.constexpr):
    """Places of this program's tile, which of them exist, the gate, X' - X~ and what gelu takes."""
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    place = token[:, None].to(tl.int64) * dim + channel[None, :]
    inside = (token[:, None] < tokens) & (channel[None, :] < dim)
    first = tl.load(spectral + place, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(banded + place, mask=inside, other=0.0).to(tl.float32)
    if gate is not None:
        share = tl.sigmoid(tl.load(gate + place, mask=inside, other=0.0).to(tl.float32))
        total = second + share * (first - second)
    else:
        share = tl.full((TOKENS, CHANNELS), 1.0, tl.float32)
        total = first + second
    added = tl.load(bias + channel, mask=channel < dim, other=0.0).to(tl.float32)
    return place, inside, share, first - second, total + added[None, :]


@triton.jit
def forward_kernel(
    spectral, banded, gate, bias, out, tokens, dim, TOKENS: tl.constexpr, CHANNELS: tl.constexpr
):  # fmt: skip
    """gelu(total) of one tile."""
    place, inside, _, _, total = _total(spectral, banded, gate, bias, tokens, dim, TOKENS, CHANNELS)
    value = 0.5 * total * (1 + tl.erf(total * 0.7071067811865476))
    tl.store(out + place, value.to(out.dtype.element_ty), mask=inside)


@triton.jit
def backward_kernel(
    spectral, banded, gate, bias, grad, to_spectral, to_banded, to_gate, sums, tokens, dim,
    TOKENS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Gradients of one tile, and the bias's sum over its tokens."""
    place, inside, share, gap, total = _total(
        spectral, banded, gate, bias, tokens, dim, TOKENS, CHANNELS
    )
    normal = 0.5 * (1 + tl.erf(total * 0.7071067811865476))
    slope = normal + total * tl.exp(-0.5 * total * total) * 0.3989422804014327
    slope = slope * tl.load(grad + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(to_spectral + place, (share * slope).to(to_spectral.dtype.element_ty), mask=inside)
    if gate is not None:
        tl.store(
            to_banded + place, ((1 - share) * slope).to(to_banded.dtype.element_ty), mask=inside
        )
        to_g = slope * gap * share * (1 - share)
        tl.store(to_gate + place, to_g.to(to_gate.dtype.element_ty), mask=inside)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    tl.store(
        sums + tl.program_id(0).to(tl.int64) * dim + channel, tl.sum(slope, 0), mask=channel < dim
    )
