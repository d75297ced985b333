"""YOSO-E: out = W V / |W V|, with W = (1 - angle(q, k) / pi)^tau, the probability that tau random
bits agree.

The expectation of what YOSO samples, so its time is quadratic in the length; nothing is sampled
here.

Letters: B batch, H heads, L length of queries, M of keys, E head width.
Reference: Zeng et al. 2021, Eq. 3, 8 and 10. Departure: by default the gradient is that of W; near
equal vectors, where it has no limit, it is 0. The paper's bound replaces it by tau / 2 W.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
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
_CACHED = 2**17
"""Weights that are held at a time on a CPU."""


class YOSO(AttentionCore):
    """YOSO's expectation.

    Args:
        config: see `Config`.
        site: its heads say how many convolutions there are.
    """

    def __init__(self, config: Config, site: Site):
        super().__init__()
        self.config = config
        width = config.conv_kernel
        if width:
            self.conv = nn.Parameter(
                torch.empty(site.num_heads, width).uniform_(-1, 1) * width**-0.5
            )
        else:
            self.conv = None

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
            lengths = f"{q.shape[2]} and {k.shape[2]}"
            raise PluginError(
                "yoso: the convolution needs as many queries as keys, got "
                f"{lengths}; use conv_kernel 0"
            )
        if key_keep is not None:
            v = v.masked_fill(~key_keep[:, None, :, None], 0)
        with torch.autocast(q.device.type, enabled=False):
            unit = (F.normalize(wide(x), dim=-1).flatten(0, 1) for x in (q, k))
            how = self.config.bits, self.config.gradient == "bound"
            mixed: Any = _Mix.apply(*unit, wide(v).flatten(0, 1), *how)
            out = F.normalize(mixed.view(*q.shape[:3], -1), dim=-1).to(v.dtype)
        if self.conv is None:
            return out
        return out + head_convolution(v, self.conv)


class _Mix(torch.autograd.Function):
    """W V of unit vectors q, k (N, L, E), (N, M, E), a block of W at a time, which backward
    computes anew.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bits: int, bound: bool) -> Tensor:
        ctx.save_for_backward(q, k, v)
        ctx.bits = bits
        ctx.bound = bound
        ctx.nearest = 1 if bound else _NEAREST
        out = v.new_empty(*q.shape[:2], v.shape[2])
        for n, rows in _blocks(q, k):
            out[n, rows] = _same(q[n, rows] @ k[n].mT, ctx.nearest).pow_(bits) @ v[n]
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        q, k, v = ctx.saved_tensors
        to_q = torch.empty_like(q)
        to_k = torch.zeros_like(k)
        to_v = torch.zeros_like(v)
        for n, rows in _blocks(q, k):
            grad = grads[0][n, rows]
            cosine = q[n, rows] @ k[n].mT
            same = _same(cosine, ctx.nearest)
            weights = same.pow(ctx.bits)
            to_v[n] += weights.mT @ grad
            slope = (grad @ v[n].mT).mul_(weights)
            if ctx.bound:
                slope *= ctx.bits / 2
            else:
                slope.mul_(ctx.bits / math.pi).div_(same).div_((1 - cosine * cosine).sqrt_())
                slope.masked_fill_(cosine.abs() >= _NEAREST, 0)
            to_q[n, rows] = slope @ k[n]
            to_k[n] += slope.mT @ q[n, rows]
        return to_q, to_k, to_v, None, None


def _same(cosine: Tensor, nearest: float) -> Tensor:
    """Probability that one random bit of two vectors agrees; no cosine counts as more than
    `nearest`.
    """
    return cosine.clamp(-nearest, nearest).arccos_().div_(-math.pi).add_(1)


def _blocks(q: Tensor, k: Tensor) -> Iterator[tuple[slice, slice]]:
    """Samples' heads and rows of W that stay in a core's cache together."""
    count, length, _ = q.shape
    keys = k.shape[1]
    if torch.compiler.is_compiling() or not q.numel():
        yield slice(None), slice(None)
        return
    if q.device.type == "cpu":
        most = _CACHED
    else:
        most = 64 * _CACHED
    together = max(1, most // (length * keys))
    rows = max(1, most // (together * keys))
    for n, row in itertools.product(range(0, count, together), range(0, length, rows)):
        yield slice(n, n + together), slice(row, row + rows)
