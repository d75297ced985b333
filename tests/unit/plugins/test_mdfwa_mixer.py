"""MDFWA against its oracle with every switch, and its behaviour at the edges."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from subquad.errors import PluginError
from subquad.plugin import Site
from subquad_plugins.mdfwa import PLUGIN, Config
from subquad_plugins.mdfwa.mixer import MDFWA
from subquad_plugins.mdfwa.naive import mdfwa

EXACT = {"frequencies": "learned", "terms": 22}
"""Enough interpolation terms that learned frequencies are exact."""
ENCODERS = [
    {},
    {"form": "hartley", "include_approx": True},
    {"form": "re_2d", "wavelet": "bior2.2", "mode": "symmetric", "level": 2},
    {**EXACT, "norm": "paper"},
    {**EXACT, "form": "hartley", "gate": "sigmoid"},
    {"gate": "sigmoid", "wavelet": "haar", "level": 3},
    {"norm": "paper", "scale_weights": "fixed"},
    {"branches": "fourier"},
    {"branches": "wavelet", "norm_output": False},
]
DECODERS = [
    {},
    {"wavelet": "db4", "level": 3, "include_approx": True, "norm": "paper"},
    {**EXACT, "norm": "ortho"},
    {"period": 50, "norm": "causal_rms", "gate": "sigmoid"},
    {"scale_weights": "fixed", "norm_output": False},
    {"branches": "fourier", "norm": "ortho"},
    {"branches": "wavelet"},
    {"scale_weights": "fixed", "include_approx": True},
]
CASES = [*((params, False) for params in ENCODERS), *((params, True) for params in DECODERS)]
MAX_LEN = 32


def build(params: dict[str, Any], causal: bool = False, dtype: torch.dtype = torch.float64, dim: int = 6) -> Any:
    """A mixer none of whose parameters is at its start."""
    torch.manual_seed(1)
    config, site = Config(**params), Site(dim=dim, causal=causal, max_len=MAX_LEN)
    config.check(site)
    mixer = MDFWA(config, site).to(dtype).eval()
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return mixer


def tokens(batch: int = 3, length: int = 9, dim: int = 6, seed: int = 2) -> torch.Tensor:
    return torch.randn(batch, length, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def defined(mixer: Any, x: torch.Tensor, params: dict[str, Any], keep: torch.Tensor | None = None) -> torch.Tensor:
    config, causal = Config(**params), mixer.causal
    given: dict[str, Any] = {"b": mixer.bias, "form": config.form, "mode": config.mode, "keep": keep}
    given["norm"] = {"auto": "causal_rms" if causal else "ortho"}.get(config.norm, config.norm)
    given["period"] = (config.period or MAX_LEN) if causal else None
    if mixer.fourier is not None:
        given["F_F"] = mixer.from_fourier.weight.T
        if config.frequencies == "learned":
            learned = {"delta": mixer.fourier.delta} if causal else {"omega": lambda: mixer.fourier.omega(x.shape[1])}
            given |= {name: function() for name, function in learned.items()}
    if mixer.bands is not None:
        given |= {"F_W": mixer.from_wavelet.weight.T, "P": mixer.project.weight, "alpha": mixer.bands.weights(x)}
        given |= {"wavelet": mixer.bands.bank.name, "include_approx": config.include_approx}
    if config.norm_output:
        given |= {"gain": mixer.norm.weight, "bias": mixer.norm.bias}
    if mixer.gate is not None:
        given |= {"W_G": mixer.gate.weight.T, "b_G": mixer.gate.bias}
    return mdfwa(x, **given)


@pytest.mark.parametrize(("params", "causal"), CASES)
def test_equal_to_the_oracle_with_all_gradients(params, causal):
    for length, masked in itertools.product([1, 2, 13, MAX_LEN], [False, True]):
        mixer, x = build(params, causal), tokens(length=length).requires_grad_()
        keep = torch.rand(3, length, generator=torch.Generator().manual_seed(length)) > 0.3 if masked else None
        if keep is not None:
            keep[0], keep[2] = True, False
        results = []
        for out in (mixer(x, keep=keep), defined(mixer, x, params, keep)):
            out = out if keep is None else out.masked_fill(~keep[..., None], 0.0)
            results.append((out, *torch.autograd.grad((out * out.cos()).sum(), (x, *mixer.parameters()))))
        for got, expected in zip(*results, strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("length", [1, 30])
def test_every_projection_is_called_at_any_size(length):
    mixer, called = build({"gate": "sigmoid"}), []
    for name in ("from_fourier", "project", "from_wavelet", "gate"):
        mixer.get_submodule(name).register_forward_hook(lambda *_, name=name: called.append(name))
    mixer(tokens(batch=1, length=length))
    assert sorted(called) == ["from_fourier", "from_wavelet", "gate", "project"]


@pytest.mark.parametrize(("params", "causal"), CASES)
def test_padding_has_no_influence_wherever_it_stands(params, causal):
    mixer, x = build(params, causal), tokens(batch=1, length=11)
    alone = mixer(x)
    for before, after in ((0, 5), (4, 0), (3, 8)):
        padded = torch.full((1, before + 11 + after, 6), 1e3, dtype=torch.float64)
        padded[:, before : before + 11] = x
        keep = torch.zeros(padded.shape[:2], dtype=torch.bool)
        keep[:, before : before + 11] = True
        torch.testing.assert_close(mixer(padded, keep=keep)[:, before : before + 11], alone, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("params", "causal"), [case for case in CASES if case[1]])
def test_a_longer_sequence_has_the_same_start(params, causal):
    mixer, x = build(params, causal), tokens(length=20)
    later = x.clone()
    later[:, 12:] = 1e3
    whole = mixer(x)
    torch.testing.assert_close(mixer(x[:, :12]), whole[:, :12], rtol=1e-12, atol=1e-12)
    assert torch.equal(mixer(later)[:, :12], whole[:, :12])


@pytest.mark.parametrize(("params", "causal"), [case for case in CASES if case[1]])
def test_decoding_gives_what_the_whole_sequence_gives(params, causal):
    mixer, x = build(params, causal), tokens(length=14)
    whole, lengths = mixer(x), [9, 4, 1]
    keep = torch.arange(9) < torch.tensor(lengths)[:, None]
    out, cache = mixer.prefill(x[:, :9], keep=keep)
    torch.testing.assert_close(out[keep], whole[:, :9][keep], rtol=1e-10, atol=1e-10)
    for t in range(5):
        places = torch.tensor(lengths) + t
        out, cache = mixer.step(x[torch.arange(3), places], cache)
        torch.testing.assert_close(out, whole[torch.arange(3), places], rtol=1e-10, atol=1e-10)
    assert mixer.caches
    assert not build({}).caches


@pytest.mark.parametrize("params", [{}, {"frequencies": "learned"}, {"branches": "wavelet"}, {"branches": "fourier"}])
@pytest.mark.parametrize("masked", [False, True])
def test_decoding_can_begin_with_no_token(params, masked):
    mixer, x = build(params, causal=True), tokens(length=4)
    out, cache = mixer.prefill(x[:, :0], keep=torch.ones(3, 0, dtype=torch.bool) if masked else None)
    assert out.shape == (3, 0, 6)
    for t, expected in enumerate(mixer(x).unbind(1)):
        out, cache = mixer.step(x[:, t], cache)
        torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-10)


def branches_alone(params: dict[str, Any], causal: bool) -> Any:
    """A mixer whose projections do nothing, so that autocast has no product of its own to make narrow."""
    mixer = build(params, causal, torch.float32)
    for name in ("from_fourier", "project", "from_wavelet"):
        if getattr(mixer, name) is not None:
            setattr(mixer, name, torch.nn.Identity())
    return mixer


UNGATED = [case for case in CASES if "gate" not in case[0]]


@pytest.mark.parametrize(("params", "causal"), UNGATED)
@pytest.mark.parametrize("backward_inside", [False, True])
def test_autocast_leaves_the_branches_alone(params, causal, backward_inside):
    mixer, x = branches_alone(params, causal), tokens().float().requires_grad_()
    keep = torch.arange(9) < torch.tensor([9, 4, 1])[:, None]
    inputs = (x, *mixer.parameters())

    def gradients(outs: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(torch.stack([(out * out.cos())[keep].mean() for out in outs]).sum(), inputs)

    expected = [mixer(x), mixer(x, keep=keep)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outs = [mixer(x), mixer(x, keep=keep)]
        grads = gradients(outs) if backward_inside else ()
    for got, wanted in zip([*outs, *(grads or gradients(outs))], [*expected, *gradients(expected)], strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("params", [params for params, causal in UNGATED if causal])
def test_autocast_leaves_decoding_alone(params):
    mixer, x = branches_alone(params, causal=True), tokens().float()
    runs = []
    for enabled in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            out, cache = mixer.prefill(x[:, :8])
            runs.append(torch.cat([out, mixer.step(x[:, 8], cache)[0][:, None]], 1))
    torch.testing.assert_close(runs[1], runs[0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("causal", [False, True])
def test_a_sample_without_real_tokens_stays_finite_and_to_itself(causal):
    mixer, x = build({"gate": "sigmoid"}, causal), tokens().requires_grad_()
    keep = torch.ones(3, 9, dtype=torch.bool)
    keep[1] = False
    out = mixer(x, keep=keep)
    out.sum().backward()
    assert x.grad is not None
    assert bool(torch.isfinite(out).all() & torch.isfinite(x.grad).all())
    other = x.detach().clone()
    other[1:] = 7.0
    assert torch.equal(mixer(other, keep=keep)[0], out[0])


@pytest.mark.parametrize("causal", [False, True])
def test_low_precision_and_strided_inputs(causal):
    mixer, x = build({}, causal, torch.float32, dim=16), tokens(dim=16).float()
    expected = mixer(x)
    strided = x.transpose(1, 2).contiguous().transpose(1, 2)
    torch.testing.assert_close(mixer(strided), expected, rtol=1e-5, atol=1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = mixer(x)
    assert float((low.float() - expected).detach().abs().max()) <= 0.05 * float(expected.detach().abs().max())


@pytest.mark.parametrize("causal", [False, True])
def test_longer_sequences_than_it_was_built_for_are_refused(causal):
    with pytest.raises(PluginError, match="mdfwa: got 33 positions, and it was built for 32"):
        build({}, causal)(tokens(length=33))
    if causal:
        with pytest.raises(PluginError, match="mdfwa: got 33 positions, and it was built for 32"):
            build({}, causal).prefill(tokens(length=33))
    assert build({"branches": "wavelet"}, causal)(tokens(length=33)).shape == (3, 33, 6)


def test_an_encoder_that_cannot_be_a_decoder_is_bound_by_learned_frequencies_only():
    assert build({"form": "hartley"})(tokens(length=33)).shape == (3, 33, 6)
    with pytest.raises(PluginError, match="mdfwa: got 33 positions, and it was built for 32"):
        build({"form": "hartley", "frequencies": "learned"})(tokens(length=33))


def test_an_unknown_length_is_refused_where_it_is_needed():
    with pytest.raises(PluginError, match="mdfwa: set period, as the length of the longest sequence is not known"):
        MDFWA(Config(), Site(dim=4, causal=True))
    with pytest.raises(PluginError, match="mdfwa: the number of learned frequencies needs the length of the longest"):
        MDFWA(Config(frequencies="learned"), Site(dim=4))
    assert MDFWA(Config(), Site(dim=4))(tokens(length=50, dim=4).float()).shape == (3, 50, 4)
    assert MDFWA(Config(period=20), Site(dim=4, causal=True))(tokens(length=20, dim=4).float()).shape == (3, 20, 4)


def test_dropout_acts_in_training_only():
    mixer, x = build({"dropout": 0.5}), tokens()
    assert torch.equal(mixer(x), mixer(x))
    mixer.train()
    assert not torch.equal(mixer(x), mixer(x))


def test_dropout_comes_before_the_norm():
    mixer = MDFWA(Config(dropout=0.5), Site(dim=16, max_len=9)).double().train()
    out = mixer(tokens(dim=16)).detach()
    torch.testing.assert_close(out.mean(-1), torch.zeros(3, 9, dtype=torch.float64), rtol=0, atol=1e-12)
    assert bool((out != 0).all())


def test_frequencies_are_not_decayed_and_start_at_whole_numbers():
    for causal in (False, True):
        mixer: Any = MDFWA(Config(frequencies="learned"), Site(dim=4, causal=causal, max_len=9))
        assert [(name, rule.weight_decay) for name, rule in mixer.parameter_rules().items()] == [
            ("fourier.offset", False)
        ]
        assert dict(mixer.named_parameters())["fourier.offset"].tolist() == [0.0] * 9
    assert build({}).parameter_rules() == {}


@pytest.mark.ci
@pytest.mark.parametrize("causal", [False, True])
def test_compiled_equals_plain(causal):
    mixer, x = build({"level": 2}, causal), tokens()
    compiled = torch.compile(mixer, backend="aot_eager")
    torch.testing.assert_close(compiled(x), mixer(x), rtol=1e-12, atol=1e-12)


def test_variants_cover_each_way_it_works():
    assert {PLUGIN.facts_of(Config(**params)).causal for params in PLUGIN.variants.values()} == {"never", "optional"}
    x = tokens(length=8, dim=4).float()
    outputs = [build(dict(params), dtype=torch.float32, dim=4)(x) for params in ({}, *PLUGIN.variants.values())]
    assert all(bool(torch.isfinite(out).all()) and out.shape == x.shape for out in outputs)
    different = [not torch.allclose(one, other) for i, one in enumerate(outputs) for other in outputs[:i]]
    assert all(different)
