"""The wavelet transform's kernels against the reference in float64: values and gradients, every
mode, any length, masks, number formats.
"""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from interpreted import assert_near, fill_with_nan, on_cpu

from subquad.nn.kernels import using
from subquad.plugin import Site
from subquad_plugins.wavelet import Config, Mode
from subquad_plugins.wavelet.dwt import _MIX
from subquad_plugins.wavelet.filters import filter_bank
from subquad_plugins.wavelet.mixer import Wavelet

MODES = get_args(Mode)


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    on_cpu(monkeypatch, _MIX)


def results(x, weights, wavelet, mode, lengths, forced):
    """Output and gradients, for random weights; what stands behind a sample's own tokens apart."""
    x, weights = x.detach().requires_grad_(), weights.detach().requires_grad_()
    with using({"wavelet.mix": forced} if forced else {}) as used:
        y = _MIX(x, weights, filter_bank(wavelet), mode, len(weights) % 2 == 0, lengths)
    assert used == {"wavelet.mix": forced or "triton"}
    if lengths is not None:
        own = torch.arange(x.shape[1]) < lengths[:, None]
        y = y.masked_fill(~own[..., None], 0.0)
    draw = torch.randn(y.shape, generator=torch.Generator().manual_seed(9)).to(y.dtype)
    return [y, *torch.autograd.grad((y * draw).sum(), (x, weights))]


def inputs(batch, length, dim, bands, dtype=torch.float32):
    draw = torch.Generator().manual_seed(length * dim + bands)
    x = torch.randn(batch, length, dim, generator=draw).to(dtype)
    return x, torch.rand(bands, generator=draw)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("length", "wavelet"), [(1, "db2"), (37, "db4")])
def test_values_and_gradients(monkeypatch, mode, length, wavelet):
    x, weights = inputs(1, length, 3, 3)
    expected = results(x.double(), weights.double(), wavelet, mode, None, "reference")
    fill_with_nan(monkeypatch)
    assert_near(results(x, weights, wavelet, mode, None, ""), expected, 1e-5)


@pytest.mark.parametrize("mode", ["periodization", "symmetric"])
@pytest.mark.parametrize("wavelet", ["haar", "bior2.2", "rbio3.1", "coif1", "db17"])
def test_filters(wavelet, mode):
    x, weights = inputs(1, 22, 2, 2)
    expected = results(x.double(), weights.double(), wavelet, mode, None, "reference")
    assert_near(results(x, weights, wavelet, mode, None, ""), expected, 1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_each_sample_ends_at_its_last_real_token(mode):
    x, weights = inputs(2, 13, 2, 3)
    lengths = torch.tensor([10, 1])
    x = x.masked_fill((torch.arange(13) >= lengths[:, None])[..., None], 0.0)
    expected = results(x.double(), weights.double(), "db2", mode, lengths, "reference")
    assert_near(results(x, weights, "db2", mode, lengths, ""), expected, 1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_read_and_written_as_such(dtype):
    x, weights = inputs(1, 40, 4, 3, dtype)
    got = results(x, weights, "db4", "periodization", None, "")
    assert [tensor.dtype for tensor in got] == [dtype, dtype, torch.float32]
    expected = results(x.double(), weights.double(), "db4", "periodization", None, "reference")
    assert_near(got, expected, 2 * torch.finfo(dtype).eps)


def test_channels_of_several_programs_and_any_strides():
    x, weights = inputs(1, 257, 17, 2)
    turned = x.transpose(1, 2)
    assert_near(
        results(turned, weights, "haar", "reflect", None, ""),
        results(turned.double(), weights.double(), "haar", "reflect", None, "reference"),
        1e-5,
    )


def test_the_mixer_takes_it_under_a_mask():
    x = torch.randn(2, 19, 4, generator=torch.Generator().manual_seed(1))
    keep = torch.arange(19) % 3 > torch.tensor([[-1], [0]])
    mixer = Wavelet(Config(level=2), Site(dim=4, num_heads=1))
    found = []
    for dtype, expected in ((torch.float32, "triton"), (torch.float64, "reference")):
        z = x.to(dtype).requires_grad_()
        with using() as used:
            out = mixer.to(dtype)(z, keep=keep)
            found.append([out, *torch.autograd.grad((out**2).sum(), (z, *mixer.parameters()))])
        assert used == {"wavelet.mix": expected}
    assert_near(*found, tolerance=1e-5)
