"""Linear attention: f(x) = elu(x) + 1.

Letters: B batch, H heads, L length, E head width.
Reference: Katharopoulos et al. 2020, Eq. 7; the 1e-6 in the normaliser is that of the authors'
code.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from subquad.plugin import Site
from subquad_plugins.linear import Config
from subquad_plugins.numerics.features import FeatureCore


class Linear(FeatureCore):
    """Linear attention.

    Args:
        config: see `Config`.
        site: causal or not.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__(site)
        self.as_published = config.as_published

    def query_features(self, q: Tensor) -> Tensor:
        # Not elu(x) + 1, which has no digits left below x = -17 in fp32.
        # `threshold` keeps q for its gradient, as `clamp_max` does; `relu` would keep its result.
        features = F.threshold(q, 0.0, 0.0) + q.clamp_max(0.0).exp()
        if self.as_published:
            return features * q.shape[2] ** -0.25
        return features

    def key_features(self, k: Tensor, keep: Tensor | None) -> Tensor:
        return self.query_features(k)

    def normaliser(self, weight: Tensor) -> Tensor:
        if self.as_published:
            return weight.new_ones(())
        return weight + 1e-6

    @property
    def caches(self) -> bool:
        return super().caches and not self.as_published
