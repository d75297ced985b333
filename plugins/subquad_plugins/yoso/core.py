"""YOSO-E: out = W V / |W V|, with W = (1 - angle(q, k) / pi)^tau, the probability that tau random bits agree.

The expectation of what YOSO samples, so it is quadratic in the length; nothing is sampled here.

Letters: B batch, H heads, L length of queries, M of keys, E head width.
Reference: Zeng et al. 2021, Eq. 3, 8 and 10. Departure: by default the gradient is that of W; near equal vectors, where
it has no limit, it is 0. The paper's bound replaces it by tau / 2 W.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from subquad.errors import PluginError
from subquad.nn import AttentionCore
from subquad.plugin import Site
from subquad_plugins.numerics.tensors import head_convolution, wide
from subquad_plugins.yoso import Config

_NEAREST = 1 - 1e-6
"""Largest cosine that counts: the angle's slope at 1 is infinite."""


class YOSO(AttentionCore):
    """YOSO's expectation.

    Args:
        config: see `Config`.
        site: its heads say how many convolutions there are.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__()
        self.config, width = config, config.conv_kernel
        self.conv = nn.Parameter(torch.empty(site.num_heads, width).uniform_(-1, 1) * width**-0.5) if width else None

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, *, query_keep: Tensor | None = None, key_keep: Tensor | None = None
    ) -> Tensor:
        if self.conv is not None and q.shape[2] != k.shape[2]:
            lengths = f"{q.shape[2]} and {k.shape[2]}"
            raise PluginError(f"yoso: the convolution needs as many queries as keys, got {lengths}; use conv_kernel 0")
        v = v if key_keep is None else v.masked_fill(~key_keep[:, None, :, None], 0)
        with torch.autocast(q.device.type, enabled=False):
            cosine = F.normalize(wide(q), dim=-1) @ F.normalize(wide(k), dim=-1).mT
            weights: Any = _Agree.apply(cosine, self.config.bits, self.config.gradient == "bound")
            out = F.normalize(weights @ v.to(weights.dtype), dim=-1).to(v.dtype)
        return out if self.conv is None else out + head_convolution(v, self.conv)


class _Agree(torch.autograd.Function):
    """Probability that `bits` random bits of two vectors agree, (B, H, L, M), by their cosine.

    Nothing as large is kept but the cosine and the result. The gradient is the derivative, or its lower bound.
    """

    @staticmethod
    def forward(ctx: Any, cosine: Tensor, bits: int, bound: bool) -> Tensor:
        ctx.bits, ctx.bound = bits, bound
        weights = _same(cosine, 1 if bound else _NEAREST).pow_(bits)
        ctx.save_for_backward(cosine, weights)
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        cosine, weights = ctx.saved_tensors
        grad = grads[0] * weights
        if ctx.bound:
            return grad.mul_(ctx.bits / 2), None, None
        slope = torch.addcmul(torch.ones((), dtype=cosine.dtype, device=cosine.device), cosine, cosine, value=-1)
        grad.mul_(ctx.bits / math.pi).div_(slope.sqrt_()).div_(_same(cosine, _NEAREST))
        return grad.masked_fill_(cosine.abs() >= _NEAREST, 0), None, None


def _same(cosine: Tensor, nearest: float) -> Tensor:
    """Probability that one random bit agrees; no cosine counts as more than `nearest`."""
    return cosine.clamp(-nearest, nearest).arccos_().div_(-math.pi).add_(1)
