"""Longformer attention: local tokens by window and global keys, global tokens by dense attention of their own.

Letters: B batch, L length, D model width, H heads, E head width, G global tokens.
Reference: Beltagy et al. 2020, section 3.1; the split is that of the authors' code.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from subquad.nn import AttentionCore, AttentionMixer, MixerOutput
from subquad.plugin import Site
from subquad_plugins.longformer import Config
from subquad_plugins.numerics.places import places_of
from subquad_plugins.numerics.windows import Window, windowed_attention
from subquad_plugins.softmax import Config as SoftmaxConfig
from subquad_plugins.softmax.core import Softmax


class LocalToGlobal(AttentionCore):
    """Every token attends to its window and to the global tokens.

    Args:
        config: see `Config`.
    """

    def __init__(self, config: Config):
        super().__init__()
        half = (config.window or 512) // 2
        self.window = Window(half, half)
        self.num_global = config.num_global

    def seen(self, k: Tensor) -> Tensor | None:
        """(B, G), the global tokens' numbers among the real ones; None where there are none."""
        count = min(self.num_global, k.shape[-2])
        return torch.arange(count, device=k.device).expand(k.shape[0], -1) if count else None

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, *, query_keep: Tensor | None = None, key_keep: Tensor | None = None
    ) -> Tensor:
        return windowed_attention(q, k, v, self.window, keep=key_keep, seen=self.seen(k))


class Longformer(AttentionMixer):
    """`query`, `key`, `value` and `out` are those of local tokens; `everywhere` has those of global tokens.

    Args:
        config: see `Config`.
        site: where it stands.
    """

    core: LocalToGlobal

    def __init__(self, config: Config, site: Site):
        super().__init__(LocalToGlobal(config), site, config)
        self.everywhere: AttentionMixer | None = None
        if config.num_global:
            dense = Softmax(SoftmaxConfig(), replace(site, role="cross"))
            self.everywhere = AttentionMixer(dense, site, config)
            self.everywhere.register_module("out", nn.Identity())

    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None, **other: Any) -> MixerOutput:
        mixed, seen = super().forward(x, keep=keep, **other), self.core.seen(x)
        if seen is None or self.everywhere is None:
            return mixed
        there = torch.ones_like(seen, dtype=torch.bool)
        if keep is not None:
            there = seen < keep.sum(1, keepdim=True)
            seen = places_of(keep).order.gather(1, seen)
        places = seen[..., None].expand(-1, -1, x.shape[-1])
        rows = self.everywhere(x.gather(1, places), keep=there, context=x, context_keep=keep).out
        rows = torch.where(there[..., None], self.out(rows), mixed.out.gather(1, places))
        return MixerOutput(mixed.out.scatter(1, places, rows))
