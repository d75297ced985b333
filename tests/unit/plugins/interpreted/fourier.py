"""The chirp's kernel against the reference in float64: values and gradients, longer and shorter,
order of numbers.
"""

from __future__ import annotations

import pytest
import torch
from interpreted import assert_near, fill_with_nan, on_cpu

from subquad.nn.kernels import using
from subquad.plugin import Site
from subquad_plugins.causal_fourier import Config as CausalConfig
from subquad_plugins.causal_fourier.mixer import CausalFourier
from subquad_plugins.fourier import Config
from subquad_plugins.fourier.chirp import _CHIRP
from subquad_plugins.fourier.mixer import Fourier
from subquad_plugins.fourier.transform import _MIX
from subquad_plugins.mdfwa import Config as MDFWAConfig
from subquad_plugins.mdfwa.mixer import MDFWA


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    on_cpu(monkeypatch, _CHIRP)
    on_cpu(monkeypatch, _MIX)


def widened(tensor):
    return tensor.to(torch.promote_types(tensor.dtype, torch.float64))


def parts(tensors):
    return [
        torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
        for tensor in tensors
    ]


def results(z, wave, size, real, implementation):
    """The result, its gradient by z, and the gradient of that one, for random weights."""
    z = z.detach().requires_grad_()
    with using({"fourier.chirp": implementation}) as used:
        out = _CHIRP(z, wave, size, real)
    assert used == {"fourier.chirp": implementation}
    draw = torch.Generator().manual_seed(9)
    weights, others = (
        torch.randn(2, *tensor.shape, generator=draw).to(tensor) for tensor in (out, z)
    )
    weights = (weights[0] + 1j * weights[1] if out.is_complex() else weights[0]).requires_grad_()
    (first,) = torch.autograd.grad(out, z, weights, create_graph=True)
    (second,) = torch.autograd.grad(first, weights, others[0])
    return [
        torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
        for tensor in (out, first, second)
    ]


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize(("shape", "size"), [((1, 1, 1), 1), ((2, 35, 33), 70), ((2, 71, 5), 36)])
def test_values_and_gradients(monkeypatch, shape, size, dtype, real):
    draw = torch.Generator().manual_seed(shape[1])
    z = torch.randn(shape, dtype=dtype, generator=draw).mT.contiguous().mT
    wave = torch.randn(
        (shape[0], min(shape[1], size)), dtype=torch.complex64, generator=draw
    ).conj()
    wave = wave if z.is_complex() else wave[0]
    expected = results(widened(z), widened(wave), size, real, "reference")
    fill_with_nan(monkeypatch)
    assert_near(results(z, wave, size, real, "triton"), expected)


@pytest.mark.parametrize("sign", [False, True])
def test_views_that_are_negated_or_conjugated_only_when_read(sign):
    z = torch.randn(
        2, 5, 3, dtype=torch.complex64, generator=torch.Generator().manual_seed(0)
    ).conj()
    z, wave = (z.imag if sign else z), torch.ones(5, dtype=torch.complex64)
    assert z.is_neg() if sign else z.is_conj()
    with using({"fourier.chirp": "triton"}):
        assert torch.equal(_CHIRP(z, wave, 5, False), z.resolve_neg().to(torch.complex64))


def test_what_goes_into_an_fft_has_its_numbers_side_by_side():
    z, wave = torch.ones(2, 5, 3), torch.ones(5, dtype=torch.complex64)
    with using({"fourier.chirp": "triton"}):
        assert _CHIRP(z, wave, 9, False).stride() == (27, 1, 9)


def mixed(x, form, norm, forced):
    """The transform, its gradient and the gradient of that one."""
    x = x.detach().requires_grad_()
    with using({"fourier.mix": forced}):
        y = _MIX(x, form, norm, None)
        (first,) = torch.autograd.grad((y.double() ** 3).sum(), x, create_graph=True)
        return [y, first, *torch.autograd.grad((first.double() ** 2).sum(), x)]


@pytest.mark.parametrize("form", ["re_seq", "hartley"])
@pytest.mark.parametrize(
    ("shape", "norm", "dtype"),
    [
        ((1, 1, 2), "ortho", torch.float32),
        ((2, 35, 70), "paper", torch.float32),
        ((1, 40, 6), "ortho", torch.bfloat16),
        ((1, 33, 6), "ortho", torch.float16),
    ],
)
def test_pairs_of_channels(monkeypatch, form, shape, norm, dtype):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(shape[1])).to(dtype)
    x = x.mT.contiguous().mT
    expected = mixed(x.double(), form, norm, "reference")
    fill_with_nan(monkeypatch)
    got = mixed(x, form, norm, "triton")
    assert {tensor.dtype for tensor in got} == {dtype}
    assert_near(got, expected, 2e-6 if dtype == torch.float32 else 8 * torch.finfo(dtype).eps)


MIXERS = {
    "fourier": lambda site: Fourier(Config(), site),
    "hartley": lambda site: Fourier(Config(form="hartley"), site),
    "causal": lambda site: CausalFourier(CausalConfig(evaluation="chirp"), site),
    "causal, learned": lambda site: CausalFourier(
        CausalConfig(evaluation="chirp", frequencies="learned", terms=4), site
    ),
    "mdfwa": lambda site: MDFWA(MDFWAConfig(), site),
}


@pytest.mark.parametrize("name", MIXERS)
def test_mixers_take_it(name):
    x = torch.randn(2, 37, 6, generator=torch.Generator().manual_seed(1))
    keep = torch.arange(37) < torch.tensor([[37], [20]])
    mixer = MIXERS[name](Site(dim=6, num_heads=1, max_len=37, causal="causal" in name))
    found = []
    for dtype, expected in ((torch.float32, "triton"), (torch.float64, "reference")):
        z = x.to(dtype).requires_grad_()
        with using() as used:
            out = mixer.to(dtype)(z, keep=keep)
            out = getattr(out, "out", out)[keep]
            found.append([out, *torch.autograd.grad((out**2).sum(), z)])
        assert used["fourier.chirp"] == expected
    assert_near(*found, tolerance=2e-5)
