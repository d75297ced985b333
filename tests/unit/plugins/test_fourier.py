"""Fourier mixing against its oracle, its algebra, and its behaviour at the edges."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from subquad.errors import PluginError
from subquad.plugin import Site
from subquad_plugins.fourier import PLUGIN, Config
from subquad_plugins.fourier.chirp import chirp, sample_fft
from subquad_plugins.fourier.mixer import Fourier
from subquad_plugins.fourier.naive import fourier
from subquad_plugins.fourier.transform import fourier_mix, learned_fourier

FORMS = ["re_seq", "re_2d", "hartley"]
CONFIGS = [{}, *PLUGIN.variants.values(), {"form": "hartley", "frequencies": "learned", "terms": 14}]


def build(*, dim=6, max_len=24, dtype=torch.float64, **params: Any) -> Any:
    """A mixer none of whose parameters is at its start."""
    torch.manual_seed(1)
    mixer = Fourier(Config(**params), Site(dim=dim, max_len=max_len)).to(dtype)
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return mixer


def tokens(batch=3, length=11, dim=6, dtype=torch.float64) -> torch.Tensor:
    return torch.randn(batch, length, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(3)).to(dtype)


def padded_everywhere(length=11) -> torch.Tensor:
    """Padding after, before and between the real tokens."""
    keep = torch.ones(3, length, dtype=torch.bool)
    keep[0, length // 2 + 1 :] = False
    keep[1, : length // 3] = False
    keep[2, 1:2] = False
    return keep


def close(got: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    assert got.shape == expected.shape
    got, expected = got.detach(), expected.detach()
    assert float((got - expected).abs().max()) <= tolerance * max(1.0, float(expected.abs().max()))


def allowed(config: Config) -> float:
    """Rounding, and what interpolation between whole frequencies may miss of 24 tokens: 2 (pi / 4)^P / P! of each."""
    if config.frequencies == "fixed":
        return 1e-12
    return 1e-12 + 24 * 2 * (math.pi / 4) ** config.terms / math.factorial(config.terms)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("norm", ["paper", "ortho"])
@pytest.mark.parametrize(("length", "dim"), [(1, 4), (2, 1), (7, 5), (16, 6), (31, 3)])
@pytest.mark.parametrize("masked", [False, True])
def test_transform_and_gradient_equal_the_oracle(form, norm, length, dim, masked):
    x = tokens(3, length, dim).requires_grad_()
    keep = padded_everywhere(length) if masked else None
    y, expected = fourier_mix(x, form, norm, keep), fourier(x, form, norm, keep=keep)
    close(y, expected, 1e-13)
    cotangent = tokens(3, length, dim).flip(1)
    (got,), (wanted,) = (torch.autograd.grad((out * cotangent).sum(), x) for out in (y, expected))
    close(got, wanted, 1e-13)


@pytest.mark.parametrize("params", CONFIGS, ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_mixer_equals_the_oracle(params, masked):
    mixer, x = build(**params), tokens()
    config, keep = mixer.config, padded_everywhere() if masked else None
    value = x if mixer.value is None else mixer.value(x)
    omega = None if mixer.offset is None else mixer.omega(11)
    expected = fourier(value, config.form, config.norm, omega, keep, config.length)
    expected = expected if mixer.out is None else mixer.out(expected)
    close(mixer(x, keep=keep), expected, allowed(config))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("masked", [False, True])
def test_gradient_of_the_gradient(form, masked):
    x, keep = tokens(3, 7, 5).requires_grad_(), padded_everywhere(7) if masked else None
    seconds = []
    for mixed in (fourier_mix(x, form, keep=keep), fourier(x, form, "ortho", keep=keep)):
        (first,) = torch.autograd.grad(mixed.sin().sum(), x, create_graph=True)
        seconds.append(torch.autograd.grad(first.cos().sum(), x)[0])
    close(seconds[0], seconds[1], 1e-13)


@given(length=st.integers(1, 40), dim=st.integers(1, 5), form=st.sampled_from(FORMS), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_the_matrix_is_symmetric(length, dim, form, seed):
    generator = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(1, length, dim, generator=generator, dtype=torch.float64) for _ in range(2))
    left, right = (x * fourier_mix(y, form)).sum(), (y * fourier_mix(x, form)).sum()
    assert float((left - right).abs()) <= 1e-12 * length * dim


@given(length=st.integers(1, 40), masked=st.booleans())
@settings(max_examples=30, deadline=None)
def test_hartley_twice_is_the_input_times_its_length(length, masked):
    x = tokens(2, length, 3)
    keep = torch.ones(2, length, dtype=torch.bool) if masked else None
    close(fourier_mix(fourier_mix(x, "hartley", "paper", keep), "hartley", "paper", keep), length * x, 1e-12)
    close(fourier_mix(fourier_mix(x, "hartley", "ortho", keep), "hartley", "ortho", keep), x, 1e-12)


def test_rank_of_each_form():
    """The real part loses what is odd under k <-> N - k; Hartley's transform loses nothing."""
    one_hot = torch.eye(16, dtype=torch.float64)[:, :, None]
    ranks = {form: int(torch.linalg.matrix_rank(fourier_mix(one_hot, form)[..., 0])) for form in ("re_seq", "hartley")}
    assert ranks == {"re_seq": 9, "hartley": 16}


@pytest.mark.parametrize(("terms", "error"), [(6, 4e-4), (8, 5e-6), (10, 4e-8), (12, 2e-10), (16, 4e-14)])
@pytest.mark.parametrize("form", FORMS)
def test_learned_frequencies_to_the_stated_error(terms, error, form):
    x = torch.randn(2, 64, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    offset = torch.rand(64, dtype=torch.float64, generator=torch.Generator().manual_seed(6)) - 0.5
    omega = torch.arange(64) + offset
    expected = fourier(x, form, "paper", omega)
    close(learned_fourier(x, omega, terms, form), expected, error)


def test_gradient_of_the_frequencies():
    x, omega = tokens(2, 12, 3).requires_grad_(), torch.linspace(-3, 14, 12, dtype=torch.float64).requires_grad_()
    cotangent = tokens(2, 12, 3).flip(1)
    for terms, tolerance in ((8, 4e-5), (10, 3e-7), (12, 1e-9), (20, 1e-12)):
        got = torch.autograd.grad((learned_fourier(x, omega, terms) * cotangent).sum(), [x, omega])
        wanted = torch.autograd.grad((fourier(x, "re_seq", "paper", omega) * cotangent).sum(), [x, omega])
        for ours, theirs in zip(got, wanted, strict=True):
            close(ours, theirs, tolerance)


def test_learned_frequencies_start_as_the_fixed_ones():
    mixer = Fourier(Config(frequencies="learned"), Site(dim=6, max_len=16)).double()
    close(mixer(tokens()), fourier_mix(tokens()), 1e-14)
    assert mixer.omega(3).tolist() == [0.0, 1.0, 2.0]
    assert not mixer.parameter_rules()["offset"].weight_decay


def test_small_steps_of_high_frequencies_are_kept_in_fp32():
    mixer = Fourier(Config(frequencies="learned"), Site(dim=1, max_len=5000))
    assert mixer.offset is not None
    with torch.no_grad():
        mixer.offset.fill_(1e-5)
    assert float(mixer.omega(5000)[4999].detach()) - 4999 == pytest.approx(1e-5)


@pytest.mark.parametrize("params", [{}, {"form": "re_2d"}, {"form": "hartley", "frequencies": "learned"}], ids=str)
@pytest.mark.parametrize("before", [0, 3])
def test_outputs_do_not_depend_on_padding(params, before):
    mixer, x = build(**params), tokens(1, 9)
    alone = mixer(x)
    row = torch.full((1, before + 9 + 4, 6), math.nan, dtype=torch.float64)
    row[:, before : before + 9] = x
    keep = ~row[..., 0].isnan()
    out = mixer(row, keep=keep)
    close(out[:, before : before + 9], alone, 1e-12)
    assert bool((out[~keep] == 0).all())


def test_padded_length_counts_zeros():
    mixer, x = build(length="padded", form="re_2d"), tokens()
    keep = padded_everywhere()
    assert torch.equal(mixer(x, keep=keep), mixer(x * keep[..., None]))
    assert not torch.allclose(mixer(x, keep=keep)[0, :3], build(form="re_2d")(x, keep=keep)[0, :3])


@pytest.mark.parametrize("params", CONFIGS, ids=str)
def test_samples_are_independent_and_empty_ones_finite(params):
    mixer, x, keep = build(**params), tokens().requires_grad_(), padded_everywhere()
    keep[1] = False
    out = mixer(x, keep=keep)
    (gradient,) = torch.autograd.grad(out.square().sum(), x)
    assert bool(out.isfinite().all())
    assert bool(gradient.isfinite().all())
    other = x.detach().clone()
    other[1:] = 1e3 * other[1:].flip(1)
    assert torch.equal(mixer(other, keep=keep)[0], out[0])


@pytest.mark.parametrize("params", CONFIGS, ids=str)
def test_every_parameter_has_a_gradient(params):
    mixer = build(**params)
    x = tokens().requires_grad_()
    mixer(x, keep=padded_everywhere()).square().sum().backward()
    assert x.grad is not None
    assert all(parameter.grad is not None and bool(parameter.grad.any()) for parameter in mixer.parameters())


@pytest.mark.parametrize("params", CONFIGS, ids=str)
@pytest.mark.parametrize("length", [1, 13, 24])
def test_low_precision_and_strided_input(params, length):
    exact, mixer = build(**params), build(**params).float()
    x = tokens(3, length)
    expected = exact(x)
    close(mixer(x.float()).double(), expected, 2e-5)
    strided = x.float().transpose(1, 2).contiguous().transpose(1, 2)
    close(mixer(strided).double(), expected, 2e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = mixer(x.float())
    assert low.dtype == (torch.float32 if mixer.out is None else torch.bfloat16)
    close(low.double(), expected, 3e-2)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("frequencies", ["fixed", "learned"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("inside", [False, True], ids=["backward outside", "backward inside"])
def test_autocast_changes_nothing_without_projections(form, frequencies, masked, inside):
    mixer = build(dtype=torch.float32, form=form, frequencies=frequencies)
    x, keep = tokens(dtype=torch.float32).requires_grad_(), padded_everywhere() if masked else None
    expected = mixer(x, keep=keep)
    wanted = torch.autograd.grad(expected.sin().sum(), [x, *mixer.parameters()])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = mixer(x, keep=keep)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=inside):
            got = torch.autograd.grad(out.sin().sum(), [x, *mixer.parameters()])
    close(out, expected, 1e-6)
    for ours, theirs in zip(got, wanted, strict=True):
        close(ours, theirs, 1e-6)


@pytest.mark.parametrize(("frequencies", "function"), [("fixed", fourier_mix), ("learned", learned_fourier)])
def test_transforms_are_computed_outside_autocast(frequencies, function, monkeypatch):
    """On a CPU autocast changes no operation that is used here; elsewhere it may."""
    seen = []

    def spied(*args: Any) -> torch.Tensor:
        seen.append(torch.is_autocast_enabled("cpu"))
        return function(*args)

    monkeypatch.setattr(f"subquad_plugins.fourier.mixer.{function.__name__}", spied)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        build(frequencies=frequencies)(tokens())
    assert seen == [False]


def test_half_precision_is_transformed_in_fp32():
    x = tokens(2, 64, 4, torch.bfloat16)
    y = fourier_mix(x, "hartley")
    assert y.dtype == torch.bfloat16
    close(y.double(), fourier_mix(x.double(), "hartley"), 2**-8)


def test_whole_phases_at_length_4096_in_fp32():
    """In fp32 pi n^2 / N itself would be wrong by 1e-4 and more; the reduced integer is right to rounding."""
    n = torch.arange(4096)
    got = chirp(n, 4096, torch.float32)
    whole = torch.tensor([int(k) ** 2 % 8192 for k in n.tolist()], dtype=torch.float64)
    exact = torch.polar(torch.ones_like(whole), -math.pi * whole / 4096)
    assert float((got - exact).abs().max()) < 1e-7
    x = torch.randn(1, 4096, 1, generator=torch.Generator().manual_seed(0))
    close(sample_fft(x, torch.tensor([4096])).abs(), torch.fft.fft(x, dim=1).abs(), 2e-6)


@pytest.mark.ci
@pytest.mark.parametrize("params", [{}, {"form": "re_2d", "frequencies": "learned"}], ids=str)
def test_compiled_equals_eager(params):
    torch.compiler.reset()
    mixer, x, keep = build(**params), tokens().requires_grad_(), padded_everywhere()
    results = []
    for run in (mixer, torch.compile(mixer, backend="aot_eager", fullgraph=True)):
        out = run(x, keep=keep)
        results.append((out, *torch.autograd.grad(out.square().sum(), [x, *mixer.parameters()])))
    for ours, theirs in zip(*results, strict=True):
        close(ours, theirs, 1e-13)


@pytest.mark.parametrize("config", [Config(), Config(form="re_2d", length="padded", norm="paper")], ids=str)
def test_the_bare_operator_has_no_parameters(config):
    mixer = Fourier(config, Site(dim=6))
    assert not mixer.state_dict()
    assert mixer(tokens(dtype=torch.float32)).shape == (3, 11, 6)


def test_facts():
    facts = PLUGIN.facts_of(Config())
    assert (facts.padding_invariant, facts.max_length, facts.leak) == (True, None, 1e-12)
    assert not PLUGIN.facts_of(Config(length="padded")).padding_invariant
    assert PLUGIN.facts_of(Config(frequencies="learned")).max_length == "site"
    for params in PLUGIN.variants.values():
        Config(**params)


def test_settings_without_effect_are_refused():
    with pytest.raises(ValueError, match="terms 10 has no effect with frequencies fixed: leave it at 8"):
        Config(terms=10)


def test_lengths_that_do_not_fit_are_refused():
    with pytest.raises(PluginError, match="learned frequencies need the length of the longest sequence"):
        Fourier(Config(frequencies="learned"), Site(dim=4))
    mixer = build(frequencies="learned", max_len=8)
    with pytest.raises(PluginError, match="got 11 positions, and learned frequencies for 8"):
        mixer(tokens())
