"""The Fourier transform of each sample at its own length, by chirps (Bluestein's algorithm), in O(L log L).

With nk = (n^2 + k^2 - (k-n)^2) / 2 the transform of length N is a convolution between two multiplications:
F_k = w_k sum_n (w_n z_n) conj(w_{k-n}),  w_n = exp(-i pi n^2 / N). N differs from sample to sample, the FFTs do not.

Letters: B batch, L length with padding, N_b length of sample b, C channels, M length of the FFTs.
Reference: Bluestein 1970, A linear filtering approach to the computation of discrete Fourier transform.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from subquad_plugins.numerics.lengths import fast_length


def chirp(positions: Tensor, period: Tensor | int, dtype: torch.dtype) -> Tensor:
    """exp(-i pi n^2 / N) for whole n; n^2 is reduced mod 2N as an integer, or fp32 would be off by 4e-4 at N = 4096.

    Args:
        positions: n, int64.
        period: N, a number or int64 of a shape that broadcasts.
        dtype: of the real and the imaginary part.

    Returns:
        the broadcast shape, complex.
    """
    angle = (positions.square() % (2 * period)).double() * -math.pi / period
    return torch.complex(angle.cos().to(dtype), angle.sin().to(dtype))


def sample_fft(z: Tensor, lengths: Tensor) -> Tensor:
    """sum_n z_n exp(-2 pi i n k / N_b) for each sample b.

    Args:
        z: (B, L, C), real or complex, zero from N_b on.
        lengths: N_b, (B,) int64, 1 to L.

    Returns:
        (B, L, C) complex; rows from N_b on have no meaning.
    """
    length = z.shape[1]
    dtype = z.real.dtype if z.is_complex() else z.dtype
    wave = chirp(torch.arange(length, device=z.device), lengths[:, None], dtype)
    size = fast_length(2 * length - 1)
    gap = wave.new_zeros(len(wave), size - 2 * length + 1)
    kernel = torch.cat([wave.conj(), gap, wave[:, 1:].conj().flip(1)], 1)
    spectrum = torch.fft.fft(z * wave[..., None], n=size, dim=1).mul_(torch.fft.fft(kernel, dim=1)[..., None])
    return torch.fft.ifft(spectrum, dim=1)[:, :length] * wave[..., None]
