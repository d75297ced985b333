"""A decode cache that holds every key and value, for attention that may see any token before.

Letters: B batch, H heads, L length, E head width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from subquad.nn import AttentionCore, Cache


class KeyCacheCore(AttentionCore):
    """Softmax attention that decodes with all keys and values."""

    causal: bool

    def sees(self, query: Tensor, key: Tensor) -> Tensor:
        """Whether a query's token sees a key's, by their numbers among the real tokens; every
        one before, if causal.
        """
        return key <= query

    @property
    def caches(self) -> bool:
        return self.causal

    def prefill(
        self, q: Tensor, k: Tensor, v: Tensor, *, keep: Tensor | None = None
    ) -> tuple[Tensor, Cache]:
        if keep is None:
            keep = q.new_ones(q.shape[0], q.shape[2], dtype=torch.bool)
        return self(q, k, v, query_keep=keep, key_keep=keep), {"k": k, "v": v, "keep": keep}

    def step(self, q: Tensor, k: Tensor, v: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        keys, values = (
            torch.cat([cache[name], new[:, :, None]], 2) for name, new in (("k", k), ("v", v))
        )
        keep = torch.cat([cache["keep"], cache["keep"].new_ones(len(q), 1)], 1)
        numbers = keep.long().cumsum(1) - 1
        allowed = keep & self.sees(numbers[:, -1:], numbers)
        out = F.scaled_dot_product_attention(
            q[:, :, None], keys, values, attn_mask=allowed[:, None, None]
        )
        return out[:, :, 0], {"k": keys, "v": values, "keep": keep}
