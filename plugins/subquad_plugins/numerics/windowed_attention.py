"""Attention to what is near, and to a few tokens that all see: blocks of queries, each with the
keys around it.

Tokens are counted among the real ones of a sample, so padding may stand before, after or between
them.

Letters: B batch, H heads, L length, E head width, N blocks, b queries of a block, S keys around it,
G global tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from subquad_plugins.numerics.parts import attention_in_parts
from subquad_plugins.numerics.places import among_real, take_tokens

_TOGETHER = 64
"""Queries that share their keys, at least: with fewer, most of the time goes into copies of
keys.
"""


@dataclass(frozen=True)
class Window:
    """Which tokens a token sees: those of its block and of the blocks near it.

    Attributes:
        before: blocks before its own.
        after: blocks after its own.
        block: tokens of a block; 1 makes it a sliding window.
        causal: no later token.
    """

    before: int
    after: int
    block: int = 1
    causal: bool = False

    def sees(self, query: Tensor, key: Tensor) -> Tensor:
        """Whether a query's token sees a key's, by their numbers among the real tokens."""
        apart = query // self.block - key // self.block
        near = (apart <= self.before) & (apart >= -self.after)
        if self.causal:
            return near & (key <= query)
        return near


def windowed_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    window: Window,
    *,
    keep: Tensor | None = None,
    by_all: Tensor | None = None,
) -> Tensor:
    """Softmax attention within a window, in time and memory that grow with L.

    Args:
        q: (B, H, L, E).
        k: (B, H, L, E).
        v: (B, H, L, Ev).
        window: which tokens a token sees.
        keep: (B, L) bool, True = real token; None when all are real.
        by_all: (B, G), numbers of tokens that all see besides, each once; a sample with fewer
            tokens has fewer.

    Returns:
        (B, H, L, Ev), meaningless at padding.

    Raises:
        PluginError: q and k have different lengths.
    """
    return among_real("a window", partial(_blockwise, window=window, by_all=by_all), q, k, v, keep)


def _blockwise(
    q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, *, window: Window, by_all: Tensor | None
) -> Tensor:
    """As `windowed_attention`; each sample's real tokens are its first ones, (B,) many."""
    length = q.shape[2]
    block = window.block * -(-_TOGETHER // window.block)
    before, after = (
        min(count * window.block, length - 1) for count in (window.before, window.after)
    )
    q, k, v = (F.pad(x.transpose(1, 2), (0, 0, 0, 0, 0, -length % block)) for x in (q, k, v))
    query = torch.arange(q.shape[1], device=q.device).view(-1, block, 1)
    key = query[:, :1] + torch.arange(-before, block + after, device=q.device)
    ends = lengths[:, None, None, None]
    allowed = window.sees(query, key) & (key >= 0) & (key < ends)
    others = []
    if by_all is not None:
        is_by_all = (key[..., None] == by_all[:, None, None, None]).any(-1)
        allowed = allowed & ~is_by_all
        others = [take_tokens(x, by_all.clamp_max(length - 1)).transpose(1, 2) for x in (k, v)]
        others.append(by_all[:, None, None] < ends)
    # Beyond the real tokens each query sees itself: a row without any key would be NaN.
    allowed = allowed | ((query >= ends) & (key == query))
    near = [around(x, before, block, after) for x in (k, v)]
    out = attention_in_parts(q, *near, allowed.flatten(0, 1)[:, None], *others)
    return out[:, :length].transpose(1, 2)


def around(x: Tensor, before: int, block: int, after: int) -> Tensor:
    """Tokens of each block and those around it, (B, L, H, E) to (B N, H, S, E), not copied for each
    block.

    Before a sequence and after it there are tokens of others, or zeros.
    """
    return _Around.apply(x.flatten(0, 1), before, block, after)  # pyright: ignore[reportReturnType]


class _Around(torch.autograd.Function):
    """Backwards a few sums of whole blocks, where that of `unfold` adds number by number."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, before: int, block: int, after: int) -> Tensor:
        ctx.before = before
        ctx.block = block
        ctx.length = x.shape[0]
        return F.pad(x, (0, 0, 0, 0, before, after)).unfold(0, before + block + after, block).mT

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        pieces = grads[0].transpose(1, 2).split(ctx.block, 1)
        count = pieces[0].shape[0]
        total = pieces[0].new_zeros(count + len(pieces) - 1, *pieces[0].shape[1:])
        for start, piece in enumerate(pieces):
            total[start : start + count, : piece.shape[1]] += piece
        return total.flatten(0, 1)[ctx.before : ctx.before + ctx.length], None, None, None
