"""Performer attention: f(x) = exp(w . x - |x|^2 / 2) for random w, so that f(q) . f(k) is exp(q . k) on average.

Queries and keys are scaled by E^(-1/4) first. Departures from the authors' code: a causal core subtracts no largest
exponent from those of keys, as it may belong to a later one; gradients pass through the one that is subtracted.

Letters: B batch, H heads, L length, E head width, M features.
Reference: Choromanski et al. 2021, Lemma 1 and section 2.4; 1e-4 and 1e-3 are those of the authors' code.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from subquad.nn import Cache
from subquad.plugin import Site
from subquad_plugins.numerics.features import FeatureCore, masked
from subquad_plugins.numerics.tensors import wide
from subquad_plugins.performer import Config


class Performer(FeatureCore):
    """Performer attention. `projection` (M, E) has the features' w; `draw` has the seed of the first, and calls so far.

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
        self, q: Tensor, k: Tensor, v: Tensor, *, query_keep: Tensor | None = None, key_keep: Tensor | None = None
    ) -> Tensor:
        if self.training and self.config.redraw:
            seed, calls = self.draw.tolist()
            # Not in place: a call before may still need what it had for its gradient.
            self.draw = self.draw + self.draw.new_tensor([0, 1])
            if (calls + 1) % self.config.redraw == 0:
                drawn = orthogonal_features(self.num_features, q.shape[-1], seed + 1_000_003 * (calls + 1))
                self.projection = drawn.to(self.projection)
        return super().forward(q, k, v, query_keep=query_keep, key_keep=key_keep)

    def query_features(self, q: Tensor) -> Tensor:
        projected, size = self._projected(q)
        return self._features(projected, size + projected.max(-1, keepdim=True).values)

    def key_features(self, k: Tensor, keep: Tensor | None) -> Tensor:
        projected, size = self._projected(k)
        projected = masked(projected, keep)  # so that nothing overflows at padding
        if not self.causal:
            real = projected if keep is None else projected.masked_fill(~keep[:, None, :, None], -torch.inf)
            size = size + real.flatten(2).max(-1).values[..., None, None].nan_to_num(neginf=0.0)
        return self._features(projected, size)

    def memory(self, k: Tensor, v: Tensor, *, keep: Tensor | None = None) -> Cache:
        if self.config.as_published:
            return super().memory(masked(k, keep), masked(v, keep))
        return super().memory(k, v, keep=keep)

    def _projected(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """w . x (B, H, L, M), and |x|^2 / 2 (B, H, L, 1), of x scaled."""
        x = x * x.shape[-1] ** (-0.5 if self.config.as_published else -0.25)
        return x @ wide(self.projection).mT, x.square().sum(-1, keepdim=True) / 2

    def _features(self, projected: Tensor, less: Tensor) -> Tensor:
        if self.config.features == "relu":
            return projected.relu() + 1e-3
        # Divided by the root of M within the exponent, which costs no pass over all features.
        return (projected - (less + 0.5 * math.log(self.num_features))).exp() + 1e-4 * self.num_features**-0.5


def orthogonal_features(count: int, width: int, seed: int) -> Tensor:
    """(count, width): normal vectors, of which each `width` are orthogonal to each other."""
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(-(-count // width), width, width, generator=generator, device="cpu")
    rows, upper = torch.linalg.qr(normal)
    rows = (rows * upper.diagonal(dim1=-2, dim2=-1).sign()[:, None]).mT.flatten(0, 1)[:count]
    return rows * torch.randn(count, width, generator=generator, device="cpu").norm(dim=1, keepdim=True)
