"""cosFormer: weights relu(q_i) . relu(k_j) cos(pi (i - j) / 2M), by features for cosine and sine of
each position.

Positions count real tokens. M is one number for all samples, as causal outputs must not depend on
what follows. Tokens that are decoded beyond M count as number M: no weight becomes negative.

Letters: B batch, H heads, L length, E head width.
Reference: Qin et al. 2022, Eq. 10 and 12; the least normaliser of 1e-6 is that of the authors'
code.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from subquad.errors import PluginError
from subquad.nn import Cache
from subquad.plugin import Site
from subquad_plugins.cosformer import Config
from subquad_plugins.numerics.features import (
    RunningCore,
    causal_product,
    masked,
    quotient,
    with_ones,
)
from subquad_plugins.numerics.tensors import wide_type


class Cosformer(RunningCore):
    """cosFormer attention.

    Args:
        config: see `Config`.
        site: causal or not; without a `horizon` in the config its `max_len` and `context_len` give
            M.

    Raises:
        PluginError: none is known.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__(site)
        self.longest = max(site.max_len, site.context_len) or config.horizon or 0
        self.horizon = config.horizon or self.longest
        if not self.horizon:
            raise PluginError(
                "cosformer: set horizon, as the length of the longest sequence is not known"
            )

    def mix(
        self, q: Tensor, k: Tensor, v: Tensor, query_keep: Tensor | None, key_keep: Tensor | None
    ) -> Tensor:
        sums = masked(self._features(k, _numbers(k, key_keep)), key_keep).mT @ with_ones(v)
        return quotient(self._features(q, _numbers(q, query_keep)) @ sums, _least)

    def run(
        self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, cache: Cache
    ) -> tuple[Tensor, Cache]:
        before, sums = cache or (torch.zeros(len(q), 1, dtype=torch.long, device=q.device), None)
        numbers = before + _numbers(q, keep)
        keys = masked(self._features(k, numbers), keep)
        out, sums = causal_product(self._features(q, numbers), keys, with_ones(v), sums)
        return quotient(out, _least), (
            before + (q.shape[2] if keep is None else keep.sum(1, keepdim=True)),
            sums,
        )

    def _features(self, x: Tensor, numbers: Tensor) -> Tensor:
        """(B, H, L, E) with tokens' numbers from 1, (B or 1, L), to (B, H, L, 2 E)."""
        if x.shape[2] > self.longest:
            raise PluginError(
                f"cosformer: got {x.shape[2]} positions, and it was built for {self.longest}"
            )
        places = numbers.clamp_max(self.horizon).to(wide_type(x))
        angles = math.pi / 2 / self.horizon * places[:, None, :, None]
        return torch.cat([x.relu() * turn.to(x.dtype) for turn in (angles.sin(), angles.cos())], -1)


def _numbers(x: Tensor, keep: Tensor | None) -> Tensor:
    if keep is None:
        return torch.arange(1, x.shape[2] + 1, device=x.device)[None]
    return keep.long().cumsum(1)


def _least(weight: Tensor) -> Tensor:
    return weight.clamp_min(1e-6)
