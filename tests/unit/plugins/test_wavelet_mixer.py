"""The wavelet mixer against its oracle, its settings, and its behaviour at the edges."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from subquad.nn import as_output
from subquad.plugin import Site
from subquad_plugins.wavelet import PLUGIN, Config
from subquad_plugins.wavelet.mixer import Wavelet
from subquad_plugins.wavelet.naive import wavelet_branch

CASES = [
    *((params, False) for params in ({}, *PLUGIN.variants.values())),
    ({"mode": "antireflect", "wavelet": "db2", "level": 2}, False),
    ({"mode": "zero", "include_approx": False}, False),
    ({}, True),
    ({"wavelet": "db4", "level": 3, "include_approx": False}, True),
    ({"wavelet": "sym4", "level": 2, "include_approx": False, "scale_weights": "fixed"}, True),
    ({"scale_weights": "fixed", "wavelet": "db2"}, True),
]


def build(params: dict[str, Any], causal: bool = False, dim: int = 6, dtype: torch.dtype = torch.float64) -> Any:
    """A mixer none of whose parameters is at its start."""
    torch.manual_seed(1)
    mixer = Wavelet(Config(**params), Site(dim=dim, causal=causal)).to(dtype)
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return mixer


def tokens(batch: int = 3, length: int = 9, dim: int = 6, seed: int = 2) -> torch.Tensor:
    return torch.randn(batch, length, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def defined(mixer: Any, x: torch.Tensor, params: dict[str, Any], keep: torch.Tensor | None = None) -> torch.Tensor:
    return wavelet_branch(
        x,
        mixer.bands.weights(x),
        mixer.project.weight,
        wavelet=mixer.bands.bank.name,
        mode=Config(**params).mode,
        atrous=mixer.bands.atrous,
        include_approx=Config(**params).include_approx,
        keep=keep,
    )


@pytest.mark.parametrize(("params", "causal"), CASES)
def test_equal_to_the_oracle_with_all_gradients(params, causal):
    for length, masked in itertools.product([1, 2, 9, 31], [False, True]):
        mixer, x = build(params, causal), tokens(length=length).requires_grad_()
        keep = torch.rand(3, length, generator=torch.Generator().manual_seed(length)) > 0.3 if masked else None
        if keep is not None:
            keep[0], keep[2] = True, False
        results = []
        for out in (mixer(x, keep=keep), defined(mixer, x, params, keep)):
            out = out if keep is None else out.masked_fill(~keep[..., None], 0.0)
            results.append((out, *torch.autograd.grad((out * out).sum(), (x, *mixer.parameters()))))
        for got, expected in zip(*results, strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(("params", "causal"), CASES)
def test_padding_has_no_influence_wherever_it_stands(params, causal):
    mixer, x = build(params, causal), tokens(batch=1, length=11)
    alone = mixer(x)
    for before, after in ((0, 5), (4, 0), (3, 8)):
        padded = torch.full((1, before + 11 + after, 6), 1e6, dtype=torch.float64)
        padded[:, before : before + 11] = x
        keep = torch.zeros(padded.shape[:2], dtype=torch.bool)
        keep[:, before : before + 11] = True
        torch.testing.assert_close(mixer(padded, keep=keep)[:, before : before + 11], alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_a_sample_without_real_tokens_stays_finite(causal):
    mixer, x = build({}, causal), tokens().requires_grad_()
    keep = torch.ones(3, 9, dtype=torch.bool)
    keep[1] = False
    out = mixer(x, keep=keep)
    out.sum().backward()
    assert x.grad is not None
    assert bool(torch.isfinite(out).all() & torch.isfinite(x.grad).all())
    assert bool((x.grad[1] == 0).all())


@pytest.mark.parametrize(("params", "causal"), [case for case in CASES if case[1]])
def test_causal_not_by_a_bit(params, causal):
    mixer, x = build(params, causal), tokens(length=20)
    later = x.clone()
    later[:, 12:] = -1e6
    assert torch.equal(mixer(x)[:, :12], mixer(later)[:, :12])


@pytest.mark.parametrize(("params", "causal"), [case for case in CASES if case[1]])
def test_decoding_gives_what_the_whole_sequence_gives(params, causal):
    mixer, x = build(params, causal), tokens(length=14)
    whole, lengths = mixer(x), [9, 1, 0]
    keep = torch.arange(9) < torch.tensor(lengths)[:, None]
    out, cache = mixer.prefill(x[:, :9], keep=keep)
    torch.testing.assert_close(out[keep], whole[:, :9][keep], rtol=0, atol=1e-12)
    untouched = [part.clone() for part in cache]
    first = cache
    for t in range(5):
        places = torch.tensor(lengths) + t
        out, cache = mixer.step(x[torch.arange(3), places], cache)
        torch.testing.assert_close(out, whole[torch.arange(3), places], rtol=0, atol=1e-12)
    assert all(torch.equal(part, before) for part, before in zip(first, untouched, strict=True))
    assert mixer.caches
    assert not build({}).caches


@pytest.mark.parametrize("masked", [False, True])
def test_decoding_can_begin_with_no_token(masked):
    mixer, x = build({"level": 2}, causal=True), tokens(length=4)
    out, cache = mixer.prefill(x[:, :0], keep=torch.ones(3, 0, dtype=torch.bool) if masked else None)
    assert out.shape == (3, 0, 6)
    for t, expected in enumerate(mixer(x).unbind(1)):
        out, cache = mixer.step(x[:, t], cache)
        torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)


def test_beams_can_be_reordered_in_the_cache():
    mixer, x = build({}, causal=True), tokens(length=6)
    _, cache = mixer.prefill(x[:, :5])
    order = torch.tensor([2, 0, 0])
    out, _ = mixer.step(x[order, 5], [part.index_select(0, order) for part in cache])
    torch.testing.assert_close(out, mixer(x)[order, 5], rtol=0, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_low_precision_and_strided_inputs(causal):
    mixer, x = build({}, causal, dtype=torch.float32), tokens().float()
    expected = mixer(x)
    strided = x.transpose(1, 2).contiguous().transpose(1, 2)
    torch.testing.assert_close(mixer(strided), expected, rtol=0, atol=1e-6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = mixer(x)
    assert low.dtype == torch.bfloat16
    assert float((low - expected).detach().abs().max()) <= 0.02 * float(expected.detach().abs().max())


@pytest.mark.parametrize(("params", "causal"), CASES)
@pytest.mark.parametrize("backward_inside", [False, True])
def test_autocast_leaves_the_transform_alone(params, causal, backward_inside):
    mixer, x = build(params, causal, dtype=torch.float32), tokens().float().requires_grad_()
    mixer.project = torch.nn.Identity()
    keep = torch.arange(9) < torch.tensor([9, 4, 1])[:, None]
    inputs = (x, *mixer.parameters())

    def gradients(outs: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(torch.stack([(out * out.cos()).sum() for out in outs]).sum(), inputs)

    expected = [mixer(x), mixer(x, keep=keep)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outs = [mixer(x), mixer(x, keep=keep)]
        grads = gradients(outs) if backward_inside else ()
    for got, wanted in zip([*outs, *(grads or gradients(outs))], [*expected, *gradients(expected)], strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-6)


def test_autocast_leaves_decoding_alone():
    mixer, x = build({"wavelet": "db2"}, causal=True, dtype=torch.float32), tokens().float()
    mixer.project = torch.nn.Identity()
    expected, outs = mixer(x), []
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, cache = mixer.prefill(x[:, :7])
        outs.extend(out.unbind(1))
        for t in (7, 8):
            out, cache = mixer.step(x[:, t], cache)
            outs.append(out)
    assert all(part.dtype == torch.float32 for part in cache)
    torch.testing.assert_close(torch.stack(outs, 1), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.ci
@pytest.mark.parametrize("causal", [False, True])
def test_compiled_equals_plain(causal):
    mixer, x = build({"level": 2}, causal), tokens()
    keep = torch.arange(9) < torch.tensor([9, 4, 1])[:, None]
    compiled = torch.compile(mixer, backend="aot_eager")
    for mask in (None, keep):
        torch.testing.assert_close(compiled(x, keep=mask), mixer(x, keep=mask), rtol=0, atol=1e-12)


def test_scales_start_alike_and_parameters_do_not_depend_on_the_length():
    mixer: Any = Wavelet(Config(level=3), Site(dim=4))
    torch.testing.assert_close(mixer.bands.weights(torch.ones(1)), torch.full((4,), 0.25))
    shapes = [
        [tuple(p.shape) for p in Wavelet(Config(), Site(dim=4, max_len=length)).parameters()] for length in (0, 5)
    ]
    assert shapes[0] == shapes[1] == [(5,), (4, 4)]


REFUSED = [
    ({"wavelet": "db40"}, "there is no discrete wavelet 'db40'; did you mean 'db4'\\?; there is haar"),
    ({"wavelet": "mexh"}, "there is no discrete wavelet 'mexh'"),
    ({"level": 0}, "level\n  Input should be greater than or equal to 1"),
    ({"mode": "reflected"}, "mode\n  Input should be 'zero', 'constant'"),
    (
        {"transform": "atrous", "mode": "zero"},
        "mode zero has no effect with transform atrous: leave it at periodization, or use transform dwt",
    ),
    (
        {"scale_weights": "fixed", "mode": "zero"},
        "mode works only where the mixer is not causal, and scale_weights fixed with include_approx true only where",
    ),
    ({"level": 1, "include_approx": False}, "level 1 with include_approx false leaves one band, and nothing to learn"),
    ({"transform": "atrous", "wavelet": "db38", "level": 6}, "wavelet db38 with level 6 looks back 4725 tokens where"),
    ({"mode": "smooth", "level": 5}, "mode smooth with level 5 is not accurate in fp32: use level 4 at most"),
    ({"mode": "antireflect", "level": 12}, "mode antireflect with level 12 is not accurate in fp32: use level 4"),
]


@pytest.mark.parametrize(("given", "message"), REFUSED)
def test_settings_that_cannot_work_or_have_no_effect_are_refused(given, message):
    with pytest.raises(ValidationError, match=message):
        Config(**given)


MISPLACED = [
    ({"mode": "zero"}, True, "mode works only where the mixer is not causal: leave it at its default"),
    (
        {"wavelet": "db38", "level": 12},
        True,
        "wavelet db38 with level 12 looks back 307125 tokens where one-sided, more than 4096: use a lower level",
    ),
    (
        {"scale_weights": "fixed"},
        False,
        "scale_weights fixed with include_approx true weighs all bands alike, which gives back the input where",
    ),
]


@pytest.mark.parametrize(("given", "causal", "message"), MISPLACED)
def test_settings_that_cannot_work_where_the_mixer_stands_are_refused(given, causal, message):
    config = Config(**given)
    with pytest.raises(ValueError, match=message):
        config.check(Site(dim=4, causal=causal))
    config.check(Site(dim=4, causal=not causal))
    assert PLUGIN.facts_of(config).causal == ("never" if causal else "always")


def test_fixed_weights_of_all_bands_mix_where_the_transform_is_one_sided():
    config = Config(scale_weights="fixed", transform="atrous")
    config.check(Site(dim=6))
    assert PLUGIN.facts_of(config).causal == "optional"
    for params, causal in (
        ({"scale_weights": "fixed", "transform": "atrous"}, False),
        ({"scale_weights": "fixed"}, True),
    ):
        mixer, x = build(params, causal), tokens()
        later = x.clone()
        later[:, 0] += 1.0
        assert bool((mixer(later) - mixer(x)).detach()[:, 1:].abs().amax() > 1e-3)


def test_weights_that_are_built_can_learn():
    levels = [({"level": 1}, True), ({"level": 2, "include_approx": False}, True)]
    levels += [({"level": 1, "include_approx": False, "scale_weights": "fixed"}, False)]
    for params, learned in levels:
        mixer = build(params)
        assert (mixer.bands.scale_logits is not None) == learned
        mixer(tokens()).square().sum().backward()
        assert all(bool(p.grad.abs().max() > 1e-6) for p in mixer.parameters())


def test_what_the_plugin_says():
    assert all(field.description for field in Config.model_fields.values())
    assert PLUGIN.facts_of(Config()).causal == "optional"
    assert as_output(build({})(tokens())).losses == {}
    assert build({}, True).bands.bank.name == "haar"
    assert build({}).bands.bank.name == "db4"
