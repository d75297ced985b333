"""Positive random features, exp(w . x - |x|^2 / 2) for random w: f(q) . f(k) is exp(q . k) on
average.

Operation "performer.features": "in-place" makes and differentiates them with fewer passes than the
reference.

Letters: B batch, H heads, L length, E head width, M features.
Reference: Choromanski et al. 2021, Lemma 1 and section 2.4; 1e-4 is that of the authors' code.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from subquad.nn.kernels import Operation
from subquad_plugins.numerics.tensors import wide

Less = Literal["row", "all", "none"]


def _reference(x: Tensor, projection: Tensor, less: Less, keep: Tensor | None) -> Tensor:
    """(exp(w . x - |x|^2 / 2 - most) + 1e-4) / sqrt(M), and zeros as of `filled`, of x's number
    format; exponents are in fp32 at least.

    Args:
        x: (B, H, L, E), scaled.
        projection: w, (M, E).
        less: most is the largest w . x of a token, of all real tokens ("row", "all"), or 0.
        keep: (B, 1, L, 1) bool, True = real token.
    """
    dtype = x.dtype
    x = wide(x)
    projected = x @ projection.mT
    size = x.square().sum(-1, keepdim=True) / 2
    if less == "row":
        size = size + projected.max(-1, keepdim=True).values
    if less == "all":
        if keep is None:
            real = projected
        else:
            real = projected.masked_fill(~keep, -torch.inf)
        size = size + real.flatten(2).max(-1).values[..., None, None].nan_to_num(neginf=0.0)
    # Divided by the root of M within the exponent, which costs no pass over all features.
    shift, floor = _constants(len(projection))
    return filled((projected - (size + shift)).exp() + floor).to(dtype)


def filled(features: Tensor) -> Tensor:
    """Many features with zeros up to a width that matrix products are quick at: twice as fast as
    at E ln E = 266.
    """
    count = features.shape[-1]
    return F.pad(features, (0, -count % 16 if count > 64 else 0))


def _constants(count: int) -> tuple[float, float]:
    """What is subtracted from exponents, and added to exponentials."""
    return 0.5 * math.log(count), 1e-4 * count**-0.5


positive_features = Operation("performer.features", reference=_reference)


@positive_features.implementation("in-place", when=lambda *_: not torch.compiler.is_compiling())
def _in_place(x: Tensor, projection: Tensor, less: Less, keep: Tensor | None) -> Tensor:
    return _Features.apply(x, projection, less, keep)  # pyright: ignore[reportReturnType]


class _Features(torch.autograd.Function):
    """`_reference` with one tensor of features kept, and one made in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, projection: Tensor, less: Less, keep: Tensor | None) -> Tensor:
        ctx.count = len(projection)
        weights = filled(projection.mT).mT
        shift, ctx.floor = _constants(ctx.count)
        features = wide(x) @ weights.mT
        size = wide(x).square().sum(-1, keepdim=True) / 2 + shift
        place = None
        if less != "none":
            most, place = features[..., : ctx.count].max(-1, keepdim=True)
            if less == "all":
                if keep is not None:
                    most = most.masked_fill(~keep, -torch.inf)
                most, row = most.max(2, keepdim=True)
                place = (row * features.shape[3] + place.gather(2, row)).flatten(2)
                most = most.nan_to_num(neginf=0.0)
            size = size + most
        features.sub_(size).exp_().add_(ctx.floor)
        features[..., ctx.count :] = 0.0
        features = features.to(x.dtype)
        ctx.save_for_backward(x, weights, features, place)
        return features

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weights, features, place = ctx.saved_tensors
        with torch.autocast(x.device.type, enabled=False):
            grad = wide(grads[0])
            to_projected = torch.mul(features, grad, out=torch.empty_like(grad))
            to_projected.add_(grad, alpha=-ctx.floor)
            to_projected[..., ctx.count :] = 0.0
            total = to_projected.sum(-1, keepdim=True)
            if place is not None and place.dim() == 4:
                to_projected.scatter_add_(-1, place, -total)
            elif place is not None:
                to_projected.view(*total.shape[:2], -1).scatter_add_(-1, place, -total.sum(2))
            to_x = (to_projected @ weights).addcmul_(wide(x), total, value=-1)
            return to_x.to(x.dtype), None, None, None


def orthogonal_features(count: int, width: int, seed: int) -> Tensor:
    """(count, width): normal vectors, of which each `width` are orthogonal to each other."""
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(-(-count // width), width, width, generator=generator, device="cpu")
    rows, upper = torch.linalg.qr(normal)
    signs = upper.diagonal(dim1=-2, dim2=-1).sign()
    rows = (rows * signs[:, None]).mT.flatten(0, 1)[:count]
    return rows * torch.randn(count, width, generator=generator, device="cpu").norm(
        dim=1, keepdim=True
    )
