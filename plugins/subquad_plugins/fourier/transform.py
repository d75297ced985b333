"""Fourier mixing of tokens: the real part of a transform, whose matrix is symmetric, so that
backward is forward.

`re_seq`:  Re sum_n x_n exp(-2 pi i k n / N), the transform over tokens.
`re_2d`:   Re of the transform over tokens and channels (FNet).
`hartley`: Re - Im of the transform over tokens, sum_n x_n cas(2 pi k n / N) with cas = cos + sin.

Operation "fourier.mix": the reference is the usual code; "symmetric" makes use of that matrix;
"triton" does so with a kernel before the FFT and one behind it (`kernel.py`).

Letters: B batch, L length, D width, N transform length: L, or each sample's number of real tokens;
P terms.
Reference: Kiruluta et al., Beyond Self-Attention: A Subquadratic Fourier-Wavelet Transformer with
Multi-Modal Fusion, arXiv 2111.15473v2 (MDFWA), Eq. 2; Lee-Thorp et al. 2022, FNet, Eq. 3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from subquad.nn.kernels import Operation
from subquad_plugins.fourier.chirp import sample_fft
from subquad_plugins.fourier.interpolation import node_factors, node_polynomials
from subquad_plugins.numerics.launching import FORMATS, kernels_run
from subquad_plugins.numerics.places import Places, places_of, take_tokens, to_front
from subquad_plugins.numerics.tensors import swapped, wide

Form = Literal["re_seq", "re_2d", "hartley"]
Norm = Literal["paper", "ortho"]


def fourier_mix(
    x: Tensor, form: Form = "re_seq", norm: Norm = "ortho", keep: Tensor | None = None
) -> Tensor:
    """Mix tokens by a fixed transform: y_k = c sum_n cos(2 pi k n / N) x_n for `re_seq`, see the
    file's top.

    Args:
        x: (B, L, D).
        form: "re_seq", "re_2d" or "hartley".
        norm: "paper": c = 1; "ortho": c = 1 / sqrt(N), for `re_2d` 1 / sqrt(N D).
        keep: (B, L) bool, True = real token: each sample is transformed at its own number N of real
            tokens, k and n counting those, and is zero elsewhere. None: N = L.

    Returns:
        (B, L, D), in the dtype of `x`; computed in float32 at least. Differentiable to any order.
    """
    return _MIX(x, form, norm, keep)


def learned_fourier(
    x: Tensor,
    omega: Tensor,
    terms: int = 8,
    form: Form = "re_seq",
    norm: Norm = "paper",
    keep: Tensor | None = None,
) -> Tensor:
    """As `fourier_mix`, at frequencies omega_k: Re sum_n x_n exp(-2 pi i omega_k n / N) for
    `re_seq`.

    P FFTs: each frequency is reached from the nearest whole one by interpolation in n / N, see
    `interpolation.py`. Error relative to the largest output: 4e-6 with 8 terms, 3e-8 with 10, 1e-10
    with 12; of gradients to omega 8 times that.

    Args:
        x: (B, L, D).
        omega: (L,), any real numbers, in cycles over the N tokens; float64 keeps them exact in long
            sequences.
        terms: P.
        form: as in `fourier_mix`; the channels' transform of `re_2d` stays fixed.
        norm: as in `fourier_mix`.
        keep: as in `fourier_mix`.

    Returns:
        (B, L, D), in the dtype of `x`; differentiable with respect to x and omega.

    Reference: MDFWA, learned frequencies.
    """
    if keep is None:
        places = None
    else:
        places = places_of(keep)
    if keep is None or places is None:
        front = wide(x)
    else:
        front = to_front(wide(x), keep, places)
    here, mirrored = _nudft(_halved(front, form, norm), omega, terms, places)
    mixed = _combined(here, mirrored, form, x.shape[2]) * _scale(norm, x, places)
    if keep is not None:
        mixed = mixed.masked_fill(~keep[..., None], 0.0)
    return mixed.to(x.dtype)


def _nudft(z: Tensor, omega: Tensor, terms: int, places: Places | None) -> tuple[Tensor, Tensor]:
    """sum_n z_n exp(-2 pi i omega_k n / N) where token k stands, and the same at -omega_k; (B,
    L, C) complex each.
    """
    length = z.shape[1]
    dtype = z.real.dtype
    if places is None:
        period = length
    else:
        period = places.lengths[:, None]
    # Beyond a sample's own length stand zeros, so that any finite weight will do.
    fractions = (torch.arange(length, device=z.device).double() / period).clamp_max(1.0)
    whole = omega.detach().round()
    factors = node_factors(omega.double() - whole, terms, dtype)
    nearest = whole.long()
    if places is not None:
        factors = factors[:, places.rank]
        nearest = nearest[places.rank]
    here: Any = 0.0
    mirrored: Any = 0.0
    for factor, polynomial in zip(
        factors[..., None], node_polynomials(fractions, terms, dtype)[..., None], strict=True
    ):
        moment = z * polynomial
        if places is None:
            spectrum = torch.fft.fft(moment, dim=1)
        else:
            spectrum = sample_fft(moment, places.lengths)
        here = here + _rows(spectrum, nearest % period) * factor
        mirrored = mirrored + _rows(spectrum, -nearest % period) * factor.conj()
    return here, mirrored


def _rows(spectrum: Tensor, index: Tensor) -> Tensor:
    if index.ndim == 1:
        return spectrum.index_select(1, index)
    return take_tokens(spectrum, index)


def _usual(x: Tensor, form: Form, norm: Norm, keep: Tensor | None) -> Tensor:
    """By complex transforms of one axis after the other, and autograd's backward pass."""
    if keep is not None:
        return _at_own_lengths(wide(x), form, norm, keep).to(x.dtype)
    scaling = "ortho" if norm == "ortho" else "backward"
    y = wide(x)
    if form == "re_2d":
        y = torch.fft.fft(y, dim=2, norm=scaling)
    y = torch.fft.fft(y, dim=1, norm=scaling)
    return (y.real - y.imag if form == "hartley" else y.real).to(x.dtype)


_MIX = Operation("fourier.mix", reference=_usual)


def _pairs(x: Tensor, form: Form, norm: Norm, keep: Tensor | None) -> bool:
    """Whether the kernel takes it."""
    return kernels_run(x) and keep is None and form != "re_2d" and x.shape[2] % 2 == 0


@_MIX.implementation("triton", devices=("cuda",), dtypes=FORMATS, when=_pairs)
def _triton(x: Tensor, form: Form, norm: Norm, keep: Tensor | None) -> Tensor:
    from subquad_plugins.fourier.kernel import mixed

    return _Symmetric.apply(x, form, norm, keep, mixed)  # pyright: ignore[reportReturnType]


@_MIX.implementation("symmetric")
def _symmetric(x: Tensor, form: Form, norm: Norm, keep: Tensor | None) -> Tensor:
    if keep is None:
        mix = _at_one_length
    else:
        mix = _at_own_lengths
    y: Any = _Symmetric.apply(wide(x), form, norm, keep, mix)
    return y.to(x.dtype)


class _Symmetric(torch.autograd.Function):
    """A linear map with a symmetric matrix: its gradient is itself, again and again."""

    @staticmethod
    def forward(
        x: Tensor, form: Form, norm: Norm, keep: Tensor | None, mix: Callable[..., Tensor]
    ) -> Tensor:
        return mix(x, form, norm, keep)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, ctx.form, ctx.norm, keep, ctx.mix = inputs
        ctx.save_for_backward(keep)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        given = ctx.form, ctx.norm, *ctx.saved_tensors, ctx.mix
        return _Symmetric.apply(grads[0], *given), None, None, None, None


def _at_one_length(x: Tensor, form: Form, norm: Norm, _keep: Tensor | None) -> Tensor:
    scaling = "ortho" if norm == "ortho" else "backward"
    if form == "re_2d":
        return torch.fft.fft2(x, dim=(1, 2), norm=scaling).real.contiguous()
    z = _halved(x, form, norm)
    if form == "hartley":
        z = swapped(torch.fft.fft(swapped(z), norm=scaling))
        return _combined(z, torch.cat([z[:, :1], z[:, 1:].flip(1)], 1), form, x.shape[2])
    # The even part alone has a real transform, so that both channels of a pair come out of it as
    # they are.
    even = z.clone()
    torch.view_as_real(even[:, 1:].add_(z[:, 1:].flip(1))).mul_(0.5)
    even = swapped(torch.fft.fft(swapped(even), norm=scaling))
    return torch.view_as_real(even).flatten(2)[..., : x.shape[2]].contiguous()


def _at_own_lengths(x: Tensor, form: Form, norm: Norm, keep: Tensor) -> Tensor:
    places = places_of(keep)
    z = sample_fft(_halved(to_front(x, keep, places), form, norm), places.lengths)
    here = take_tokens(z, places.rank)
    mirrored = take_tokens(z, -places.rank % places.lengths[:, None])
    mixed = _combined(here, mirrored, form, x.shape[2]) * _scale(norm, x, places)
    return mixed.masked_fill(~keep[..., None], 0.0)


def _halved(x: Tensor, form: Form, norm: Norm) -> Tensor:
    """Half as many complex channels: `re_2d`'s transform of real channels, else pairs as real
    and imaginary part.
    """
    if form == "re_2d":
        return torch.fft.rfft(x, dim=2, norm="ortho" if norm == "ortho" else "backward")
    if x.shape[2] % 2:
        x = torch.cat([x, torch.zeros_like(x[..., :1])], 2)
    return torch.view_as_complex(x.contiguous().unflatten(2, (-1, 2)))


def _combined(here: Tensor, mirrored: Tensor, form: Form, width: int) -> Tensor:
    """The real channels, (B, L, D), from the halved ones' transform at each frequency and at its
    negative.

    A real kernel acts on both parts of a pair alike, and cos = (e_k + e_-k) / 2, cos + sin = (e_k +
    e_-k + i (e_k - e_-k)) / 2. In `re_2d` channel D - d holds the conjugate of channel d, whose
    transform is that at -k, conjugated.
    """
    if form == "re_2d":
        return torch.cat([here.real, mirrored.real[..., 1 : (width + 1) // 2].flip(2)], 2)
    if form == "re_seq":
        half = 0.5
    else:
        half = 0.5 + 0.5j
    z = here * half + mirrored * half.conjugate()
    return torch.view_as_real(z).flatten(2)[..., :width]


def _scale(norm: Norm, x: Tensor, places: Places | None) -> Tensor | float:
    """1, or 1 / sqrt(N): a number, or (B, 1, 1)."""
    if norm == "paper":
        return 1.0
    if places is None:
        return x.shape[1] ** -0.5
    return places.lengths[:, None, None].double().rsqrt().to(wide(x).dtype)
