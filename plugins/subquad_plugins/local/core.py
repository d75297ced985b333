"""Local attention, and its decode cache: the newest keys that the next token may see.

Letters: B batch, H heads, L length, E head width, R keys of the cache.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from subquad.nn import AttentionCore, Cache
from subquad.plugin import Site
from subquad_plugins.local import Config
from subquad_plugins.numerics.tensors import take_rows
from subquad_plugins.numerics.windowed_attention import Window, windowed_attention


class Local(AttentionCore):
    """Softmax attention within a window.

    Args:
        config: see `Config`.
        site: causal or not.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__()
        self.window = Window(
            config.blocks, 0 if site.causal else config.blocks, config.block, site.causal
        )
        self.remembered = (config.blocks + 1) * config.block - 1

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        query_keep: Tensor | None = None,
        key_keep: Tensor | None = None,
    ) -> Tensor:
        return windowed_attention(q, k, v, self.window, keep=key_keep)

    @property
    def caches(self) -> bool:
        return self.window.causal

    def prefill(
        self, q: Tensor, k: Tensor, v: Tensor, *, keep: Tensor | None = None
    ) -> tuple[Tensor, Cache]:
        if keep is None:
            lengths = torch.full(q.shape[:1], q.shape[2], device=q.device)
        else:
            lengths = keep.sum(1)
        places = (lengths[:, None] + torch.arange(-self.remembered, 0, device=q.device)).clamp_min(
            0
        )
        newest = (take_rows(tensor, places[:, None]) for tensor in (k, v))
        return self(q, k, v, key_keep=keep), dict(
            zip(("k", "v", "position"), (*newest, lengths), strict=True)
        )

    def step(self, q: Tensor, k: Tensor, v: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        keys, values = (
            torch.cat([cache[name], new[:, :, None]], 2) for name, new in (("k", k), ("v", v))
        )
        query = cache["position"][:, None]
        key = query + torch.arange(-self.remembered, 1, device=q.device)
        allowed = (self.window.sees(query, key) & (key >= 0))[:, None, None]
        out = F.scaled_dot_product_attention(q[:, :, None], keys, values, attn_mask=allowed)
        after = {"k": keys[:, :, 1:], "v": values[:, :, 1:], "position": cache["position"] + 1}
        return out[:, :, 0], after
