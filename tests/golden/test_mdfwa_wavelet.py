"""Wavelet transforms against golden coefficients: decimated, weighted and rebuilt, undecimated
one-sided.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from golden_files import arrays_of, golden_files, load_golden

from subquad_plugins.wavelet.atrous import atrous
from subquad_plugins.wavelet.dwt import dwt, idwt, wavelet_mix
from subquad_plugins.wavelet.naive import atrous_matrices

DWT_KEY = re.compile(r"N(\d+)_([a-z0-9.]+)_([a-z]+)_([ad])(\d+)")
DWT_APPROXIMATION = re.compile(r"N(\d+)_([a-z0-9.]+)_([a-z]+)_a(\d+)")
"""Once for each set of coefficients."""
MIX_KEY = re.compile(r"([a-z]+[0-9.]*)_(all|details_only)")
BAND_KEY = re.compile(r"([a-z]+[0-9.]*)_([ad])(\d+)")


def matching(kind: str, key: re.Pattern[str]) -> list[Any]:
    """(file, key's parts) of every golden file of that kind."""
    found = []
    for name in golden_files(kind):
        parts = [hit.groups() for array in arrays_of(name) if (hit := key.fullmatch(array))]
        found += [
            pytest.param(name, *part, id=f"{name}-{'-'.join(part)}") for part in sorted(set(parts))
        ]
    return found


def levels(arrays: dict[str, Any], prefix: str) -> int:
    return max(
        int(key[len(prefix) + 1 :])
        for key in arrays
        if key.startswith(prefix) and key[len(prefix)] in "ad"
    )


@pytest.mark.parametrize(
    ("name", "length", "wavelet", "mode", "band", "level"),
    matching("wavelet coefficients", DWT_KEY),
)
def test_coefficients(assert_close, name, length, wavelet, mode, band, level):
    for dtype, tolerance in [(torch.float64, 1e-12), (torch.float32, 2e-5)]:
        arrays = load_golden(name)
        prefix = f"N{length}_{wavelet}_{mode}_"
        depth = levels(arrays, prefix)
        x = arrays[f"x{length}"].to(dtype)[..., None]
        coefficients = dwt(x, wavelet, mode, depth)
        place = 0 if band == "a" else 1 + depth - int(level)
        assert_close(coefficients[place][..., 0], arrays[f"{prefix}{band}{level}"], tolerance)


@pytest.mark.parametrize(
    ("name", "length", "wavelet", "mode", "level"),
    matching("wavelet coefficients", DWT_APPROXIMATION),
)
def test_golden_coefficients_give_the_sequence_back(
    assert_close, name, length, wavelet, mode, level
):
    arrays = load_golden(name)
    prefix = f"N{length}_{wavelet}_{mode}_"
    details = [arrays[f"{prefix}d{j}"][..., None] for j in range(int(level), 0, -1)]
    rebuilt = idwt([arrays[f"{prefix}a{level}"][..., None], *details], wavelet, mode, int(length))
    # the filters' own precision: PyWavelets' too
    assert_close(rebuilt[..., 0], arrays[f"x{length}"], 5e-11)


@pytest.mark.parametrize(("name", "wavelet", "bands"), matching("wavelet mix", MIX_KEY))
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
def test_weighted_bands(assert_close, name, wavelet, bands, dtype, tolerance):
    arrays = load_golden(name)
    everything = bands == "all"
    weights = arrays["alpha"] if everything else arrays["alpha"][:-1]
    mixed = wavelet_mix(
        arrays["x"].to(dtype), weights.to(dtype), wavelet, include_approx=everything
    )
    assert_close(mixed, arrays[f"{wavelet}_{bands}"], tolerance)


@pytest.mark.parametrize(("name", "wavelet", "band", "level"), matching("wavelet bands", BAND_KEY))
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
def test_one_sided_bands(assert_close, name, wavelet, band, level, dtype, tolerance):
    arrays = load_golden(name)
    depth = levels(arrays, f"{wavelet}_")
    place = 0 if band == "a" else 1 + depth - int(level)
    assert_close(
        atrous(arrays["x"].to(dtype), wavelet, depth)[place],
        arrays[f"{wavelet}_{band}{level}"],
        tolerance,
    )


@pytest.mark.parametrize(("name", "wavelet", "band", "level"), matching("wavelet bands", BAND_KEY))
def test_the_oracle_too(assert_close, name, wavelet, band, level):
    arrays = load_golden(name)
    depth = levels(arrays, f"{wavelet}_")
    matrices = atrous_matrices(arrays["x"].shape[1], wavelet, depth)
    matrix = torch.from_numpy(matrices[depth if band == "a" else int(level) - 1])
    assert_close(matrix @ arrays["x"], arrays[f"{wavelet}_{band}{level}"], 1e-12)
