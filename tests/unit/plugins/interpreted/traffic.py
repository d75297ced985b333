"""What the kernels load and store, counted: figures of their docstrings and docs/how-to/kernels.md.

A tolerance stands for what the formulas leave out: the short side of thin attention, sums, taps,
coefficients.
"""

from __future__ import annotations

import pytest
import torch
from interpreted import Traffic, count_traffic, on_cpu

from subquad_plugins.agf.core import _CORE, Given, core
from subquad_plugins.fourier.chirp import _CHIRP
from subquad_plugins.fourier.transform import _MIX as _FOURIER
from subquad_plugins.mdfwa.fusion import _FUSION
from subquad_plugins.numerics import landmark_kernel
from subquad_plugins.numerics.jacobi import basis_steps, in_y
from subquad_plugins.sfpc import kernel as sfpc_kernel
from subquad_plugins.sfpc.fir import _FIR
from subquad_plugins.wavelet.dwt import _MIX as _WAVELETS
from subquad_plugins.wavelet.filters import filter_bank

STEPS = in_y(basis_steps("jacobi", 3, 1.5, -0.5), "unit")
BYTES = 4
"""Of a float32 number."""


@pytest.fixture
def traffic(monkeypatch: pytest.MonkeyPatch) -> Traffic:
    for operation in (_CORE, _FIR, _FUSION, _CHIRP, _FOURIER, _WAVELETS):
        on_cpu(monkeypatch, operation)
    return count_traffic(monkeypatch)


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).requires_grad_()


def assert_counted(counted: tuple[int, int], expected: tuple[float, float], unit: int) -> None:
    """Loads and stores in units of so many numbers: as expected or up to 7 % more."""
    found = [count / (BYTES * unit) for count in counted]
    for have, want in zip(found, expected, strict=True):
        assert want <= have <= 1.07 * want, (found, expected)


@pytest.mark.parametrize("few", [32, 96])
def test_thin_attention_reads_the_long_side_for_every_32_rows(
    monkeypatch: pytest.MonkeyPatch, traffic: Traffic, few: int
) -> None:
    """In one part, as where samples and heads fill the GPU; the few rows hardly count."""
    monkeypatch.setattr(landmark_kernel, "PROGRAMS", 1)
    length = 2048
    width = 32
    times = few // 32
    unit = length * width
    short = few * width / unit
    q, k, v = drawn(1, 1, few, width), drawn(1, 1, length, width), drawn(1, 1, length, width)
    for queries, keys, values in ((q, k, v), (k, q, q)):
        traffic.taken()
        out = landmark_kernel.ThinAttention.apply(queries, keys, values, None, 1.0)
        forward = traffic.taken()
        out.sum().backward()
        reads = 2 * times if queries is q else 1 + 2 * times
        assert_counted(forward, (reads, short if queries is q else 1), unit)
        written = 2 + short if queries is q else 1 + 2 * short
        assert_counted(traffic.taken(), (2 + 4 * times, written), unit)


@pytest.mark.parametrize("width", [16, 32])
@pytest.mark.parametrize("grams", [False, True])
def test_agf_reads_its_state_for_every_16_tokens(traffic: Traffic, width: int, grams: bool) -> None:
    length = 512
    unit = length * 2 * width
    tensors = [drawn(1, length, 2 * width) for _ in range(4)]
    traffic.taken()
    outputs = core(Given(*tensors, drawn(4), STEPS, None, 2, grams=grams))
    partial = 32 * width / length  # 32 parts of E x E
    forward = (4 + grams + width / 16, 1 + partial * (1 + 2 * grams + 2 / width))
    assert_counted(traffic.taken(), forward, unit)
    sum(out.sum() for out in outputs if out is not None).backward()
    backward = (5 + width / 8 + grams * width / 8, 4 + partial)
    assert_counted(traffic.taken(), backward, unit)


@pytest.mark.parametrize(("taps", "met"), [(9, 9), (17, 18)])
def test_sfpc_loads_each_token_and_its_neighbours(
    monkeypatch: pytest.MonkeyPatch, traffic: Traffic, taps: int, met: int
) -> None:
    """Tiles of 16 tokens, whose taps are met by the dozen; the sums' tokens in one run."""
    monkeypatch.setattr(sfpc_kernel, "MOST_PARTS", 1)
    x, coefficients = drawn(1, 512, 64), drawn(64, taps)
    tile = (15 + met) / 16 + met / 16
    traffic.taken()
    out = _FIR(x, coefficients, "shift", None, False)
    assert_counted(traffic.taken(), (tile, 1), x.numel())
    out.sum().backward()
    assert_counted(traffic.taken(), (tile + 2 + (taps - 1) / 512, 1 + taps / 512), x.numel())


@pytest.mark.parametrize(("mode", "back"), [("periodization", 20), ("zero", 18)])
def test_a_level_of_wavelets_loads_each_number_and_its_neighbours(
    traffic: Traffic, mode: str, back: int
) -> None:
    """Both bands of one level, N / 2 numbers each: tiles of 8 pairs and filters of 4 taps."""
    x = drawn(1, 768, 8)
    traffic.taken()
    out = _WAVELETS(x, drawn(2), filter_bank("db2"), mode, True, None)
    assert_counted(traffic.taken(), ((18 + back) / 16, 2), x.numel())
    out.sum().backward()
    # With the details, for the gradient of their weight.
    assert_counted(traffic.taken(), ((18 + back + 8) / 16, 2), x.numel())


def test_pairs_are_read_twice_before_the_fft_and_once_behind_it(traffic: Traffic) -> None:
    x = drawn(1, 64, 128)
    traffic.taken()
    out = _FOURIER(x, "hartley", "ortho", None)
    assert_counted(traffic.taken(), (3, 2), x.numel())
    out.sum().backward()
    assert_counted(traffic.taken(), (3, 2), x.numel())


@pytest.mark.parametrize(("gated", "backward"), [(False, (3, 1)), (True, (4, 3))])
def test_fusion_reads_and_writes_each_number_once(
    traffic: Traffic, gated: bool, backward: tuple[int, int]
) -> None:
    branches = [drawn(2, 64, 64) for _ in range(3)]
    if not gated:
        branches[2] = None
    traffic.taken()
    out = _FUSION(*branches, drawn(64))
    assert_counted(traffic.taken(), (2 + gated, 1), out.numel())
    out.sum().backward()
    assert_counted(traffic.taken(), backward, out.numel())


def test_the_chirp_reads_and_writes_each_number_once(traffic: Traffic) -> None:
    """A real sequence into an FFT of twice its length, and the real part out of it."""
    x = drawn(2, 64, 64).detach()
    wave = torch.ones(128, dtype=torch.complex64)
    spectrum = _CHIRP(x, wave[:64], 128, False)
    assert_counted(traffic.taken(), (1 + 2 / 32, 4), x.numel())
    _CHIRP(spectrum, wave[:64], 64, True)
    assert_counted(traffic.taken(), (2 + 2 / 32, 1), x.numel())
