"""Attention to what is near, and to a few tokens that all see: blocks of queries, each with the keys around it.

Tokens are counted among the real ones of a sample, so padding may stand before, after or between them.

Letters: B batch, H heads, L length, E head width, N blocks, b queries of a block, S keys around it, G global tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from subquad.errors import PluginError
from subquad_plugins.numerics.places import among_real

_TOGETHER = 64
"""Queries that share their keys, at least: with fewer, most of the time goes into copies of keys."""


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
        return near & (key <= query) if self.causal else near


def windowed_attention(
    q: Tensor, k: Tensor, v: Tensor, window: Window, *, keep: Tensor | None = None, seen: Tensor | None = None
) -> Tensor:
    """Softmax attention within a window, in time and memory that grow with L.

    Args:
        q: (B, H, L, E).
        k: (B, H, L, E).
        v: (B, H, L, Ev).
        window: which tokens a token sees.
        keep: (B, L) bool, True = real token; None when all are real.
        seen: (B, G), numbers of tokens that all see besides, each once; a sample with fewer tokens has fewer.

    Returns:
        (B, H, L, Ev), meaningless at padding.

    Raises:
        PluginError: q and k have different lengths.
    """
    if q.shape[2] != k.shape[2]:
        raise PluginError(f"a window needs as many queries as keys, got {q.shape[2]} and {k.shape[2]}")
    return among_real(partial(_blockwise, window=window, seen=seen), q, k, v, keep)


def _blockwise(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, *, window: Window, seen: Tensor | None) -> Tensor:
    """As `windowed_attention`; each sample's real tokens are its first ones, (B,) many."""
    length, block = q.shape[2], window.block * -(-_TOGETHER // window.block)
    before, after = (min(count * window.block, length - 1) for count in (window.before, window.after))
    blocks = -(-length // block)
    rest = blocks * block - length

    def around(x: Tensor) -> Tensor:
        """(B, H, L, E) to (B, N, H, S, E)."""
        near = F.pad(x, (0, 0, before, after + rest)).unfold(2, before + block + after, block)
        return near.permute(0, 2, 1, 4, 3)

    query = torch.arange(blocks * block, device=q.device).view(blocks, block, 1)
    key = query[:, :1] + torch.arange(-before, block + after, device=q.device)
    ends = lengths[:, None, None, None]
    allowed = window.sees(query, key) & (key >= 0) & (key < ends)
    keys, values = around(k), around(v)
    if seen is not None:
        allowed = allowed & ~(key[..., None] == seen[:, None, None, None]).any(-1)
        there = (seen[:, None, None] < ends).expand(-1, *allowed.shape[1:3], -1)
        allowed = torch.cat([allowed, there], -1)
        keys, values = (torch.cat([near, _taken(x, seen, blocks)], 3) for near, x in ((keys, k), (values, v)))
    # Beyond the real tokens each query sees the first key around it: a row without any would be NaN.
    allowed = allowed | ((query >= ends) & (torch.arange(keys.shape[3], device=q.device) == 0))
    queries = F.pad(q, (0, 0, 0, rest)).unflatten(2, (blocks, block)).transpose(1, 2)
    mixed = F.scaled_dot_product_attention(
        queries.flatten(0, 1), keys.flatten(0, 1), values.flatten(0, 1), attn_mask=allowed.flatten(0, 1)[:, None]
    )
    return mixed.unflatten(0, (-1, blocks)).transpose(1, 2).flatten(2, 3)[:, :, :length]


def _taken(x: Tensor, seen: Tensor, blocks: int) -> Tensor:
    """Global tokens beside each block: (B, H, L, E) to (B, N, H, G, E)."""
    index = seen.clamp_max(x.shape[2] - 1)[:, None, :, None].expand(-1, x.shape[1], -1, x.shape[3])
    return x.gather(2, index)[:, None].expand(-1, blocks, -1, -1, -1)
