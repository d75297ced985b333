"""Longformer attention: local tokens by window and global keys, global tokens by dense attention of
their own.

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
from subquad_plugins.numerics.windowed_attention import Window, windowed_attention
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

    def global_tokens(self, k: Tensor) -> Tensor | None:
        """(B, G), the global tokens' numbers among the real ones; None where there are none."""
        count = min(self.num_global, k.shape[-2])
        if count:
            return torch.arange(count, device=k.device).expand(k.shape[0], -1)
        return None

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        query_keep: Tensor | None = None,
        key_keep: Tensor | None = None,
    ) -> Tensor:
        return windowed_attention(q, k, v, self.window, keep=key_keep, by_all=self.global_tokens(k))


class Longformer(AttentionMixer):
    """`query`, `key`, `value` and `out` are those of local tokens; `everywhere` has those of global
    tokens.

    Args:
        config: see `Config`.
        site: where it stands.
    """

    core: LocalToGlobal

    def __init__(self, config: Config, site: Site):
        super().__init__(LocalToGlobal(config), site, config)
        self.everywhere: AttentionMixer | None = None
        if config.num_global:
            across = replace(site, role="cross")
            self.everywhere = AttentionMixer(Softmax(SoftmaxConfig(), across), across, config)
            self.everywhere.register_module("out", nn.Identity())

    def forward(
        self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None, **other: Any
    ) -> MixerOutput:
        mixed = super().forward(x, keep=keep, **other)
        chosen = self.core.global_tokens(x)
        if chosen is None or self.everywhere is None:
            return mixed
        there = torch.ones_like(chosen, dtype=torch.bool)
        if keep is not None:
            there = chosen < keep.sum(1, keepdim=True)
            chosen = places_of(keep).order.gather(1, chosen)
        places = chosen[..., None].expand(-1, -1, x.shape[-1])
        rows = self.everywhere(x.gather(1, places), keep=there, context=x, context_keep=keep).out
        rows = torch.where(there[..., None], self.out(rows), mixed.out.gather(1, places))
        return MixerOutput(mixed.out.scatter(1, places, rows))
