"""Softmax attention on torch's fused kernels: softmax(q k^T / sqrt(E)) v.

Letters: B batch, H heads, Lq and Lk query and key length, E head width.
Reference: Vaswani et al. 2017, Eq. 1.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from subquad.errors import PluginError
from subquad.nn import AttentionCore, Cache
from subquad.plugin import Site
from subquad_plugins.softmax import Config


class Softmax(AttentionCore):
    """Scaled dot-product attention.

    Args:
        config: see `Config`.
        site: causal or not; a causal core needs as many queries as keys.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__()
        self.dropout = config.dropout
        self.causal = site.causal
        self.crossing = site.role == "cross"

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, *, query_keep: Tensor | None = None, key_keep: Tensor | None = None
    ) -> Tensor:
        if self.causal and q.shape[2] != k.shape[2]:
            raise PluginError(
                f"softmax: causal attention needs as many queries as keys, got {q.shape[2]} and {k.shape[2]}"
            )
        return F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=None if key_keep is None else self._allowed(key_keep),
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=self.causal and key_keep is None,
        )

    @property
    def caches(self) -> bool:
        return self.causal or self.crossing

    def prefill(self, q: Tensor, k: Tensor, v: Tensor, *, keep: Tensor | None = None) -> tuple[Tensor, Cache]:
        keep = q.new_ones(q.shape[0], q.shape[2], dtype=torch.bool) if keep is None else keep
        return self(q, k, v, query_keep=keep, key_keep=keep), {"k": k, "v": v, "keep": keep}

    def step(self, q: Tensor, k: Tensor, v: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        keys, values = (torch.cat([cache[name], new[:, :, None]], 2) for name, new in (("k", k), ("v", v)))
        keep = torch.cat([cache["keep"], cache["keep"].new_ones(len(q), 1)], 1)
        out = F.scaled_dot_product_attention(q[:, :, None], keys, values, attn_mask=keep[:, None, None])
        return out[:, :, 0], {"k": keys, "v": values, "keep": keep}

    def _allowed(self, key_keep: Tensor) -> Tensor:
        """Which query may see which key, (B, 1, 1 or Lq, Lk); never a row without any, whose softmax would be NaN."""
        if not self.causal:
            return (key_keep | ~key_keep.any(1, keepdim=True))[:, None, None]
        length = key_keep.shape[1]
        past = torch.ones(length, length, dtype=torch.bool, device=key_keep.device).tril()
        # A real token sees itself in any case, so this only gives padded queries something to look at.
        itself = torch.eye(length, dtype=torch.bool, device=key_keep.device)
        return (past & key_keep[:, None] | itself)[:, None]
