"""Nystrom attention: out = C U+ (R V) with means of segments as landmarks, and a convolution of the
values.

Letters: B batch, H heads, Lq and Lk query and key length, E head width, r landmarks.
Reference: Xiong et al. 2021, Eq. 7, 11 and Algorithm 1. Departures from the authors' code, unless
`as_published`: segments of a sample's own length; the inverse starts from each matrix's own norm,
as in the paper, and not from the largest of the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from subquad.errors import PluginError
from subquad.nn import AttentionCore
from subquad.plugin import Site
from subquad_plugins.numerics.landmarks import landmark_attention, segment_means
from subquad_plugins.numerics.pinv import Start, pseudo_inverse
from subquad_plugins.numerics.tensors import head_convolution
from subquad_plugins.nystrom import Config


class Nystrom(AttentionCore):
    """Nystrom attention.

    Args:
        config: see `Config`.
        site: where it stands.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__()
        self.count = config.num_landmarks
        self.published = config.as_published
        width = config.conv_kernel
        start: Start = "batch" if config.as_published else "rows"
        self.invert: Callable[[Tensor], Tensor] = partial(
            pseudo_inverse, iterations=config.iterations, start=start
        )
        self.conv: nn.Conv2d | None = (
            None  # for its weights alone, by name and shape those of the authors
        )
        if width:
            heads = site.num_heads
            self.conv = nn.Conv2d(heads, heads, (width, 1), groups=heads, bias=False)

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        query_keep: Tensor | None = None,
        key_keep: Tensor | None = None,
    ) -> Tensor:
        if self.conv is not None and q.shape[2] != k.shape[2]:
            raise PluginError(
                "nystrom: the convolution needs as many queries as keys, "
                f"got {q.shape[2]} and {k.shape[2]}; use conv_kernel 0"
            )
        q_hat, q_there = self._landmarks(q, query_keep)
        k_hat, k_there = self._landmarks(k, key_keep)
        out, _ = landmark_attention(
            q,
            k,
            v,
            q_hat,
            k_hat,
            self.invert,
            key_keep=key_keep,
            q_hat_keep=q_there,
            k_hat_keep=k_there,
        )
        if self.conv is None:
            return out
        if key_keep is not None:
            v = v.masked_fill(~key_keep[:, None, :, None], 0)
        return out + head_convolution(v, self.conv.weight[:, 0, :, 0])

    def _landmarks(self, x: Tensor, keep: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Means of segments (B, H, r, E), and which are there."""
        if not self.published:
            return segment_means(x, self.count, keep)
        if keep is not None:
            x = x.masked_fill(~keep[:, None, :, None], 0)
        return segment_means(F.pad(x, (0, 0, 0, -x.shape[2] % self.count)), self.count)
