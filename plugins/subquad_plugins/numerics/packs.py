"""Pack, mix, unpack: few tokens read a sequence, and the sequence reads what they have found.

Letters: B batch, H heads, L length, D model width, E head width, r packed tokens.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from subquad.errors import PluginError
from subquad.plugin import Site


def read_real(q: Tensor, k: Tensor, v: Tensor, heads: int, keep: Tensor | None = None) -> Tensor:
    """Softmax attention by heads to real tokens alone.

    Args:
        q: (B, Lq, heads E).
        k: (B, Lk, heads E).
        v: (B, Lk, heads Ev).
        heads: H.
        keep: (B, Lk) bool, True = real token; in a sample without any, all count, as a softmax of
            none is NaN.

    Returns:
        (B, Lq, heads Ev).
    """
    q, k, v = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (q, k, v))
    if keep is None:
        mask = None
    else:
        mask = (keep | ~keep.any(1, keepdim=True))[:, None, None]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)


class Readers(nn.Module):
    """The tokens that read the sequence: learned in the first layer, then normed sums with what
    they have read.

    Args:
        rank: how many, r.
        site: where the mixer stands.
    """

    def __init__(self, rank: int, site: Site):
        super().__init__()
        first = site.layer_index == 0
        if first:
            self.start = nn.Parameter(site.dim**-0.5 * torch.randn(rank, site.dim))
        else:
            self.start = None
        if site.is_last:
            self.norm = None
        else:
            self.norm = nn.LayerNorm(site.dim)

    def forward(self, x: Tensor, carry: Tensor | None) -> Tensor:
        """(B, r, D), those of the layer below; the learned ones in the first layer."""
        if self.start is not None:
            return self.start.expand(x.shape[0], -1, -1)
        if carry is None:
            raise PluginError(
                "the packed tokens of the layer below are missing: use the same mixer in all layers"
            )
        return carry

    def after(self, readers: Tensor, read: Tensor) -> Tensor | None:
        """What the next layer is given; None in the last one."""
        if self.norm is None:
            return None
        return self.norm(readers + read)
