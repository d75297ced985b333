"""Linformer: out = softmax(s Q (E^T K)^T) F^T V, with learned E and F of the sequence's length.

Row i of E and F belongs to the i-th real token of a sample.

Letters: B batch, H heads, Lq and Lk query and key length, N the longest one, E head width, r packed
tokens.
Reference: Wang et al. 2020, Eq. 7; sharing: section 4.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from subquad.errors import PluginError
from subquad.nn import AttentionCore, Cache
from subquad.plugin import Site
from subquad_plugins.linformer import Config
from subquad_plugins.numerics.places import places_of
from subquad_plugins.numerics.tensors import take_rows

SPREAD = 0.02
"""Standard deviation of a new projection, that of the code of Nystromformer's authors for Long
Range Arena.
"""


class Linformer(AttentionCore):
    """Linformer attention.

    Args:
        config: see `Config`.
        site: its longest sequence is the number of rows of the projections; that of the keys where
            it sees another one.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__()
        self.crossing = site.role == "cross"
        self.longest = site.context_len if self.crossing else site.max_len
        if not self.longest:
            raise PluginError("linformer: the length of the longest sequence is not known")
        shape = (1 if config.share_heads else site.num_heads, self.longest, config.rank)
        self.keys = nn.Parameter(SPREAD * torch.randn(shape))
        if config.share_values:
            self.values = None
        else:
            self.values = nn.Parameter(SPREAD * torch.randn(shape))

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        query_keep: Tensor | None = None,
        key_keep: Tensor | None = None,
    ) -> Tensor:
        return self.read(q, self.memory(k, v, keep=key_keep))

    @property
    def caches(self) -> bool:
        return self.crossing

    def memory(self, k: Tensor, v: Tensor, *, keep: Tensor | None = None) -> Cache:
        """Packed keys and values, (B, H, r, E)."""
        return {"k": self._packed(k, self.keys, keep), "v": self._packed(v, self.values, keep)}

    def read(self, q: Tensor, memory: Cache, *, keep: Tensor | None = None) -> Tensor:
        return F.scaled_dot_product_attention(q, memory["k"], memory["v"])

    def _packed(self, x: Tensor, weights: Tensor | None, keep: Tensor | None) -> Tensor:
        weights = self.keys if weights is None else weights
        length = x.shape[2]
        if length > self.longest:
            raise PluginError(
                f"linformer: got {length} positions, and its projections were "
                f"built for {self.longest}"
            )
        if keep is not None:
            x = x.masked_fill(~keep[:, None, :, None], 0)
            x = take_rows(x, places_of(keep).order[:, None])
        return weights[:, :length].mT @ x
