"""Wavelet transforms against PyWavelets, and their algebra."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from subquad_plugins.wavelet import Mode
from subquad_plugins.wavelet.atrous import atrous, atrous_mix
from subquad_plugins.wavelet.dwt import dwt, idwt, wavelet_mix
from subquad_plugins.wavelet.extension import extend, extend_each
from subquad_plugins.wavelet.filters import filter_bank, reach

pywt: Any = import_module("pywt")

MODES = get_args(Mode)
FEW = [
    "haar",
    "db2",
    "db4",
    "db7",
    "sym4",
    "coif1",
    "bior2.2",
    "bior3.1",
    "rbio1.5",
    "bior6.8",
    "dmey",
]
LENGTHS = [1, 2, 3, 8, 13, 64, 257, 1000]
PR_LIMIT = 5e-11
"""How well the published filters rebuild a sequence."""


def tokens(length: int, batch: int = 2, width: int = 2, seed: int = 0) -> torch.Tensor:
    return torch.randn(
        batch, length, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )


def reference(x: torch.Tensor, wavelet: str, mode: str, level: int) -> list[np.ndarray]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Level value of")
        return pywt.wavedec(x.numpy(), wavelet, mode=mode, level=level, axis=1)


def reflectable(mode: str, length: int, level: int, width: int) -> bool:
    """PyWavelets will not reflect a single token; we repeat it."""
    for _ in range(level):
        if length == 1 and mode in ("reflect", "antireflect"):
            return False
        length = (length + width - 1) // 2
    return True


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wavelet", FEW)
def test_equal_to_pywavelets_in_every_mode_and_length(mode, wavelet):
    width = len(filter_bank(wavelet))
    for length in LENGTHS:
        x = tokens(length)
        for level in (1, 3, 6):
            if not reflectable(mode, length, level, width):
                continue
            expected = reference(x, wavelet, mode, level)
            got = dwt(x, wavelet, mode, level)
            scale = max(1.0, *(float(np.abs(part).max()) for part in expected))
            limit = (
                1e-11 if mode == "smooth" else 1e-13
            ) * scale  # smooth runs off the scale in short sequences
            for ours, theirs in zip(got, expected, strict=True):
                assert ours.shape == theirs.shape
                assert float((ours - torch.from_numpy(theirs)).abs().max()) <= limit
            back = torch.from_numpy(pywt.waverec(expected, wavelet, mode=mode, axis=1))
            assert float((idwt(got, wavelet, mode, length) - back[:, :length]).abs().max()) <= limit


@pytest.mark.parametrize("mode", ["periodization", "symmetric"])
def test_all_wavelets_equal_pywavelets(mode):
    x = tokens(50, batch=1)
    for wavelet in pywt.wavelist(kind="discrete"):
        for ours, theirs in zip(
            dwt(x, wavelet, mode, 2), reference(x, wavelet, mode, 2), strict=True
        ):
            assert float((ours - torch.from_numpy(theirs)).abs().max()) <= 1e-12, wavelet


@settings(max_examples=60)
@given(
    length=st.integers(1, 200),
    level=st.integers(1, 8),
    mode=st.sampled_from([mode for mode in MODES if mode != "smooth"]),
    wavelet=st.sampled_from(["haar", "db2", "db4", "sym6", "coif2", "bior2.4", "rbio3.3"]),
)
def test_the_inverse_gives_the_sequence_back(length, level, mode, wavelet):
    x = tokens(length)
    rebuilt = idwt(dwt(x, wavelet, mode, level), wavelet, mode, length)
    assert rebuilt.shape == x.shape
    assert float((rebuilt - x).abs().max()) <= PR_LIMIT


@settings(max_examples=40)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    level=st.integers(1, 5),
    mode=st.sampled_from([mode for mode in MODES if mode != "smooth"]),
    wavelet=st.sampled_from(["haar", "db3", "bior2.2"]),
)
def test_samples_of_different_lengths_are_mixed_as_if_alone(lengths, level, mode, wavelet):
    x = tokens(max(lengths), batch=len(lengths))
    weights = torch.linspace(0.1, 1.0, level + 1, dtype=torch.float64)
    together = wavelet_mix(x, weights, wavelet, mode, lengths=torch.tensor(lengths))
    for b, length in enumerate(lengths):
        alone = wavelet_mix(x[b : b + 1, :length], weights, wavelet, mode)
        torch.testing.assert_close(together[b : b + 1, :length], alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("length", "before", "after"), [(1, 3, 2), (2, 7, 7), (5, 4, 1), (6, 20, 13)]
)
def test_extensions_equal_pywavelets_and_each_other(mode, length, before, after):
    x = tokens(length, batch=1)
    got = extend(x, before, after, mode)
    each = extend_each(torch.cat([x, x], 1), torch.tensor([length]), before, after, mode)
    torch.testing.assert_close(got, each[:, : before + length + after], rtol=0, atol=1e-12)
    if mode == "periodization":
        whole = torch.cat([x, x[:, -1:]], 1) if length % 2 else x
        place = torch.arange(-before, length + after) % whole.shape[1]
        torch.testing.assert_close(got, whole[:, place])
    elif reflectable(mode, length, 1, 2) and (
        mode != "smooth" or length > 1
    ):  # pywt.pad and pywt.dwt differ there
        for channel in range(2):
            padded = pywt.pad(x[0, :, channel].numpy(), (before, after), mode)
            torch.testing.assert_close(
                got[0, :, channel], torch.from_numpy(padded), rtol=0, atol=1e-12
            )


@pytest.mark.ci
@pytest.mark.parametrize("mode", ["periodization", "symmetric", "antireflect", "smooth"])
@pytest.mark.parametrize("length", [1, 6, 9])
def test_gradients_of_any_order(mode, length):
    x = tokens(length, batch=1, width=1).requires_grad_()
    weights = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64, requires_grad=True)

    def mixed(x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return wavelet_mix(x, weights, "db2", mode)

    assert torch.autograd.gradcheck(mixed, (x, weights))
    assert torch.autograd.gradgradcheck(mixed, (x, weights))
    assert torch.autograd.gradcheck(lambda x, w: atrous_mix(x, w, "db2"), (x, weights))
    assert torch.autograd.gradgradcheck(lambda x, w: atrous_mix(x, w, "db2"), (x, weights))


@pytest.mark.parametrize(("wavelet", "centre"), [("haar", 1), ("db4", 4)])
def test_one_sided_bands_are_those_of_swt_shifted_where_the_history_is_long_enough(wavelet, centre):
    level, length = 3, 128
    x = tokens(length)
    ours = atrous(x, wavelet, level)
    theirs = pywt.swt(x.numpy(), wavelet, level, axis=1, trim_approx=True, norm=True)
    start = reach(filter_bank(wavelet), level)
    for place, (band, other) in enumerate(zip(ours, theirs, strict=True)):
        scales = level if place == 0 else level + 1 - place
        shifted = np.roll(other, (2**scales - 1) * centre, axis=1)
        torch.testing.assert_close(
            band[:, start:], torch.from_numpy(shifted)[:, start:], rtol=0, atol=1e-12
        )


def test_an_unknown_wavelet_is_refused_by_name():
    with pytest.raises(
        ValueError, match="there is no discrete wavelet 'morl'; there is haar, db1 to db38"
    ):
        dwt(tokens(8), "morl")
