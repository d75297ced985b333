"""The undecimated wavelet transform with one-sided filters (a trous), on (B, L, D) as it lies in
memory.

a_j[t] = sum_i g_i a_{j-1}[t - 2^{j-1} i] / sqrt(2), the details with h for g; a_0 = x, and zeros
before the start. No output sees a later token, not by a bit, and a sequence that starts later gives
the same numbers later.

Dividing by sqrt(2) (the scaling of the maximal-overlap transform) keeps the size of the
approximations from level to level; `pywt.swt` does not divide, and is centred.

Letters: B batch, L length, D width, F filter length, J levels, S tokens remembered.
Reference: Percival and Walden 2000, Wavelet Methods for Time Series Analysis, chapter 5.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from subquad_plugins.numerics.tensors import take_rows
from subquad_plugins.wavelet.dwt import as_bank
from subquad_plugins.wavelet.filters import FilterBank, Taps
from subquad_plugins.wavelet.linear import linear_map

Memory = list[Tensor]
"""Of each level the last (F - 1) 2^{j-1} inputs, (B, S, D), zeros before the start; (F - 1)(2^J
- 1) in all.
"""


def atrous(x: Tensor, wavelet: str | FilterBank, level: int = 1) -> list[Tensor]:
    """Undecimated coefficients of each channel, see the file's top.

    Args:
        x: (B, L, D), float32 or float64, L >= 1.
        wavelet: PyWavelets' name of a discrete wavelet, or its filters; those of the transform are
            used.
        level: J.

    Returns:
        [a_J, d_J, ..., d_1], each (B, L, D).
    """
    bands = []
    x = x
    for spacing, low, high in _levels(as_bank(wavelet), level):
        x, detail = _lagged(x, low, high, spacing)
        bands.append(detail)
    return [x, *reversed(bands)]


def atrous_mix(
    x: Tensor, weights: Tensor, wavelet: str | FilterBank, *, include_approx: bool = True
) -> Tensor:
    """sum_j alpha_j d_j + alpha_A a_J with the bands of `atrous`.

    Args:
        x: (B, L, D), float32 or float64.
        weights: (J,) alpha_1 .. alpha_J of the details, finest first, or (J+1,) with alpha_A of the
            approximation last.
        wavelet: as for `atrous`.
        include_approx: whether the last weight is the approximation's; without it that band is
            dropped.

    Returns:
        (B, L, D).
    """
    return weighted_sum(atrous(x, wavelet, len(weights) - include_approx), weights, include_approx)


def weighted_sum(bands: list[Tensor], weights: Tensor, include_approx: bool) -> Tensor:
    """sum_j alpha_j d_j, and alpha_A a_J where it is included, of [a_J, d_J, ..., d_1]; weights
    d_1 first.
    """
    approximation, *details = bands
    finest_first = [*reversed(details), *([approximation] if include_approx else [])]
    total = finest_first[0] * weights[0]
    for band, weight in zip(finest_first[1:], weights[1:], strict=True):
        total = total + band * weight
    return total


def remember(x: Tensor, wavelet: str | FilterBank, level: int, lengths: Tensor) -> Memory:
    """What `atrous_step` needs to go on after the first `lengths` tokens of each sample.

    Args:
        x: (B, L, D), whatever behind each sample's tokens.
        wavelet: as for `atrous`.
        level: J.
        lengths: (B,), at most L.
    """
    bank = as_bank(wavelet)
    memory = []
    for spacing, low, high in _levels(bank, level):
        memory.append(last_tokens(x, lengths, (len(bank) - 1) * spacing))
        x, _ = _lagged(x, low, high, spacing)
    return memory


def last_tokens(x: Tensor, lengths: Tensor, count: int) -> Tensor:
    """The `count` tokens before position `lengths` of each sample, zeros before the start, (B,
    count, D).
    """
    if not x.shape[1]:
        return x.new_zeros(len(x), count, x.shape[2])
    place = lengths[:, None] - count + torch.arange(count, device=x.device)
    rows = take_rows(x, place.clamp_min(0))
    return rows.masked_fill((place < 0)[..., None], 0.0)


def atrous_step(
    x: Tensor, memory: Memory, wavelet: str | FilterBank
) -> tuple[list[Tensor], Memory]:
    """`atrous` at the next token only.

    Args:
        x: (B, D).
        memory: from `remember` or the last step; left as it is. Its length is J.
        wavelet: as for `atrous`.

    Returns:
        [a_J, d_J, ..., d_1], each (B, D), and the new memory.
    """
    bands = []
    grown = []
    for past, (spacing, low, high) in zip(
        memory, _levels(as_bank(wavelet), len(memory)), strict=True
    ):
        window = torch.cat([past, x[:, None]], 1)
        grown.append(window[:, 1:])
        detail = _at_last(window, high, spacing)
        x = _at_last(window, low, spacing)
        bands.append(detail)
    return [x, *reversed(bands)], grown


def _levels(bank: FilterBank, level: int) -> Iterator[tuple[int, Taps, Taps]]:
    """Spacing 2^{j-1} and the two filters over sqrt(2), for each level."""
    low = tuple(tap / math.sqrt(2) for tap in bank.dec_low)
    high = tuple(tap / math.sqrt(2) for tap in bank.dec_high)
    for j in range(level):
        yield 2**j, low, high


def _at_last(window: Tensor, taps: Taps, spacing: int) -> Tensor:
    out = window[:, -1] * taps[0]
    for i, tap in enumerate(taps[1:], 1):
        out = out + window[:, -1 - i * spacing] * tap
    return out


def _lagged(x: Tensor, low: Taps, high: Taps, spacing: int) -> tuple[Tensor, Tensor]:
    """Both filters of a level, (B, L, D) each."""

    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        return _past(x, low, spacing), _past(x, high, spacing)

    def transpose(grad_low: Tensor, grad_high: Tensor) -> Tensor:
        return _future(grad_low, low, spacing).add_(_future(grad_high, high, spacing))

    return linear_map(forward, transpose, x)


def _past(x: Tensor, taps: Taps, spacing: int) -> Tensor:
    """y_t = sum_i taps_i x_{t - i spacing}."""
    length = x.shape[1]
    out = x * taps[0]
    for lag, tap in _lags(taps, spacing, length):
        out[:, lag:].add_(x[:, : length - lag], alpha=tap)
    return out


def _future(x: Tensor, taps: Taps, spacing: int) -> Tensor:
    """y_t = sum_i taps_i x_{t + i spacing}: the transpose of `_past`."""
    length = x.shape[1]
    out = x * taps[0]
    for lag, tap in _lags(taps, spacing, length):
        out[:, : length - lag].add_(x[:, lag:], alpha=tap)
    return out


def _lags(taps: Taps, spacing: int, length: int) -> list[tuple[int, float]]:
    """Lags within the sequence and their taps, the first apart."""
    pairs = ((i * spacing, tap) for i, tap in enumerate(taps))
    return [(lag, tap) for lag, tap in pairs if 0 < lag < length and tap]
