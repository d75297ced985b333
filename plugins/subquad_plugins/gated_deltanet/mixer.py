"""Gated DeltaNet: S_t = a_t (I - b_t k_t k_t^T) S_{t-1} + b_t k_t v_t^T, out_t = S_t^T q_t /
sqrt(E).

q, k = normed(silu(conv(x W)));  v = silu(conv(x W_v));  b = sigmoid(x W_b);  a = exp(-e^A
softplus(x W_a + d))

Letters: B batch, H heads, L length, E width of a head's keys.
Reference: Yang, Kautz and Hatamizadeh 2024, Gated Delta Networks, Eq. 10 and Section 3.4; without
decay Yang et al. 2024, Parallelizing Linear Transformers with the Delta Rule over Sequence Length.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from subquad.nn import Cache, ParameterRule
from subquad.plugin import Site
from subquad_plugins.gated_deltanet import Config
from subquad_plugins.numerics.short_conv import ShortConv
from subquad_plugins.numerics.tensors import operand, wide
from subquad_plugins.retnet.layer import GatedHeads, Heads
from subquad_plugins.s4d.layer import log_time_steps


class GatedDeltaNet(GatedHeads):
    """Linear attention with the delta rule.

    Args:
        config: see `Config`.
        site: where it stands.
    """

    def __init__(self, config: Config, site: Site):
        key_dim = max(1, round(config.key_width * site.head_dim))
        super().__init__(config, site, key_dim)
        self.norm = nn.RMSNorm(config.expand * key_dim, eps=1e-6)
        self.sizes = tuple(x.out_features for x in (self.query, self.key, self.value))
        self.conv = ShortConv(sum(self.sizes), config.conv_kernel, bias=False, silu=True)
        self.beta = nn.Linear(site.dim, site.num_heads, bias=False)
        if config.decay:
            self.decay = nn.Linear(site.dim, site.num_heads)
        else:
            self.decay = None
        if self.decay is not None:
            self.log_rate = nn.Parameter(torch.empty(site.num_heads).uniform_(1, 16).log())
            steps = log_time_steps((site.num_heads,), 1e-3, 1e-1).exp()
            with torch.no_grad():
                # softplus of this is the step
                self.decay.bias.copy_(steps + torch.log(-torch.expm1(-steps)))

    def parameter_rules(self) -> Mapping[str, ParameterRule]:
        """Time scales are no weights: without decay."""
        if self.decay is None:
            names = ()
        else:
            names = ("log_rate", "decay.bias")
        return dict.fromkeys(names, ParameterRule(weight_decay=False))

    def heads(self, x: Tensor, keep: Tensor | None, before: Cache) -> tuple[Heads, Cache]:
        joined = torch.cat([self.query(x), self.key(x), self.value(x)], -1)
        joined, past = self.conv(joined, keep, before)
        # Copies, so that what all are parts of is not kept for the gradient.
        parts = operand(joined).split(self.sizes, -1)
        q, k, v = (self.split(part.contiguous()) for part in parts)
        q, k = (F.normalize(rows, dim=-1) for rows in (q, k))
        beta = torch.sigmoid(wide(self.beta(x))).mT
        return Heads(q / math.sqrt(q.shape[-1]), k, v, self._log_decay(x), beta), past

    def _log_decay(self, x: Tensor) -> Tensor:
        """log a, (B, H, L)."""
        if self.decay is None:
            return wide(x).new_zeros(len(x), self.num_heads, x.shape[1])
        # Contiguous, as the compiler mistakes the layout of softplus' gradient.
        steps = F.softplus(wide(self.decay(x)).mT.contiguous())
        return -wide(self.log_rate).exp()[:, None] * steps
