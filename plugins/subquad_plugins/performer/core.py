"""Performer attention: f(x) = exp(w . x - |x|^2 / 2) for random w, so that f(q) . f(k) is exp(q . k) on average.

Queries and keys are scaled by E^(-1/4) first. Departures from the authors' code: a causal core subtracts no largest
exponent from those of keys, as it may belong to a later one; gradients pass through the one that is subtracted.

Operation "performer.features": "in-place" makes and differentiates them with fewer passes than the reference.

Letters: B batch, H heads, L length, E head width, M features.
Reference: Choromanski et al. 2021, Lemma 1 and section 2.4; 1e-4 and 1e-3 are those of the authors' code.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from subquad.nn import Cache
from subquad.nn.kernels import Operation
from subquad.plugin import Site
from subquad_plugins.numerics.features import FeatureCore, masked
from subquad_plugins.numerics.tensors import wide
from subquad_plugins.performer import Config

Less = Literal["row", "all", "none"]


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
        return self._features(q, "row", None)

    def key_features(self, k: Tensor, keep: Tensor | None) -> Tensor:
        return self._features(k, "none" if self.causal else "all", keep)

    def memory(self, k: Tensor, v: Tensor, *, keep: Tensor | None = None) -> Cache:
        if self.config.as_published:
            return super().memory(masked(k, keep), masked(v, keep))
        return super().memory(k, v, keep=keep)

    def _features(self, x: Tensor, less: Less, keep: Tensor | None) -> Tensor:
        """(B, H, L, M), and zeros as of `_filled`."""
        x = masked(x, keep) * x.shape[-1] ** (-0.5 if self.config.as_published else -0.25)
        projection = wide(self.projection)
        if self.config.features == "relu":
            return _filled((x @ projection.mT).relu() + 1e-3)
        return _FEATURES(x, projection, less, None if keep is None else keep[:, None, :, None])


def _plain(x: Tensor, projection: Tensor, less: Less, keep: Tensor | None) -> Tensor:
    """(exp(w . x - |x|^2 / 2 - most) + 1e-4) / sqrt(M), and zeros as of `_filled`.

    Args:
        x: (B, H, L, E), scaled.
        projection: w, (M, E).
        less: most is the largest w . x of a token, of all real tokens ("row", "all"), or 0.
        keep: (B, 1, L, 1) bool, True = real token.
    """
    projected, size = x @ projection.mT, x.square().sum(-1, keepdim=True) / 2
    if less == "row":
        size = size + projected.max(-1, keepdim=True).values
    if less == "all":
        real = projected if keep is None else projected.masked_fill(~keep, -torch.inf)
        size = size + real.flatten(2).max(-1).values[..., None, None].nan_to_num(neginf=0.0)
    # Divided by the root of M within the exponent, which costs no pass over all features.
    shift, floor = _constants(len(projection))
    return _filled((projected - (size + shift)).exp() + floor)


def _filled(features: Tensor) -> Tensor:
    """Many features with zeros up to a width that matrix products are quick at: twice as fast as at E ln E = 266."""
    count = features.shape[-1]
    return F.pad(features, (0, -count % 16 if count > 64 else 0))


def _constants(count: int) -> tuple[float, float]:
    """What is subtracted from exponents, and added to exponentials."""
    return 0.5 * math.log(count), 1e-4 * count**-0.5


_FEATURES = Operation("performer.features", reference=_plain)


@_FEATURES.implementation("in-place", when=lambda *_: not torch.compiler.is_compiling())
def _in_place(x: Tensor, projection: Tensor, less: Less, keep: Tensor | None) -> Tensor:
    return _Features.apply(x, projection, less, keep)  # pyright: ignore[reportReturnType]


class _Features(torch.autograd.Function):
    """`_plain` with one tensor of features kept, and one made in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, projection: Tensor, less: Less, keep: Tensor | None) -> Tensor:
        ctx.count, weights = len(projection), _filled(projection.mT).mT
        shift, ctx.floor = _constants(ctx.count)
        features = x @ weights.mT
        size, place = x.square().sum(-1, keepdim=True) / 2 + shift, None
        if less != "none":
            most, place = features[..., : ctx.count].max(-1, keepdim=True)
            if less == "all":
                most = most if keep is None else most.masked_fill(~keep, -torch.inf)
                most, row = most.max(2, keepdim=True)
                place = (row * features.shape[3] + place.gather(2, row)).flatten(2)
                most = most.nan_to_num(neginf=0.0)
            size = size + most
        features.sub_(size).exp_().add_(ctx.floor)
        features[..., ctx.count :] = 0.0
        ctx.save_for_backward(x, weights, features, place)
        return features

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weights, features, place = ctx.saved_tensors
        with torch.autocast(x.device.type, enabled=False):
            to_projected = torch.mul(features, grads[0], out=torch.empty_like(features))
            to_projected.add_(grads[0], alpha=-ctx.floor)
            to_projected[..., ctx.count :] = 0.0
            total = to_projected.sum(-1, keepdim=True)
            if place is not None and place.dim() == 4:
                to_projected.scatter_add_(-1, place, -total)
            elif place is not None:
                to_projected.view(*total.shape[:2], -1).scatter_add_(-1, place, -total.sum(2))
            return (to_projected @ weights).addcmul_(x, total, value=-1), None, None, None


def orthogonal_features(count: int, width: int, seed: int) -> Tensor:
    """(count, width): normal vectors, of which each `width` are orthogonal to each other."""
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(-(-count // width), width, width, generator=generator, device="cpu")
    rows, upper = torch.linalg.qr(normal)
    rows = (rows * upper.diagonal(dim1=-2, dim2=-1).sign()[:, None]).mT.flatten(0, 1)[:count]
    return rows * torch.randn(count, width, generator=generator, device="cpu").norm(dim=1, keepdim=True)
