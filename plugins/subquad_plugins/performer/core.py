"""Performer attention: f(x) = exp(w . x - |x|^2 / 2) for random w, so that f(q) . f(k) is exp(q .
k) on average.

Queries and keys are scaled by E^(-1/4) first. Departures from the authors' code: a causal core
subtracts no largest exponent from those of keys, as it may belong to a later one; gradients pass
through the one that is subtracted.

Letters: B batch, H heads, L length, E head width, M features.
Reference: Choromanski et al. 2021, Lemma 1 and section 2.4; 1e-3 is that of the authors' code.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from subquad.nn import Cache
from subquad.plugin import Site
from subquad_plugins.numerics.features import FeatureCore, masked
from subquad_plugins.numerics.positive_features import (
    Less,
    filled,
    orthogonal_features,
    positive_features,
)
from subquad_plugins.numerics.tensors import wide
from subquad_plugins.performer import Config


class Performer(FeatureCore):
    """Performer attention. `projection` (M, E) has the features' w; `draw` has the seed of the
    first, and calls so far.

    Args:
        config: see `Config`.
        site: causal or not; its seed and layer fix what is drawn.
    """

    projection: Tensor
    draw: Tensor

    def __init__(self, config: Config, site: Site):
        super().__init__(site)
        self.config = config
        width = site.head_dim
        self.num_features = config.num_features or max(1, int(width * math.log(width)))
        seed = 1009 * site.seed + site.layer_index
        self.register_buffer("projection", orthogonal_features(self.num_features, width, seed))
        self.register_buffer("draw", torch.tensor([seed, 0]) if config.redraw else None)

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        query_keep: Tensor | None = None,
        key_keep: Tensor | None = None,
    ) -> Tensor:
        if self.training and self.config.redraw:
            seed, calls = self.draw.tolist()
            # Not in place: a call before may still need what it had for its gradient.
            self.draw = self.draw + self.draw.new_tensor([0, 1])
            if (calls + 1) % self.config.redraw == 0:
                drawn = orthogonal_features(
                    self.num_features, q.shape[-1], seed + 1_000_003 * (calls + 1)
                )
                self.projection = drawn.to(self.projection)
        return super().forward(q, k, v, query_keep=query_keep, key_keep=key_keep)

    def query_features(self, q: Tensor) -> Tensor:
        return self._features(q, "row", None)

    def key_features(self, k: Tensor, keep: Tensor | None) -> Tensor:
        return self._features(k, "none" if self.causal else "all", keep)

    def memory(self, k: Tensor, v: Tensor, *, keep: Tensor | None = None) -> Cache:
        if self.config.as_published:
            return super().memory(masked(k, keep), masked(v, keep))
        return super().memory(k, v, keep=keep)

    def _features(self, x: Tensor, less: Less, keep: Tensor | None) -> Tensor:
        """(B, H, L, M), and zeros as of `filled`."""
        exponent = -0.5 if self.config.as_published else -0.25
        x = masked(x, keep) * x.shape[-1] ** exponent
        projection = wide(self.projection)
        if self.config.features == "relu":
            return filled((x @ projection.to(x.dtype).mT).relu() + 1e-3)
        return positive_features(
            x, projection, less, None if keep is None else keep[:, None, :, None]
        )
