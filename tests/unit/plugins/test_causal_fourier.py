"""Causal Fourier mixing against its oracle: sums, causality, padding and decoding."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tensors import assert_alike, assert_close, assert_near, built, drawn
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from subquad.errors import PluginError
from subquad.plugin import Site
from subquad_plugins.causal_fourier import Config, chirp, dense, naive
from subquad_plugins.causal_fourier.chirp import causal_fourier, chirp_sum, learned_causal_fourier
from subquad_plugins.causal_fourier.dense import interpolated_row_weights, row_scale, row_weights
from subquad_plugins.causal_fourier.mixer import CausalFourier
from subquad_plugins.causal_fourier.product import wide_product
from subquad_plugins.fourier.interpolation import node_factors

NORMS = ["paper", "ortho", "causal_rms"]
LEARNED_CHIRP = {"frequencies": "learned", "evaluation": "chirp"}


def build(*, max_len=16, **params: Any) -> Any:
    return built("causal_fourier", params, by=0.5, dim=6, max_len=max_len, causal=True)


def offsets(length: int) -> torch.Tensor:
    return torch.rand(length, dtype=torch.float64, generator=torch.Generator().manual_seed(4)) - 0.5


@pytest.mark.parametrize("evaluation", ["dense", "chirp"])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(
    ("length", "period"), [(1, 1), (1, 9), (7, 7), (20, 32), (31, 64), (33, 20), (64, 64), (5, 1)]
)
def test_sum_and_gradient_equal_the_oracle(evaluation, norm, length, period):
    x = drawn(2, length, 3).requires_grad_()
    expected = naive.causal_fourier(x, period, norm)
    assert_alike(causal_fourier(x, period, norm, evaluation), expected, [x], 1e-13)


@pytest.mark.parametrize("length", [257, 1000, 1024])
def test_chirp_equals_the_matrix_in_long_sequences(length):
    x = drawn(1, length, 2)
    for period in (length, 1024, 4096):
        dense = causal_fourier(x, period, evaluation="dense")
        assert_near(causal_fourier(x, period, evaluation="chirp"), dense, 1e-13)
        single = causal_fourier(x.float(), period, evaluation="chirp").double()
        assert float((single - dense).abs().max()) <= 1e-6 * float(dense.abs().max())


def test_whole_phases_keep_fp32_right_at_length_4096():
    """With pi n^2 / N rounded to fp32 the error would be 4e-4."""
    x = drawn(1, 4096, 1)
    assert_near(chirp_sum(x.float(), 4096).to(torch.complex128), chirp_sum(x, 4096), 2e-6)


@pytest.mark.parametrize(
    ("terms", "error"), [(6, 4e-4), (8, 5e-6), (10, 4e-8), (12, 2e-10), (16, 1e-13)]
)
def test_learned_frequencies_to_the_stated_error(terms, error):
    x, delta = drawn(2, 64, 4), offsets(64)
    expected = naive.causal_fourier(x, 64, "paper", delta) * 32
    assert_near(
        32 * learned_causal_fourier(x, delta, 64, terms, evaluation="chirp"), expected, error
    )
    assert_near(32 * learned_causal_fourier(x, delta, 64, evaluation="dense"), expected, 1e-13)
    weights = [row_weights(torch.arange(64), 64, 64, torch.float64, delta)]
    weights.append(interpolated_row_weights(torch.arange(64), 64, 64, delta, terms))
    assert_near(weights[1], weights[0], 2 * (math.pi / 4) ** terms / math.factorial(terms) + 1e-13)


@pytest.mark.parametrize("evaluation", ["dense", "chirp"])
def test_gradients_of_learned_frequencies(evaluation):
    x, delta = drawn(2, 12, 3).requires_grad_(), offsets(12).requires_grad_()
    y = learned_causal_fourier(x, delta, 16, 20, "ortho", evaluation)
    assert_alike(y, naive.causal_fourier(x, 16, "ortho", delta), [x, delta], 1e-12)


def test_gradient_of_the_gradient():
    x, seconds = drawn(2, 7, 3).requires_grad_(), []
    for mixed in (causal_fourier(x, 8, evaluation="chirp"), naive.causal_fourier(x, 8, "paper")):
        (first,) = torch.autograd.grad(mixed.sin().sum(), x, create_graph=True)
        seconds.append(torch.autograd.grad(first.cos().sum(), x)[0])
    assert_near(seconds[0], seconds[1], 1e-13)


def test_auto_is_exactly_causal_in_short_sequences_and_within_the_leak_in_long_ones():
    for length, leak in ((chirp.CROSSOVER, 0.0), (chirp.CROSSOVER + 1, 1e-12)):
        x = drawn(1, length, 1)
        other = x.clone()
        other[:, 400:] += 1.0
        first, second = (causal_fourier(each, 1024) for each in (x, other))
        assert float((first - second)[:, :400].abs().max()) <= leak
        assert not torch.equal(first[:, 400:], second[:, 400:])


def test_the_cache_is_as_long_as_the_longest_sample():
    mixer, x = build(max_len=64), drawn(2, 40, 6)
    keep = torch.arange(40) < torch.tensor([[5], [2]])
    out, cache = mixer.prefill(x, keep=keep)
    assert out.shape == x.shape
    assert cache["past"].shape == (2, 5, 6)
    for longest in (6, 7):
        _, cache = mixer.step(x[:, 0], cache)
        assert cache["past"].shape[1] == longest
    empty = mixer.prefill(x, keep=torch.zeros_like(keep))[1]
    assert_near(mixer.step(x[:, 0], empty)[0], mixer(x[:, :1])[:, 0], 1e-13)


@pytest.mark.ci
@pytest.mark.parametrize("params", [{}, {"frequencies": "learned"}, LEARNED_CHIRP], ids=str)
def test_a_step_computes_nothing_as_long_as_the_period(params):
    sizes = []

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor) and not func.is_view:
                sizes.append(out.numel())
            return out

    mixer, x = build(max_len=5000, **params), drawn(2, 4, 6)
    _, cache = mixer.prefill(x)
    with Sizes(), torch.no_grad():
        mixer.step(x[:, 0], cache)
    assert 0 < max(sizes) < 200


def test_a_short_sample_beside_a_long_one_decodes_as_alone(monkeypatch):
    """`auto` changes its form where a sample's own length does, not where the cache's does."""
    monkeypatch.setattr("subquad_plugins.causal_fourier.mixer.LEARNED_CROSSOVER", 6)
    monkeypatch.setattr(chirp, "LEARNED_CROSSOVER", 6)
    mixer, x = build(frequencies="learned", terms=4), drawn(2, 9, 6)
    starts = torch.tensor([6, 4])
    _, cache = mixer.prefill(x[:, :6], keep=torch.arange(6) < starts[:, None])
    for step in range(3):
        position = starts + step
        rows, cache = mixer.step(x[torch.arange(2), position], cache)
        for b, n in enumerate(position.tolist()):
            assert_near(rows[b], mixer(x[b : b + 1, : n + 1])[0, n], 1e-13)


def test_factors_are_computed_in_float64_before_they_are_rounded():
    delta = offsets(64)
    nodes = [(1 + math.cos((j + 0.5) * math.pi / 5)) / 2 for j in range(5)]
    exact = torch.stack(
        [torch.polar(torch.ones_like(delta), -2 * math.pi * u * delta) for u in nodes]
    )
    assert_near(node_factors(delta, 5, torch.float64).abs(), torch.ones_like(exact.real), 1e-15)
    assert float((node_factors(delta, 5, torch.float64) - exact).abs().max()) < 1e-15
    assert torch.equal(node_factors(delta, 5, torch.float32), exact.to(torch.complex64))
    single = delta.float()
    assert torch.equal(
        node_factors(single, 5, torch.float64), node_factors(single.double(), 5, torch.float64)
    )


def test_the_matrix_is_kept_between_calls_and_never_from_inference_mode(monkeypatch):
    calls = []
    monkeypatch.setattr(
        dense, "row_weights", lambda *args: (calls.append(args), row_weights(*args))[1]
    )
    dense._kept_matrix.cache_clear()  # pyright: ignore[reportPrivateUsage]
    x = drawn(3, 11, 6).requires_grad_()
    with torch.inference_mode():
        causal_fourier(x, 16)
    kinds: list[tuple[int, dense.Norm]] = [
        (16, "paper"),
        (17, "paper"),
        (16, "ortho"),
        (16, "paper"),
    ]
    for period, norm in kinds:
        y = causal_fourier(x, period, norm)
        y.sum().backward()
        assert_near(y, naive.causal_fourier(x, period, norm), 1e-13)
    assert len(calls) == 3
    assert causal_fourier(x.float(), 16).dtype == torch.float32
    for length in range(2, 12):
        causal_fourier(x[:, :length], 16)
    assert dense._kept_matrix.cache_info().currsize == 4  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(dense, "KEPT_LENGTH", 10)
    calls.clear()
    for _ in range(2):
        causal_fourier(x, 16)
    assert len(calls) == 2


def test_a_kept_matrix_outlives_no_transform():
    dense._kept_matrix.cache_clear()  # pyright: ignore[reportPrivateUsage]
    with FakeTensorMode() as fake:
        causal_fourier(fake.from_tensor(drawn(3, 11, 6)), 16)
    torch.func.grad(lambda x: causal_fourier(x, 16).sum())(drawn(3, 11, 6))
    mapped = torch.func.vmap(torch.func.grad(lambda x: causal_fourier(x[None], 16).sin().sum()))(
        drawn(3, 11, 6)
    )
    x = drawn(3, 11, 6).requires_grad_()
    assert_near(mapped, torch.autograd.grad(causal_fourier(x, 16).sin().sum(), x)[0], 1e-13)
    assert_near(
        causal_fourier(drawn(3, 11, 6), 16),
        naive.causal_fourier(drawn(3, 11, 6), 16, "paper"),
        1e-13,
    )


def test_a_full_cache_decodes_short_samples_and_refuses_full_ones():
    mixer, x = build(max_len=6), drawn(2, 6, 6)
    keep = torch.arange(6) < torch.tensor([[6], [3]])
    _, cache = mixer.prefill(x, keep=keep)
    with pytest.raises(PluginError, match="got 7 positions, and it was built for 6"):
        mixer.step(x[:, 0], cache)
    short = {key: value[1:] for key, value in cache.items()}
    row, grown = mixer.step(x[1:, 3], short)
    assert_near(row, mixer(x[1:])[:, 3], 1e-13)
    assert grown["past"].shape[1] == 6


@pytest.mark.parametrize(
    ("frequencies", "function"), [("fixed", causal_fourier), ("learned", learned_causal_fourier)]
)
def test_sums_are_computed_outside_autocast(frequencies, function, monkeypatch):
    """Products guard themselves; whatever else is computed is guarded by the mixer."""
    calls = []
    for inner in (function, row_scale):

        def spied(*args: Any, inner: Any = inner) -> torch.Tensor:
            calls.append((inner.__name__, torch.is_autocast_enabled("cpu")))
            return inner(*args)

        monkeypatch.setattr(f"subquad_plugins.causal_fourier.mixer.{inner.__name__}", spied)
    mixer, x = build(frequencies=frequencies), drawn(3, 11, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixer(x)
        _, cache = mixer.prefill(x)
        mixer.step(x[:, 0], cache)
    assert calls == [(function.__name__, False)] * 2 + [("row_scale", False)]


@pytest.mark.parametrize("batched", [False, True])
def test_product_and_its_gradients_to_second_order(batched):
    weights = drawn(2, 4, 5)[slice(None) if batched else 0].clone().requires_grad_()
    x, results = drawn(2, 5, 3).requires_grad_(), []
    for y in (wide_product(weights, x), weights @ x):
        first = torch.autograd.grad(y.sin().sum(), [weights, x], create_graph=True)
        second = torch.autograd.grad(first[0].cos().sum() + first[1].cos().sum(), [weights, x])
        results.append([y, *first, *second])
    assert_close(*results, 1e-13)


def test_learned_frequencies_start_as_the_fixed_ones_and_stay_near():
    mixer = CausalFourier(
        Config(frequencies="learned"), Site(dim=6, max_len=16, causal=True)
    ).double()
    assert_near(mixer(drawn(3, 11, 6)), causal_fourier(drawn(3, 11, 6), 16, "causal_rms"), 1e-14)
    assert not mixer.parameter_rules()["offset"].weight_decay
    assert mixer.offset is not None
    with torch.no_grad():
        mixer.offset.fill_(1e9)
    assert mixer.delta().tolist() == [0.5] * 16


def test_period_is_the_sites_length_unless_given():
    assert build(max_len=16).turn == 16
    assert build(max_len=16, period=20).turn == 20
    assert CausalFourier(Config(period=20), Site(dim=4)).turn == 20


def test_a_state_of_another_period_is_refused():
    state = build(max_len=32).state_dict()
    assert {name: int(value) for name, value in state.items()} == {"period": 32}
    build(max_len=16, period=32).load_state_dict(state)
    message = "the saved state has period 32, this mixer 64: set period to 32$"
    with pytest.raises(PluginError, match=message):
        build(max_len=64).load_state_dict(state)
    inside = {f"layers.0.{name}": value for name, value in state.items()}
    with pytest.raises(PluginError, match=message):
        torch.nn.ModuleDict({"layers": torch.nn.ModuleList([build(max_len=64)])}).load_state_dict(
            inside
        )


def test_a_longer_sequence_is_refused():
    with pytest.raises(PluginError, match="got 11 positions, and it was built for 8"):
        build(max_len=8)(drawn(3, 11, 6))
