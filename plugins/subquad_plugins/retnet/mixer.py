"""RetNet: S_t = a S_{t-1} + k_t v_t^T, out_t = S_t^T q_t, with a = 1 - 2^(-5 - h) for head h.

Queries and keys are turned by their place among the real tokens, so that products depend on
distances; keys are divided by sqrt(E).

Letters: B batch, H heads, L length, E head width.
Reference: Sun et al. 2023, Retentive Network, Eq. 5 to 8. Departure: the three normalisations of
its Section 2.1 are factors of a token's head, which the norm of the head removes: they are left
out.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from subquad.nn import Cache, rotate
from subquad.plugin import Site
from subquad_plugins.numerics.tensors import operand, wide_type
from subquad_plugins.retnet import Config
from subquad_plugins.retnet.layer import GatedHeads, Heads


class RetNet(GatedHeads):
    """Multi-scale retention.

    Args:
        config: see `Config`.
        site: where it stands.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__(config, site)
        self.norm = nn.RMSNorm(config.expand * site.head_dim, eps=1e-6, elementwise_affine=False)

    def heads(self, x: Tensor, keep: Tensor | None, before: Cache) -> tuple[Heads, Cache]:
        if keep is None:
            real = torch.ones(x.shape[:2], dtype=torch.long, device=x.device)
        else:
            real = keep.long()
        if before is None:
            counted = real.cumsum(1)
        else:
            counted = real.cumsum(1) + before[:, None]
        q, k, v = (
            operand(self.split(project(x))) for project in (self.query, self.key, self.value)
        )
        q, k = (rotate(rows, counted - 1) for rows in (q, k))
        heads = torch.arange(self.num_heads, device=x.device, dtype=wide_type(q))
        rates = torch.log1p(-(2.0 ** (-5 - heads)))
        return Heads(q, k / math.sqrt(k.shape[-1]), v, rates[:, None].expand(q.shape[:3])), counted[
            :, -1
        ]
