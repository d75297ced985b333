"""Causal Fourier mixing: the real part of a running Fourier sum, read at frequency n at position n.

X'_n = c_n sum_{k <= n} cos(2 pi n k / N) x_k. With nk = (n^2 + k^2 - (n-k)^2) / 2 the mask k <= n
becomes one-sided support of a chirp, so that the sum is a causal convolution between two
multiplications, exact and in O(T log T): X'_n = c_n Re w_n sum_{k <= n} (w_k x_k) conj(w_{n-k}),
w_n = exp(-i pi n^2 / N).

The period N is a constant: with the current length in its place, earlier rows would change with
every new token.

Letters: B batch, T length, D width, N period, M length of the FFTs, P terms.
Reference: Kiruluta et al., Beyond Self-Attention: A Subquadratic Fourier-Wavelet Transformer with
Multi-Modal Fusion, arXiv 2111.15473v2 (MDFWA), Sec. 3.2, which offers no algorithm below O(N^2).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from subquad_plugins.causal_fourier import CROSSOVER, LEARNED_CROSSOVER
from subquad_plugins.causal_fourier.dense import Norm, causal_matrix, row_scale, row_weights
from subquad_plugins.causal_fourier.product import wide_product
from subquad_plugins.fourier.chirp import chirp, chirp_convolution
from subquad_plugins.fourier.interpolation import node_factors, node_polynomials
from subquad_plugins.numerics.lengths import fast_length
from subquad_plugins.numerics.tensors import wide

Evaluation = Literal["auto", "dense", "chirp"]


def causal_fourier(
    x: Tensor, period: int, norm: Norm = "paper", evaluation: Evaluation = "auto", first: int = 0
) -> Tensor:
    """c_n sum_{k <= n} cos(2 pi n k / N) x_k.

    Args:
        x: (B, T, D).
        period: N, at least 1; T may differ from it.
        norm: c_n: "paper" 2 / N, "ortho" sqrt(2 / N), "causal_rms" 1 / sqrt((n + 1) / 2).
        evaluation: "dense": the matrix, exactly causal, O(T^2); "chirp": O(T log T), where later
            positions change earlier ones by the FFTs' rounding errors; "auto": dense up to 768
            tokens.
        first: n and k of the first token.

    Returns:
        (B, T, D), in the dtype of `x`; computed in float32 at least. Differentiable to any order.
    """
    z = wide(x)
    if is_dense(x.shape[1], evaluation, CROSSOVER):
        return wide_product(causal_matrix(z, period, norm, first), z).to(x.dtype)
    return _CausalSum.apply(z, period, first, norm, False).to(x.dtype).contiguous()  # pyright: ignore


def learned_causal_fourier(
    x: Tensor,
    delta: Tensor,
    period: int,
    terms: int = 8,
    norm: Norm = "paper",
    evaluation: Evaluation = "auto",
    first: int = 0,
) -> Tensor:
    """c_n sum_{k <= n} cos(2 pi (n + delta_n) k / N) x_k.

    The dense form is exact. The chirp form interpolates between P chirp sums, see
    `fourier/interpolation.py`. Error relative to the largest output: 4e-6 with 8 terms, 3e-8 with
    10, 1e-10 with 12; of gradients to delta 8 times that.

    Args:
        x: (B, T, D).
        delta: (T,), each in -1/2..1/2.
        period: N, at least T.
        terms: P.
        norm: as in `causal_fourier`.
        evaluation: as in `causal_fourier`; "auto" is dense up to 2048 tokens.
        first: n and k of the first token.

    Returns:
        (B, T, D), in the dtype of `x`; differentiable with respect to x and delta.
    """
    z = wide(x)
    places = _places(x, first)
    scale = row_scale(places, period, norm)[:, None].to(z.dtype)
    if is_dense(x.shape[1], evaluation, LEARNED_CROSSOVER):
        weights = row_weights(places, x.shape[1], period, z.dtype, delta, first)
        return (wide_product(weights, z) * scale).to(x.dtype)
    total = _interpolated(
        z, delta, places, period, terms, lambda part: chirp_sum(part, period, first)
    )
    return (total * scale).to(x.dtype).contiguous()


def source_rows(
    x: Tensor,
    period: int,
    first: int,
    norm: Norm = "paper",
    delta: Tensor | None = None,
    terms: int = 8,
) -> Tensor:
    """What tokens 0 .. first - 1 give to those after them: c_n sum_{k < first} cos(2 pi (n +
    delta_n) k / N) x_k.

    None of these is masked there, so it is a Fourier transform of the tokens with zeros behind
    them. Learned frequencies are interpolated at any length.

    Args:
        x: (B, first or fewer, D).
        period: N.
        first: n of the first row.
        norm: c_n, as in `causal_fourier`.
        delta: (N - first,), each in -1/2..1/2; None for 0.
        terms: P.

    Returns:
        (B, N - first, D), in the dtype of `x`.
    """
    z = wide(x)
    places = _places(x, 0)

    def after(part: Tensor) -> Tensor:
        return torch.fft.fft(part, n=period, dim=1)[:, first:]

    if delta is None:
        total = after(z).real
    else:
        total = _interpolated(z, delta, places, period, terms, after)
    scale = row_scale(torch.arange(first, period, device=x.device), period, norm)[:, None].to(
        z.dtype
    )
    return (total * scale).to(x.dtype).contiguous()


def _places(x: Tensor, first: int) -> Tensor:
    """(T,): n of each token."""
    return torch.arange(first, first + x.shape[1], device=x.device)


def _interpolated(
    z: Tensor,
    delta: Tensor,
    places: Tensor,
    period: int,
    terms: int,
    transform: Callable[[Tensor], Tensor],
) -> Tensor:
    """Real part of a transform at frequencies `delta` beside whole ones, from P transforms at
    whole ones.
    """
    factors = node_factors(delta, terms, z.dtype)
    total = torch.zeros((), dtype=z.dtype, device=z.device)
    polynomials = node_polynomials(places.double() / period, terms, z.dtype)
    for factor, polynomial in zip(factors, polynomials, strict=True):
        y = transform(z * polynomial[:, None])
        total = total + factor.real[:, None] * y.real - factor.imag[:, None] * y.imag
    return total


def chirp_sum(x: Tensor, period: int, first: int = 0) -> Tensor:
    """sum_{k <= n} exp(-2 pi i n k / N) x_k.

    Args:
        x: (B, T, D), real.
        period: N.
        first: n and k of the first token.

    Returns:
        (B, T, D) complex.
    """
    wave, kernel = _waves(x, period, first)
    return chirp_convolution(x, wave, kernel, wave)


def _waves(x: Tensor, period: int, first: int) -> tuple[Tensor, Tensor]:
    """w_n of each token, (T,), and conj(w) of the distances between them with zeros behind,
    (M,).
    """
    length = x.shape[1]
    wave = chirp(_places(x, first), period, x.dtype)
    if first:
        distances = chirp(_places(x, 0), period, x.dtype)
    else:
        distances = wave
    return wave, torch.cat([distances.conj(), wave.new_zeros(fast_length(2 * length - 1) - length)])


class _CausalSum(torch.autograd.Function):
    """c_n Re of `chirp_sum`, linear: its gradient is its transpose, whose gradient is itself
    again.
    """

    @staticmethod
    def forward(x: Tensor, period: int, first: int, norm: Norm, transposed: bool) -> Tensor:
        wave, kernel = _waves(x, period, first)
        scaled = wave * row_scale(_places(x, first), period, norm).to(x.dtype)
        if transposed:
            return chirp_convolution(x, scaled, kernel.flip(0).roll(1), wave, real=True)
        return chirp_convolution(x, wave, kernel, scaled, real=True)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, ctx.period, ctx.first, ctx.norm, ctx.transposed = inputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        grad = _CausalSum.apply(grads[0], ctx.period, ctx.first, ctx.norm, not ctx.transposed)
        return grad, None, None, None, None


def is_dense(length: int, evaluation: Evaluation, crossover: int) -> bool:
    """Whether a sequence of this length goes through the matrix."""
    return evaluation == "dense" or (evaluation == "auto" and length <= crossover)
