"""p(T) x in the basis of T's eigenvectors: Fourier, cosine and sine transforms, all of them real
FFTs.

For sequences without padding, of lengths that suit FFTs; `fir.py` does the others. The circulant is
always done here, its kernel being as long as the sequence.

Letters: B batch, L length, D width, K order, F = L // 2 + 1 frequencies.
Reference: Hussain et al. 2025, Corollary 5.1, for the circulant; Makhoul 1980, A Fast Cosine
Transform in One and Two Dimensions, for the cosine transform by one FFT.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from subquad_plugins.numerics.lengths import fast_length


def suits(matrix: str, length: int) -> bool:
    """Whether FFTs are quick at the length that `transformed` needs: with a large prime factor they
    take ten times.

    Quick is a length, odd or even, with no prime factor above 5. The shift's is chosen to be.
    """
    period = {"shift": 1, "dirichlet": 2 * length + 2}.get(matrix, length)
    for factor in (2, 3, 5):
        while period > 1 and period % factor == 0:
            period //= factor
    return period == 1


def transformed(x: Tensor, a: Tensor, matrix: str) -> Tensor:
    """What `fir.fir` computes, in time L log L whatever the order is.

    Args:
        x: (B, L, D).
        a: (D, K+1), Chebyshev coefficients of a Laplacian, powers of a shift.
        matrix: neumann, dirichlet, periodic, shift or cyclic.

    Returns:
        (B, L, D).
    """
    length = x.shape[1]
    if matrix == "neumann":
        return _cosine(x, a)
    if matrix == "dirichlet":
        return _sine(x, a)
    if matrix == "shift":
        kept = a[:, :length]  # S^L = 0
        size = fast_length(length + kept.shape[1] - 1)
        return spectral_product(x, torch.fft.rfft(kept.T, size, dim=0), size)
    response = _response(a, length)
    return spectral_product(x, response.real + 0j if matrix == "periodic" else response, length)


def circulant(x: Tensor, c: Tensor, column: Tensor) -> Tensor:
    """sum_k c_k C^k x, with C_ij = column[(i - j) mod L]: x's spectrum times p of C's eigenvalues,
    the column's.

    Args:
        x: (B, L, D).
        c: (D, K+1) or (1, K+1).
        column: (L,).

    Returns:
        (B, L, D).
    """
    eigenvalues = torch.fft.rfft(column)
    powers = [torch.ones_like(eigenvalues)]
    for _ in range(c.shape[1] - 1):
        powers.append(powers[-1] * eigenvalues)
    response = torch.stack(powers, 1) @ c.T.to(eigenvalues.dtype)
    return spectral_product(x, response, x.shape[1])


def spectral_product(x: Tensor, response: Tensor, size: int) -> Tensor:
    """Circular convolution of period `size`: irfft(response * rfft(x)), cut to x's length.

    Args:
        x: (B, L, D), L <= size.
        response: (size // 2 + 1, D or 1), complex.
        size: length of the transforms.

    Returns:
        (B, L, D).
    """
    return _SpectralProduct.apply(x, response.expand(-1, x.shape[2]), size)


class _SpectralProduct(torch.autograd.Function):
    """Autograd's own backward pass of a real FFT is a complex one of the full length; this one
    is real.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, response: Tensor, size: int) -> Tensor:
        ctx.save_for_backward(x, response)
        ctx.size = size
        return torch.fft.irfft(torch.fft.rfft(x, size, dim=1) * response, size, dim=1)[
            :, : x.shape[1]
        ]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, response = ctx.saved_tensors
        size = ctx.size
        to_x = to_response = None
        with torch.autocast(x.device.type, enabled=False):
            spectrum = torch.fft.rfft(grad, size, dim=1)
            if ctx.needs_input_grad[0]:
                to_x = torch.fft.irfft(spectrum * response.conj(), size, dim=1)[:, : x.shape[1]]
            if ctx.needs_input_grad[1]:
                products = (spectrum * torch.fft.rfft(x, size, dim=1).conj()).sum(0)
                to_response = products * (_multiplicity(size, grad) / size)[:, None]
        return to_x, to_response, None


def _multiplicity(size: int, like: Tensor) -> Tensor:
    """How often each frequency of a real FFT stands in the complex one: twice, but for the first
    and the middle one.
    """
    frequency = torch.arange(size // 2 + 1, device=like.device)
    once = (frequency == 0) | (2 * frequency == size)
    return 2 - once.to(like.dtype)


def _response(a: Tensor, period: int) -> Tensor:
    """sum_k a_k exp(-2 pi i j k / period), (period // 2 + 1, D) complex; its real part is sum_k
    a_k cos(...).
    """
    padded = F.pad(a, (0, -a.shape[1] % period))
    folded = padded.unflatten(1, (-1, period)).sum(1)
    return torch.fft.rfft(folded, dim=1).T


def _cosine(x: Tensor, a: Tensor) -> Tensor:
    """Neumann: p(2 cos(pi j / L) - 2) times the DCT-II, by one real FFT each way of the even
    tokens, then the odd.

    With V that FFT, the cosine transform is X_j = Re W_j and X_{L-j} = -Im W_j, where W_j = exp(-pi
    i j / (2 L)) V_j. Scaling X_j by p_j is V_j -> (p_j + p_{L-j}) / 2 V_j + (p_j - p_{L-j}) / 2
    exp(pi i j / L) conj(V_j).
    """
    length = x.shape[1]
    place = torch.arange(length, device=x.device)
    order = torch.cat([place[::2], place[1::2].flip(0)])
    values = _response(a, 2 * length).real
    half = length // 2 + 1
    here = values[:half]
    there = values.flip(0)[:half]
    angle = math.pi / length * torch.arange(half, device=x.device, dtype=torch.float64)[:, None]
    turn = torch.complex(angle.cos().to(x.dtype), angle.sin().to(x.dtype))
    spectrum = torch.fft.rfft(x.index_select(1, order), dim=1)
    spectrum = (here + there) / 2 * spectrum + (here - there) / 2 * turn * spectrum.conj()
    return torch.fft.irfft(spectrum, length, dim=1).index_select(1, torch.argsort(order))


def _sine(x: Tensor, a: Tensor) -> Tensor:
    """Dirichlet: p(2 cos(pi j / (L + 1)) - 2) times the DST-I, the FFT of the sequence mirrored
    with the other sign.
    """
    length = x.shape[1]
    zero = torch.zeros_like(x[:, :1])
    odd = torch.cat([zero, x, zero, -x.flip(1)], 1)
    period = 2 * length + 2
    return spectral_product(odd, _response(a, period).real + 0j, period)[:, 1 : length + 1]
