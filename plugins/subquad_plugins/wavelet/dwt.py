"""The discrete wavelet transform along the tokens and its inverse, on (B, L, D) as it lies in
memory.

A level is a handful of shifted multiply-adds over whole rows of channels: no transposes and no
convolutions, so TensorFloat-32 has no part in it. Equal to PyWavelets in every mode, at every
length and level. Operation "wavelet.mix": to be timed beside it, "conv1d" is the usual code,
strided convolutions of each channel by itself.

Letters: B batch, L length, D width, F filter length, J levels, K coefficients of a level.
Reference: Mallat 1989, A Theory for Multiresolution Signal Decomposition; conventions of
PyWavelets.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from subquad.nn.kernels import Operation
from subquad.nn.numbers import single_precision
from subquad_plugins.numerics.launching import FORMATS, kernels_run
from subquad_plugins.numerics.tensors import wide
from subquad_plugins.wavelet.extension import extend, extend_each
from subquad_plugins.wavelet.filters import FilterBank, Taps, filter_bank
from subquad_plugins.wavelet.linear import linear_map


def dwt(
    x: Tensor,
    wavelet: str | FilterBank,
    mode: str = "periodization",
    level: int = 1,
    lengths: Tensor | None = None,
) -> list[Tensor]:
    """Wavelet coefficients of each channel: a_k = sum_i g_i x~_{2k+1-i}, d_k = sum_i h_i
    x~_{2k+1-i}, J times.

    Args:
        x: (B, L, D), float32 or float64, L >= 1; x~ is x continued beyond its ends.
        wavelet: PyWavelets' name of a discrete wavelet, or its filters.
        mode: PyWavelets' name of an extension mode.
        level: J; any number, whatever the length, as with `pywt.wavedec`.
        lengths: (B,) tokens of each sample, which stand first; all L where None.

    Returns:
        [a_J, d_J, ..., d_1], each (B, K, D). With lengths, a sample's coefficients stand first; the
        rest means nothing.

    Reference: `pywt.wavedec`.
    """
    bank = as_bank(wavelet)
    details = []
    for _ in range(level):
        low, high = _analyse(x, bank, mode, lengths)
        details.append(high)
        x = low
        if lengths is not None:
            lengths = coefficients_of(lengths, len(bank), mode)
    return [x, *reversed(details)]


def idwt(
    coefficients: Sequence[Tensor],
    wavelet: str | FilterBank,
    mode: str = "periodization",
    length: int | None = None,
    lengths: Tensor | None = None,
) -> Tensor:
    """The inverse of `dwt`.

    Args:
        coefficients: [a_J, d_J, ..., d_1], each (B, K, D).
        wavelet: as for `dwt`.
        mode: as for `dwt`.
        length: L of the result; the longest that the coefficients give where None.
        lengths: as for `dwt`.

    Returns:
        (B, L, D).

    Reference: `pywt.waverec`.
    """
    bank = as_bank(wavelet)
    x, *details = coefficients
    tokens = _lengths_by_level(lengths, len(details), bank, mode)
    for detail, count in zip(details, tokens, strict=True):
        x = x[:, : detail.shape[1]]  # one too many where the level above had an odd number
        x = _synthesise(x, detail, bank, mode, count)
    if length is None:
        return x
    return x[:, :length]


def wavelet_mix(
    x: Tensor,
    weights: Tensor,
    wavelet: str | FilterBank,
    mode: str = "periodization",
    *,
    include_approx: bool = True,
    lengths: Tensor | None = None,
) -> Tensor:
    """IDWT({alpha_j d_j}, alpha_A a_J): every band of the sequence with a weight of its own.

    Equal to sum_j alpha_j x^(j) with x^(j) the sequence rebuilt from band j alone.

    Args:
        x: (B, L, D), of any number format; computed in fp32 at least.
        weights: (J,) alpha_1 .. alpha_J of the details, finest first, or (J+1,) with alpha_A of the
            approximation last.
        wavelet: as for `dwt`.
        mode: as for `dwt`.
        include_approx: whether the last weight is the approximation's; without it that band is
            dropped.
        lengths: as for `dwt`.

    Returns:
        (B, L, D), in the dtype of x. With lengths, what stands behind a sample's tokens means
        nothing.

    Reference: MDFWA, Sec. 3.3, read as the inverse transform of the weighted coefficients.
    """
    return _MIX(x, weights, as_bank(wavelet), mode, include_approx, lengths)


def _shifts(
    x: Tensor,
    weights: Tensor,
    bank: FilterBank,
    mode: str,
    include_approx: bool,
    lengths: Tensor | None,
) -> Tensor:
    level = len(weights) - include_approx
    approximation, *details = dwt(wide(x), bank, mode, level, lengths)
    weighted = [
        detail * weight for detail, weight in zip(details, weights[:level].flip(0), strict=True)
    ]
    if include_approx:
        kept = approximation * weights[level]
    else:
        kept = torch.zeros_like(approximation)
    return idwt([kept, *weighted], bank, mode, x.shape[1], lengths).to(x.dtype)


_MIX = Operation("wavelet.mix", reference=_shifts)


def _fits(
    x: Tensor,
    weights: Tensor,
    bank: FilterBank,
    mode: str,
    include_approx: bool,
    lengths: Tensor | None,
) -> bool:
    """Whether the kernel takes it."""
    whole = lengths is None or lengths.shape == x.shape[:1]
    return kernels_run(x, weights, lengths) and whole and weights.dtype == torch.float32


@_MIX.implementation("triton", devices=("cuda",), dtypes=FORMATS, when=_fits)
def _triton(
    x: Tensor,
    weights: Tensor,
    bank: FilterBank,
    mode: str,
    include_approx: bool,
    lengths: Tensor | None,
) -> Tensor:
    from subquad_plugins.wavelet.kernel import Mix

    return Mix.apply(x, weights, bank, mode, include_approx, lengths)  # pyright: ignore[reportReturnType]


@_MIX.implementation("conv1d", chosen=False, when=lambda x, *_: x.shape[1] > 1)
def _conv1d(
    x: Tensor,
    weights: Tensor,
    bank: FilterBank,
    mode: str,
    include_approx: bool,
    lengths: Tensor | None,
) -> Tensor:
    """Each channel of each sample as a sequence of its own. A single token has details by
    rounding errors alone.
    """
    width = len(bank)
    channels = x.shape[2]
    dtype = x.dtype
    x = wide(x)
    taps = x.new_tensor([[bank.dec_low[::-1]], [bank.dec_high[::-1]]])
    back = x.new_tensor([[bank.rec_low], [bank.rec_high]])
    level = len(weights) - include_approx
    low = x.transpose(1, 2).flatten(0, 1)[..., None]
    counts = None if lengths is None else lengths.repeat_interleave(channels)
    sides = []
    for _ in range(level):
        before, after = window(low.shape[1], width, mode)[1:]
        around = _continued(low, counts, before, after, mode)
        bands = _convolved(taps, around.shape[1], around.mT, back=False)
        if counts is not None:
            counts = coefficients_of(counts, width, mode)
        sides.append((bands[:, 1:], low.shape[1], counts))
        low = bands[:, :1].mT
    if include_approx:
        low = low * weights[level]
    else:
        low = torch.zeros_like(low)
    more, outside, start = _inverse_window(width, mode)
    upwards = zip(weights[:level].flip(0), reversed(sides), strict=True)
    for weight, (high, length, counts) in upwards:
        bands = torch.cat([low[:, : high.shape[2]], high.mT * weight], 2)
        bands = _continued(bands, counts, more, more, outside)
        spread = 2 * (bands.shape[1] - 1) + width
        tokens = _convolved(back, spread, bands.mT, back=True)
        low = tokens[..., start : start + length].mT
    return low[..., 0].unflatten(0, (-1, channels)).transpose(1, 2).to(dtype)


def _convolved(taps: Tensor, length: int, x: Tensor, *, back: bool) -> Tensor:
    """Every second value of two filters, or its transpose, differentiable. What is given as
    float32 is computed as such in both passes: cuDNN would take TF32.

    Args:
        taps: (2, 1, F).
        length: T, of the longer side.
        x: (N, 1, T), or (N, 2, M) where `back`.

    Returns:
        (N, 2, M), or (N, 1, T) where `back`.
    """
    odd = (length - taps.shape[2]) % 2

    def down(tokens: Tensor) -> Tensor:
        with _exact():
            return functional.conv1d(tokens, taps, stride=2)

    def up(bands: Tensor) -> Tensor:
        with _exact():
            return functional.conv_transpose1d(bands, taps, stride=2, output_padding=odd)

    maps = (up, down) if back else (down, up)
    return linear_map(*maps, x)


def _exact() -> AbstractContextManager[None]:
    """A compiler takes the switches as they are where it is called."""
    return nullcontext() if torch.compiler.is_compiling() else single_precision()


def as_bank(wavelet: str | FilterBank) -> FilterBank:
    """The filters of a wavelet that is given by name or by its filters."""
    if isinstance(wavelet, str):
        return filter_bank(wavelet)
    return wavelet


def coefficients_of(tokens: Any, width: int, mode: str) -> Any:
    """How many coefficients a level makes of so many tokens, a number or a tensor of them."""
    return (tokens + (1 if mode == "periodization" else width - 1)) // 2


def _lengths_by_level(
    lengths: Tensor | None, level: int, bank: FilterBank, mode: str
) -> list[Tensor | None]:
    """How many coefficients each sample has at level J, ..., 1."""
    counts: list[Tensor | None] = []
    for _ in range(level):
        if lengths is not None:
            lengths = coefficients_of(lengths, len(bank), mode)
        counts.insert(0, lengths)
    return counts


def window(length: int, width: int, mode: str) -> tuple[int, int, int]:
    """Coefficients that a level makes of `length` tokens, and how many tokens it needs before
    and after them.
    """
    count = coefficients_of(length, width, mode)
    before = width // 2 - 1 if mode == "periodization" else width - 2
    return count, before, 2 * count + width - 2 - before - length


def _inverse_window(width: int, mode: str) -> tuple[int, str, int]:
    """Coefficients that the inverse needs at either end, how they go on there, and where its
    tokens then begin.
    """
    if mode == "periodization":
        return width // 4, "periodic", width // 2 - 1 + 2 * (width // 4)
    return 0, "zero", width - 2


def _continued(x: Tensor, lengths: Tensor | None, before: int, after: int, mode: str) -> Tensor:
    if lengths is None:
        return extend(x, before, after, mode)
    return extend_each(x, lengths, before, after, mode)


def _analyse(
    x: Tensor, bank: FilterBank, mode: str, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    """One level: approximation and details, (B, K, D) each."""
    count, before, after = window(x.shape[1], len(bank), mode)
    x = _continued(x, lengths, before, after, mode)
    low = bank.dec_low[::-1]
    high = bank.dec_high[::-1]

    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        return _down(x, low, count), _down(x, high, count)

    def transpose(grad_low: Tensor, grad_high: Tensor) -> Tensor:
        return _up((grad_low, grad_high), (low, high))

    return linear_map(forward, transpose, x)


def _synthesise(
    low: Tensor, high: Tensor, bank: FilterBank, mode: str, counts: Tensor | None
) -> Tensor:
    """One level back: (B, K, D) twice to (B, 2K, D) with periodization, else (B, 2K - F + 2, D)."""
    width = len(bank)
    count = low.shape[1]
    more, outside, start = _inverse_window(width, mode)
    if mode == "periodization":
        length = 2 * count
    else:
        length = 2 * count - width + 2
    low, high = (_continued(band, counts, more, more, outside) for band in (low, high))
    taps = bank.rec_low, bank.rec_high
    count += 2 * more
    end = 2 * count + width - 2

    def forward(low: Tensor, high: Tensor) -> Tensor:
        return _up((low, high), taps)[:, start : start + length]

    def transpose(grad: Tensor) -> tuple[Tensor, Tensor]:
        grad = torch.nn.functional.pad(grad, (0, 0, start, end - start - length))
        return _down(grad, taps[0], count), _down(grad, taps[1], count)

    return linear_map(forward, transpose, low, high)


def _down(x: Tensor, taps: Taps, count: int) -> Tensor:
    """y_k = sum_i taps_i x_{2k+i} for k < count, (B, count, D)."""
    out = x[:, : 2 * count - 1 : 2] * taps[0]
    for i, tap in enumerate(taps):
        if i and tap:
            out.add_(x[:, i : i + 2 * count - 1 : 2], alpha=tap)
    return out


def _up(sequences: tuple[Tensor, Tensor], taps: tuple[Taps, Taps]) -> Tensor:
    """The transpose of `_down`, summed over both sequences: y_m = sum_k taps_{m-2k} x_k, (B, 2 K
    + F - 2, D).
    """
    count = sequences[0].shape[1]
    out = sequences[0].new_zeros(
        sequences[0].shape[0], 2 * count + len(taps[0]) - 2, sequences[0].shape[2]
    )
    for x, filter_taps in zip(sequences, taps, strict=True):
        for i, tap in enumerate(filter_taps):
            if tap:
                out[:, i : i + 2 * count - 1 : 2].add_(x, alpha=tap)
    return out
