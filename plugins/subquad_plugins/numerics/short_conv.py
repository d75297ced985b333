"""A short causal convolution of each channel by itself, with a decode cache: what many mixers do before they mix.

Letters: B batch, L length, D channels, K taps.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from subquad_plugins.numerics.tensors import wide
from subquad_plugins.sfpc.fir import fir
from subquad_plugins.wavelet.atrous import last_tokens


class ShortConv(nn.Module):
    """y_t = bias + sum_j weight_{K-1-j} x_{t-j}, zeros before the start and at padding.

    Args:
        dim: D.
        taps: K >= 2.
        bias: whether there is one.
    """

    def __init__(self, dim: int, taps: int, *, bias: bool = True):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(dim, taps).uniform_(-1, 1) * taps**-0.5)
        self.bias = nn.Parameter(torch.empty(dim).uniform_(-1, 1) * taps**-0.5) if bias else None

    def forward(self, x: Tensor, keep: Tensor | None = None, past: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Convolve.

        Args:
            x: (B, L, D).
            keep: (B, L) bool, True = real token.
            past: the tokens before these, (B, K - 1, D): the second result of the last call; zeros where None.

        Returns:
            (B, L, D), of at least fp32, and the last K - 1 real tokens of each sample where real ones come first.
        """
        before = self.weight.shape[1] - 1
        x = x if keep is None else x.masked_fill(~keep[..., None], 0.0)
        lengths = torch.full(x.shape[:1], x.shape[1], device=x.device) if keep is None else keep.sum(1)
        with torch.autocast(x.device.type, enabled=False):
            if past is None:
                y, after = self._convolved(wide(x)), last_tokens(x, lengths, before)
            else:
                window = torch.cat([past, x.to(past.dtype)], 1)
                y, after = self._convolved(wide(window))[:, before:], last_tokens(window, lengths + before, before)
            return y if self.bias is None else y + self.bias, after

    def _convolved(self, x: Tensor) -> Tensor:
        return fir(x, wide(self.weight).flip(1), "shift")
