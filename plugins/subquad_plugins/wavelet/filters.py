"""Filter banks of the discrete wavelets, from PyWavelets, as plain numbers. Imports no torch.

Letters: F filter length (even), h high-pass (details), g low-pass (approximation).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any

from subquad.suggest import did_you_mean

Taps = tuple[float, ...]


@dataclass(frozen=True)
class FilterBank:
    """A wavelet's four filters, each F numbers.

    Attributes:
        name: as PyWavelets calls it.
        dec_low: g of the transform, in the order of PyWavelets: coefficient k is sum_i g_i
            x_{2k+1-i}.
        dec_high: h of the transform.
        rec_low: g of the inverse.
        rec_high: h of the inverse.
    """

    name: str
    dec_low: Taps
    dec_high: Taps
    rec_low: Taps
    rec_high: Taps

    def __len__(self) -> int:
        return len(self.dec_low)


@lru_cache(maxsize=128)
def filter_bank(name: str) -> FilterBank:
    """The filters of a discrete wavelet, orthogonal or biorthogonal.

    Raises:
        ValueError: there is no such wavelet.
    """
    pywt = _library()
    known = pywt.wavelist(kind="discrete")
    if name not in known:
        raise ValueError(
            f"there is no discrete wavelet {name!r}{did_you_mean(name, known)}; "
            "there is haar, db1 to db38, sym2 to sym20, coif1 to coif17, dmey, "
            "bior1.1 to bior6.8 and rbio1.1 to rbio6.8"
        )
    filters = [tuple(map(float, taps)) for taps in pywt.Wavelet(name).filter_bank]
    return FilterBank(name, *filters)


def _library() -> Any:
    """PyWavelets, whose names type checkers cannot see; imported only once a wavelet is asked
    for.
    """
    return import_module("pywt")


def reach(bank: FilterBank, level: int) -> int:
    """How many past inputs the last of `level` undecimated levels sees: (F - 1)(2^J - 1)."""
    return (len(bank) - 1) * (2**level - 1)
