"""A short causal convolution of each channel by itself, with a decode cache: what many mixers do
before they mix.

Operation "short_conv": "rows" is for channels that come first in memory, where every tap is one
pass over long rows.

Letters: B batch, L length, D channels, K taps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from subquad.nn.kernels import Operation
from subquad_plugins.numerics import fla
from subquad_plugins.numerics.tensors import channel_pieces, wide
from subquad_plugins.sfpc.fir import fir
from subquad_plugins.wavelet.atrous import last_tokens


class ShortConv(nn.Module):
    """y_t = bias + sum_j weight_{K-1-j} x_{t-j}, zeros before the start and at padding.

    Args:
        dim: D.
        taps: K >= 2.
        bias: whether there is one.
        silu: whether silu(y) comes out.
    """

    def __init__(self, dim: int, taps: int, *, bias: bool = True, silu: bool = False):
        super().__init__()
        self.silu = silu
        self.weight = nn.Parameter(torch.empty(dim, taps).uniform_(-1, 1) * taps**-0.5)
        if bias:
            self.bias = nn.Parameter(torch.empty(dim).uniform_(-1, 1) * taps**-0.5)
        else:
            self.bias = None

    def forward(
        self, x: Tensor, keep: Tensor | None = None, past: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Convolve.

        Args:
            x: (B, L, D).
            keep: (B, L) bool, True = real token.
            past: the tokens before these, (B, K - 1, D): the second result of the last call; zeros
                where None.

        Returns:
            (B, L, D), in x's number format, and the last K - 1 real tokens of each sample where
            real ones come first.
        """
        before = self.weight.shape[1] - 1
        if keep is not None:
            x = x.masked_fill(~keep[..., None], 0.0)
        if keep is None:
            lengths = torch.full(x.shape[:1], x.shape[1], device=x.device)
        else:
            lengths = keep.sum(1)
        with torch.autocast(x.device.type, enabled=False):
            if past is None:
                return self._convolved(x), last_tokens(x, lengths, before)
            window = torch.cat([past, x.to(past.dtype)], 1)
            return self._convolved(window)[:, before:], last_tokens(
                window, lengths + before, before
            )

    def _convolved(self, x: Tensor) -> Tensor:
        bias = None if self.bias is None else wide(self.bias)
        return _SHORT(x, wide(self.weight), bias, self.silu)


def _reference(x: Tensor, weight: Tensor, bias: Tensor | None, silu: bool) -> Tensor:
    y = fir(x, weight.flip(1), "shift")
    if bias is not None:
        y = y + bias.to(y.dtype)
    if silu:
        return F.silu(y)
    return y


_SHORT = Operation("short_conv", reference=_reference)
fla.offered(_SHORT, fla.convolution, fla.convolves)


@_SHORT.implementation(
    "rows",
    dtypes=(torch.float32, torch.float64),
    when=lambda x, *_: x.mT.is_contiguous() and not torch.compiler.is_compiling(),
)
def _rows(x: Tensor, weight: Tensor, bias: Tensor | None, silu: bool) -> Tensor:
    y: Any = _Rows.apply(x.mT, weight, weight.new_zeros(weight.shape[0]) if bias is None else bias)
    if silu:
        return F.silu(y.mT)
    return y.mT


class _Rows(torch.autograd.Function):
    """(B, D, L), contiguous: tap by tap, a few channels at a time."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        y = torch.empty_like(x)
        for part in channel_pieces(x):
            torch.addcmul(bias[part, None], x[:, part], weight[part, -1:], out=y[:, part])
            for lag, tap in _earlier(weight[part], x):
                y[:, part, lag:].addcmul_(x[:, part, :-lag], tap)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight = ctx.saved_tensors
        grad = grads[0].contiguous()
        to_x = torch.empty_like(x)
        to_weight = torch.zeros_like(weight)
        for part in channel_pieces(x):
            torch.mul(grad[:, part], weight[part, -1:], out=to_x[:, part])
            to_weight[part, -1] = (grad[:, part] * x[:, part]).sum((0, 2))
            for lag, tap in _earlier(weight[part], x):
                late = grad[:, part, lag:]
                to_x[:, part, :-lag].addcmul_(late, tap)
                to_weight[part, -1 - lag] = (late * x[:, part, :-lag]).sum((0, 2))
        return to_x, to_weight, grad.sum((0, 2))


def _earlier(weight: Tensor, x: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Lags that sequences reach, and their taps, (D, 1)."""
    for lag in range(1, min(weight.shape[1], x.shape[2])):
        yield lag, weight[:, -1 - lag, None]
