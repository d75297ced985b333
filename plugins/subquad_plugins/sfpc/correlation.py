"""Depthwise correlation along the sequence, and its sums against another sequence: by convolution
or by FFT.

Letters: B batch, L length, D width, W taps of the kernel.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from subquad_plugins.numerics.lengths import fast_length

BLOCK = 16
"""Tokens whose products with their surroundings one matrix product sums: wastes BLOCK lags, and
is then a GEMM.
"""

FEW = 8
PIECE = 1 << 16
"""Taps whose products are summed one after the other, and numbers of a piece of the sequence,
for which caches do.
"""

SHORT = 256
"""Up to so many tokens the samples are joined for that product, at the price of copying what
surrounds each block.
"""


def correlate(x: Tensor, taps: Tensor, fft: bool = False) -> Tensor:
    """y_i = sum_w taps_w x_{i+w} in each channel.

    Args:
        x: (B, L + W - 1, D).
        taps: (D, W).
        fft: by FFT, in time L log L whatever W is.

    Returns:
        (B, L, D).
    """
    length = x.shape[1] - taps.shape[1] + 1
    if fft:
        size = fast_length(x.shape[1])
        product = torch.fft.rfft(x, size, dim=1) * torch.fft.rfft(taps.T, size, dim=0).conj()
        return torch.fft.irfft(product, size, dim=1)[:, :length]
    if x.device.type != "cpu":
        return F.conv1d(x.transpose(1, 2), taps[:, None], groups=len(taps)).transpose(1, 2)
    # Seen as a picture one row high with its channels last, the tokens need no transposing: several
    # times quicker.
    picture = x.contiguous().transpose(1, 2)[:, :, None]
    return F.conv2d(picture, taps[:, None, None], groups=len(taps))[:, :, 0].transpose(1, 2)


def lagged_sums(x: Tensor, y: Tensor, fft: bool = False) -> Tensor:
    """sum over batch and i of y_i x_{i+w}, for every channel and w: what `correlate` needs to
    differentiate its taps.

    Autograd's own backward pass of a depthwise convolution takes many times as long for long
    kernels.

    Args:
        x: (B, L + W - 1, D).
        y: (B, L, D).
        fft: by FFT.

    Returns:
        (D, W).
    """
    taps = x.shape[1] - y.shape[1] + 1
    if fft:
        size = fast_length(x.shape[1])
        product = torch.fft.rfft(y, size, dim=1).conj() * torch.fft.rfft(x, size, dim=1)
        return torch.fft.irfft(product.sum(0), size, dim=0)[:taps].T
    if taps <= FEW:
        step = max(1, PIECE // (y.shape[0] * y.shape[2]))
        pieces = list(zip(y.split(step, 1), range(0, y.shape[1], step), strict=True))
        lags = []
        for lag in range(taps):
            sums = []
            for part, start in pieces:
                shifted = x[:, start + lag :][:, : part.shape[1]]
                sums.append((part * shifted).sum((0, 1)))
            lags.append(torch.stack(sums).sum(0))
        return torch.stack(lags, 1)
    missing = -y.shape[1] % BLOCK
    if y.shape[1] <= SHORT:
        # A product for each sample and channel would be tiny: one for each channel, over the tokens
        # of all samples.
        y, x = (F.pad(signal.permute(2, 0, 1), (0, missing)) for signal in (y, x))
        blocks = y.unflatten(2, (-1, BLOCK)).flatten(1, 2)
        products = blocks.mT @ x.unfold(2, BLOCK + taps - 1, BLOCK).flatten(1, 2)
    else:
        blocks = F.pad(_channels_first(y), (0, missing)).unflatten(2, (-1, BLOCK))
        products = (
            blocks.mT @ F.pad(_channels_first(x), (0, missing)).unfold(2, BLOCK + taps - 1, BLOCK)
        ).sum(0)
    # (D, BLOCK, BLOCK + W - 1): token i of a block with token j. Rows one longer bring j - i = w
    # into column w.
    skewed = F.pad(products.flatten(1), (0, BLOCK)).unflatten(1, (BLOCK, -1))
    return skewed[:, :, :taps].sum(1)


def _channels_first(x: Tensor) -> Tensor:
    """Copied as such: the products read it once for every lag."""
    return x.transpose(1, 2).contiguous()
