"""Wavelet mixing as it is defined, sample by sample and channel by channel with PyWavelets: the
oracle.

Letters: B batch, L length, D model width, J levels, alpha weights of the scales.
Reference: MDFWA (arXiv 2111.15473v2), Sec. 3.3 and 5.2; readings in
docs/reference/mixers/wavelet.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

from subquad_plugins.wavelet.filters import filter_bank

pywt: Any = import_module("pywt")  # type checkers cannot see its names


def wavelet_branch(
    x: Tensor,
    alpha: Tensor,
    P: Tensor,
    *,
    wavelet: str,
    mode: str = "periodization",
    atrous: bool = False,
    include_approx: bool = True,
    keep: Tensor | None = None,
) -> Tensor:
    """X~ = IDWT({alpha_j W^(j)}) P^T, or (sum_j alpha_j W^(j)) P^T with undecimated one-sided
    coefficients.

    Args:
        x: (B, L, D).
        alpha: (J,), or (J+1,) with the approximation's weight last.
        P: (D, D).
        wavelet: PyWavelets' name.
        mode: PyWavelets' name of the extension.
        atrous: undecimated and one-sided.
        include_approx: whether alpha has a weight for the approximation, which is dropped
            otherwise.
        keep: (B, L) bool, True = real token.

    Returns:
        (B, L, D), zero at padding.
    """
    level = len(alpha) - include_approx
    out = torch.zeros_like(x)
    for b, sample in enumerate(x):
        if keep is None:
            real = torch.ones(len(sample), dtype=torch.bool)
        else:
            real = keep[b]
        length = int(real.sum())
        if length:
            if atrous:
                one_sided = atrous_matrices(length, wavelet, level)
            else:
                one_sided = None
            bands = (one_sided or band_matrices(length, wavelet, mode, level))[: len(alpha)]
            mixing = torch.einsum("j,jnm->nm", alpha, torch.from_numpy(np.stack(bands)).to(x))
            out[b, real] = mixing @ sample[real] @ P.T
    return out


def band_matrices(length: int, wavelet: str, mode: str, level: int) -> list[np.ndarray]:
    """Matrices that rebuild a sequence from one band: d_1, ..., d_J, a_J; each (L, L). Their sum
    is the identity.
    """
    columns = [_bands(unit, wavelet, mode, level) for unit in np.eye(length)]
    return [np.stack(column, 1) for column in zip(*columns, strict=True)]


def _bands(x: np.ndarray, wavelet: str, mode: str, level: int) -> list[np.ndarray]:
    coefficients = _wavedec(x, wavelet, mode, level)
    rebuilt = []
    for kept in range(level + 1):
        only: list[Any] = [c if i == kept else np.zeros_like(c) for i, c in enumerate(coefficients)]
        rebuilt.append(pywt.waverec(only, wavelet, mode)[: len(x)])
    return [*reversed(rebuilt[1:]), rebuilt[0]]


def _wavedec(x: np.ndarray, wavelet: str, mode: str, level: int) -> list[np.ndarray]:
    """`pywt.wavedec` without its warning at levels above the useful ones."""
    details: list[np.ndarray] = []
    for _ in range(level):
        # PyWavelets refuses to reflect a single token; it then stays as it is, on both sides.
        single = len(x) == 1 and mode in ("reflect", "antireflect")
        x, detail = pywt.dwt(x, wavelet, "constant" if single else mode)
        details.insert(0, detail)
    return [x, *details]


def atrous_matrices(length: int, wavelet: str, level: int) -> list[np.ndarray]:
    """Lower triangular matrices of the one-sided undecimated bands d_1, ..., d_J, a_J; each (L,
    L).
    """
    bank = filter_bank(wavelet)
    low = np.eye(length)
    bands = []
    for j in range(level):
        bands.append(_lags(bank.dec_high, 2**j, length) @ low)
        low = _lags(bank.dec_low, 2**j, length) @ low
    return [*bands, low]


def _lags(taps: tuple[float, ...], spacing: int, length: int) -> np.ndarray:
    return sum(
        (tap / np.sqrt(2) * np.eye(length, k=-i * spacing) for i, tap in enumerate(taps)),
        np.zeros((length, length)),
    )
