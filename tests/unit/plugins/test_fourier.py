"""Fourier mixing against its oracle, its algebra, and its behaviour at the edges."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tensors import assert_alike, assert_near, built, drawn, gradients, padded_everywhere

from subquad.errors import PluginError
from subquad.plugin import Site
from subquad_plugins.fourier import Config
from subquad_plugins.fourier.chirp import chirp, sample_fft
from subquad_plugins.fourier.mixer import Fourier
from subquad_plugins.fourier.naive import fourier
from subquad_plugins.fourier.transform import fourier_mix, learned_fourier

FORMS = ["re_seq", "re_2d", "hartley"]


def build(**params: Any) -> Any:
    return built("fourier", params, dim=6, max_len=params.pop("max_len", 24))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("norm", ["paper", "ortho"])
@pytest.mark.parametrize(("length", "dim"), [(1, 4), (2, 1), (7, 5), (16, 6), (31, 3)])
@pytest.mark.parametrize("masked", [False, True])
def test_transform_and_gradient_equal_the_oracle(form, norm, length, dim, masked):
    x = drawn(3, length, dim).requires_grad_()
    keep = padded_everywhere(length)[:3] if masked else None
    expected = fourier(x, form, norm, keep=keep)
    assert_alike(fourier_mix(x, form, norm, keep), expected, [x], 1e-13)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("masked", [False, True])
def test_gradient_of_the_gradient(form, masked):
    x, keep = drawn(3, 7, 5).requires_grad_(), padded_everywhere(7)[:3] if masked else None
    seconds = []
    for mixed in (fourier_mix(x, form, keep=keep), fourier(x, form, "ortho", keep=keep)):
        (first,) = torch.autograd.grad(mixed.sin().sum(), x, create_graph=True)
        seconds.append(torch.autograd.grad(first.cos().sum(), x)[0])
    assert_near(seconds[0], seconds[1], 1e-13)


@pytest.mark.parametrize(
    ("terms", "error"), [(6, 4e-4), (8, 5e-6), (10, 4e-8), (12, 2e-10), (16, 4e-14)]
)
@pytest.mark.parametrize("form", FORMS)
def test_learned_frequencies_to_the_stated_error(terms, error, form):
    x = torch.randn(2, 64, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    offset = torch.rand(64, dtype=torch.float64, generator=torch.Generator().manual_seed(6)) - 0.5
    omega = torch.arange(64) + offset
    expected = fourier(x, form, "paper", omega)
    assert_near(learned_fourier(x, omega, terms, form), expected, error)


def test_gradient_of_the_frequencies():
    x, omega = (
        drawn(2, 12, 3).requires_grad_(),
        torch.linspace(-3, 14, 12, dtype=torch.float64).requires_grad_(),
    )
    expected = fourier(x, "re_seq", "paper", omega)
    for terms, tolerance in ((8, 4e-5), (10, 3e-7), (12, 1e-9), (20, 1e-12)):
        got = gradients(learned_fourier(x, omega, terms), [x, omega])
        for ours, theirs in zip(got, gradients(expected, [x, omega]), strict=True):
            assert_near(ours, theirs, tolerance)


def test_learned_frequencies_start_as_the_fixed_ones():
    mixer = Fourier(Config(frequencies="learned"), Site(dim=6, max_len=16)).double()
    assert_near(mixer(drawn(3, 11, 6)), fourier_mix(drawn(3, 11, 6)), 1e-14)
    assert mixer.omega(3).tolist() == [0.0, 1.0, 2.0]
    assert not mixer.parameter_rules()["offset"].weight_decay


def test_small_steps_of_high_frequencies_are_kept_in_fp32():
    mixer = Fourier(Config(frequencies="learned"), Site(dim=1, max_len=5000))
    assert mixer.offset is not None
    with torch.no_grad():
        mixer.offset.fill_(1e-5)
    assert float(mixer.omega(5000)[4999].detach()) - 4999 == pytest.approx(1e-5)


def test_padded_length_counts_zeros():
    mixer, x = build(length="padded", form="re_2d"), drawn(3, 11, 6)
    keep = padded_everywhere(11)[:3]
    assert torch.equal(mixer(x, keep=keep), mixer(x * keep[..., None]))
    assert not torch.allclose(mixer(x, keep=keep)[0, :3], build(form="re_2d")(x, keep=keep)[0, :3])


@pytest.mark.parametrize(
    ("frequencies", "function"), [("fixed", fourier_mix), ("learned", learned_fourier)]
)
def test_transforms_are_computed_outside_autocast(frequencies, function, monkeypatch):
    """On a CPU autocast changes no operation that is used here; elsewhere it may."""
    states = []

    def spied(*args: Any) -> torch.Tensor:
        states.append(torch.is_autocast_enabled("cpu"))
        return function(*args)

    monkeypatch.setattr(f"subquad_plugins.fourier.mixer.{function.__name__}", spied)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        build(frequencies=frequencies)(drawn(3, 11, 6))
    assert states == [False]


def test_half_precision_is_transformed_in_fp32():
    x = drawn(2, 64, 4, dtype=torch.bfloat16)
    y = fourier_mix(x, "hartley")
    assert y.dtype == torch.bfloat16
    assert_near(y.double(), fourier_mix(x.double(), "hartley"), 2**-8)


def test_whole_phases_at_length_4096_in_fp32():
    """In fp32 pi n^2 / N itself would be wrong by 1e-4 and more; the reduced integer is right to
    rounding.
    """
    n = torch.arange(4096)
    got = chirp(n, 4096, torch.float32)
    whole = torch.tensor([int(k) ** 2 % 8192 for k in n.tolist()], dtype=torch.float64)
    exact = torch.polar(torch.ones_like(whole), -math.pi * whole / 4096)
    assert float((got - exact).abs().max()) < 1e-7
    x = torch.randn(1, 4096, 1, generator=torch.Generator().manual_seed(0))
    assert_near(sample_fft(x, torch.tensor([4096])).abs(), torch.fft.fft(x, dim=1).abs(), 2e-6)


@pytest.mark.parametrize(
    "config", [Config(), Config(form="re_2d", length="padded", norm="paper")], ids=str
)
def test_the_bare_operator_has_no_parameters(config):
    mixer = Fourier(config, Site(dim=6))
    assert not mixer.state_dict()
    assert mixer(drawn(3, 11, 6, dtype=torch.float32)).shape == (3, 11, 6)


def test_a_longer_sequence_is_refused():
    mixer = build(frequencies="learned", max_len=8)
    with pytest.raises(PluginError, match="got 11 positions, and learned frequencies for 8"):
        mixer(drawn(3, 11, 6))
