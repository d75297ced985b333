"""The Fourier transform of each sample at its own length, by chirps (Bluestein's algorithm), in O(L
log L).

With nk = (n^2 + k^2 - (k-n)^2) / 2 the transform of length N is a convolution between two
multiplications: F_k = w_k sum_n (w_n z_n) conj(w_{k-n}),  w_n = exp(-i pi n^2 / N). N differs from
sample to sample, the FFTs do not.

Operation "fourier.chirp" is such a multiplication: the reference is plain torch, "triton" also
fills up or cuts off and orders what it writes as the FFT reads it (`kernel.py`).

Letters: B batch, L length with padding, N_b length of sample b, C channels, M length of the FFTs.
Reference: Bluestein 1970, A linear filtering approach to the computation of discrete Fourier
transform.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from subquad.nn.kernels import Operation
from subquad_plugins.numerics.launching import kernels_run
from subquad_plugins.numerics.lengths import fast_length


def chirp(positions: Tensor, period: Tensor | int, dtype: torch.dtype) -> Tensor:
    """exp(-i pi n^2 / N) for whole n; n^2 is reduced mod 2N as an integer, or fp32 would be off by
    4e-4 at N = 4096.

    Args:
        positions: n, int64.
        period: N, a number or int64 of a shape that broadcasts.
        dtype: of the real and the imaginary part.

    Returns:
        the broadcast shape, complex.
    """
    angle = (positions.square() % (2 * period)).double() * -math.pi / period
    return torch.complex(angle.cos().to(dtype), angle.sin().to(dtype))


def chirped(z: Tensor, wave: Tensor, size: int, real: bool = False) -> Tensor:
    """w_n z_n, the first rows of it or with zeros behind them.

    Args:
        z: (B, L, C), real or complex.
        wave: w, (L,) or (B, L) complex, or as long as the result where that is shorter; has no
            gradient.
        size: M, rows of the result.
        real: the real part alone.

    Returns:
        (B, M, C), complex, or real.
    """
    return _CHIRP(z, wave, size, real)


def _reference(z: Tensor, wave: Tensor, size: int, real: bool) -> Tensor:
    length = z.shape[1]
    product = z[:, :size] * wave.detach()[..., None]
    if not (size <= length):
        product = F.pad(product, (0, 0, 0, size - length))
    return product.real if real else product


_CHIRP = Operation("fourier.chirp", reference=_reference)


def _fits(z: Tensor, wave: Tensor, size: int, real: bool) -> bool:
    """Whether the kernel takes it."""
    rows = (min(z.shape[1], size),)
    shaped = z.ndim == 3 and wave.shape in (rows, z.shape[:1] + rows)
    return kernels_run(z, wave) and shaped and wave.dtype == torch.complex64


@_CHIRP.implementation(
    "triton", devices=("cuda",), dtypes=(torch.float32, torch.complex64), when=_fits
)
def _triton(z: Tensor, wave: Tensor, size: int, real: bool) -> Tensor:
    from subquad_plugins.fourier.kernel import Chirped

    return Chirped.apply(z, wave, size, real)  # pyright: ignore[reportReturnType]


def chirp_convolution(
    z: Tensor, before: Tensor, kernel: Tensor, after: Tensor, real: bool = False
) -> Tensor:
    """after_k sum_n (before_n z_n) kernel_{k-n}, a cyclic convolution between two multiplications.

    Args:
        z: (B, L, C), real or complex.
        before: (L,) or (B, L) complex.
        kernel: (M,) or (B, M) complex, at least L.
        after: as `before`.
        real: the real part alone.

    Returns:
        (B, L, C), complex, or real.
    """
    # 1 / M, which the FFT back would need a pass for, goes into the kernel.
    weights = torch.fft.fft(kernel, norm="forward")[..., None]
    spectrum = torch.fft.fft(chirped(z, before, kernel.shape[-1]), dim=1).mul_(weights)
    return chirped(torch.fft.ifft(spectrum, dim=1, norm="forward"), after, z.shape[1], real)


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
    gap = wave.new_zeros(wave.shape[0], size - 2 * length + 1)
    kernel = torch.cat([wave.conj(), gap, wave[:, 1:].conj().flip(1)], 1)
    return chirp_convolution(z, wave, kernel, wave)
