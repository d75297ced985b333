"""CUR in its projections: padding, other samples, precision, random picks, compilation, and what is refused."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

import subquad
from subquad.errors import PluginError
from subquad.nn import AttentionMixer
from subquad.plugin import Site
from subquad_plugins.cur import PLUGIN, Config
from subquad_plugins.cur.core import CUR

VARIANTS: dict[str, Any] = {"default": {"num_indices": 64}, **PLUGIN.variants}
LENGTHS = (20, 13, 5, 3)


def mixer_of(params: dict[str, Any], dtype: torch.dtype = torch.float64, **site: Any) -> AttentionMixer:
    place = Site(dim=16, num_heads=2, **site)
    config = Config(**params)
    torch.manual_seed(0)
    mixer = AttentionMixer(CUR(config, place), place, config).to(dtype).eval()
    with torch.no_grad():
        for name, parameter in mixer.named_parameters():
            parameter.mul_(4 if name.startswith(("query", "key")) and parameter.ndim == 2 else 1)
    return mixer


def tokens(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)


def placed(x: Tensor, before: int, after: int) -> tuple[Tensor, Tensor]:
    """Samples of `LENGTHS` real tokens with padding around them, and their mask."""
    length = before + x.shape[1] + after
    padded, keep = 5 * tokens(len(x), length, x.shape[2]), torch.zeros(len(x), length, dtype=torch.bool)
    for b, n in enumerate(LENGTHS):
        padded[b, before : before + n], keep[b, before : before + n] = x[b, :n], True
    return padded, keep


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize(("before", "after"), [(0, 0), (0, 9), (6, 0), (4, 3)])
def test_a_padded_sample_is_as_the_sample_alone(name, before, after):
    mixer, x = mixer_of(VARIANTS[name]), tokens(4, 20, 16)
    padded, keep = placed(x, before, after)
    out = mixer(padded, keep=keep).out
    for b, n in enumerate(LENGTHS):
        alone = mixer(x[b : b + 1, :n]).out[0]
        torch.testing.assert_close(out[b, before : before + n], alone, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("length", [3, 20])
def test_more_indices_than_tokens_means_all_of_them(length):
    x = tokens(2, length, 16)
    for selection in ("abs", "step", "linspace", "random"):
        many, all_of_them = (mixer_of({"num_indices": m, "selection": selection})(x).out for m in (1000, length))
        assert torch.equal(many, all_of_them)


@pytest.mark.parametrize("name", VARIANTS)
def test_other_samples_and_padding_have_no_influence(name):
    mixer = mixer_of(VARIANTS[name])
    x, keep = placed(tokens(4, 20, 16), 3, 3)
    out = mixer(x, keep=keep).out
    assert torch.equal(mixer(x.masked_fill(~keep[..., None], 9.0), keep=keep).out[keep], out[keep])
    other, other_keep = 3 * x, keep.roll(1, 0)
    other[1], other_keep[1] = x[1], keep[1]
    assert torch.equal(mixer(other, keep=other_keep).out[1], out[1])


@pytest.mark.parametrize("name", VARIANTS)
def test_a_sample_of_padding_alone_stays_finite(name):
    mixer, x = mixer_of(VARIANTS[name], torch.float32), tokens(3, 9, 16, dtype=torch.float32).requires_grad_()
    keep = torch.ones(3, 9, dtype=torch.bool)
    keep[0], keep[1, :8] = False, False
    out = mixer(x, keep=keep).out
    out.sum().backward()
    assert out.isfinite().all()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in mixer.parameters())


@pytest.mark.parametrize("name", VARIANTS)
def test_bfloat16_autocast_is_finite_and_near(name):
    x = tokens(2, 30, 16, dtype=torch.float32)
    # Scores that decide close picks differ in bf16; regular and random ones do not.
    params = VARIANTS[name] if name in ("step", "linspace", "random") else {**VARIANTS[name], "num_indices": 30}
    mixer = mixer_of(params, torch.float32)
    expected = mixer(x).out
    with torch.autocast("cpu", torch.bfloat16):
        out = mixer(x).out
        out.sum().backward()
    assert out.dtype == torch.bfloat16
    assert all(p.grad is not None and p.grad.isfinite().all() for p in mixer.parameters())
    if params.get("pinv") == "exact":  # divides the rounding of tokens by small singular values
        assert out.isfinite().all()
    else:
        assert (out - expected).square().mean().sqrt() < 0.1 * expected.square().mean().sqrt()


def test_normed_queries_keep_fp32_beside_bfloat16_values():
    mixer, x = mixer_of({"num_indices": 6, "qk_norm": "layer"}, torch.float32), tokens(2, 30, 16, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        assert mixer(x).out.isfinite().all()


def test_single_precision_is_near():
    x = tokens(2, 30, 16)
    for params in ({"num_indices": 6}, {"num_indices": 6, "function": "laplace"}, {"pinv": "ridge", "num_indices": 6}):
        out = mixer_of(params, torch.float32)(x.float()).out
        torch.testing.assert_close(out.double(), mixer_of(params)(x).out, rtol=0, atol=2e-5)


def test_random_picks_change_in_training_alone():
    mixer, x = mixer_of({"num_indices": 5, "selection": "random"}, seed=3), tokens(2, 40, 16)
    assert torch.equal(mixer(x).out, mixer(x).out)
    mixer.train()
    torch.manual_seed(0)
    first, second = mixer(x).out, mixer(x).out
    torch.manual_seed(0)
    assert torch.equal(mixer(x).out, first)
    assert not torch.equal(first, second)


def test_random_picks_depend_on_seed_and_layer_and_travel_with_the_state():
    x, params = tokens(2, 40, 16), {"num_indices": 5, "selection": "random"}
    mixer = mixer_of(params, seed=3)
    others = [mixer_of(params, seed=4), mixer_of(params, seed=3, layer_index=1)]
    for other in others:
        assert not torch.equal(other(x).out, mixer(x).out)
        other.load_state_dict(mixer.state_dict())
        assert torch.equal(other(x).out, mixer(x).out)
    assert "core.seed" not in mixer_of({"num_indices": 5}).state_dict()


def test_the_class_token_is_forced_where_there_are_prefix_tokens():
    q, k = tokens(2, 2, 40, 8), tokens(2, 2, 40, 8)
    q[:, :, 0] = k[:, :, 0] = 0.0
    cases: list[Any] = [("auto", 0, False), ("auto", 1, True), ("always", 0, True), ("never", 1, False)]
    for force, prefix, expected in cases:
        site = Site(dim=16, num_heads=2, num_prefix_tokens=prefix)
        core = CUR(Config(num_indices=6, force_class=force), site)
        (index, _), (same, _) = core.picks(q, k, None, None)
        assert same is index
        assert index.shape[-1] == 6
        assert bool((index[..., 0] == 0).all()) is expected


@pytest.mark.ci
def test_compiled_in_one_graph_gives_the_same():
    """One way of working; `subquad check` tries them all."""
    mixer, x = mixer_of({"num_indices": 5, "copy_rows": True}), tokens(2, 15, 16)
    keep = torch.ones(2, 15, dtype=torch.bool)
    keep[0, 11:] = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch._dynamo.reset()
        compiled = torch.compile(mixer, backend="aot_eager", fullgraph=True)
        results = []
        for run in (mixer, compiled):
            out = run(x, keep=keep).out
            results.append([out, *torch.autograd.grad(out.sum(), list(mixer.parameters()))])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(theirs, ours, rtol=1e-12, atol=1e-12)


def test_mode_same_refuses_other_lengths():
    core = CUR(Config(num_indices=3), Site(dim=16, num_heads=2))
    with pytest.raises(
        PluginError, match="cur: mode same needs as many queries as keys, got 4 and 6; use mode different"
    ):
        core(tokens(1, 2, 4, 8), tokens(1, 2, 6, 8), tokens(1, 2, 6, 8))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"force_class": "always", "selection": "step"},
            "force_class always has no effect with selection step: leave it at auto, or use selection other than "
            "step or step_full or linspace",
        ),
        (
            {"same_source": "q", "selection": "random"},
            r"same_source q has no effect with selection random: leave it at q\+k, or use selection sum or abs or "
            r"embed",
        ),
        (
            {"same_source": "k", "mode": "different"},
            r"same_source k has no effect with mode different: leave it at q\+k, or use mode same",
        ),
        ({"column": 2}, "column 2 has no effect with selection abs: leave it at 0, or use selection embed"),
        (
            {"pinv": "exact", "iterations": 4},
            "iterations 4 has no effect with pinv exact: leave it at 6, or use pinv iterative",
        ),
        (
            {"pinv": "ridge", "start_gradient": False},
            "start_gradient false has no effect with pinv ridge: leave it at true, or use pinv iterative",
        ),
        ({"ridge": 0.1}, "ridge 0.1 has no effect with pinv iterative: leave it at 0.001, or use pinv ridge"),
        (
            {"function": "laplace", "renormalise": True},
            "renormalise true has no effect with function laplace: leave it at false, or use function softmax",
        ),
        ({"num_indices": 0}, "num_indices\n  Input should be greater than or equal to 1"),
        ({"iterations": 0}, "iterations\n  Input should be greater than or equal to 1"),
    ],
)
def test_settings_that_cannot_count_are_refused(params, message):
    with pytest.raises(ValidationError, match=message):
        Config(**params)


def test_places_where_it_cannot_stand_are_refused():
    Config(num_indices=64).check(Site(dim=16, num_heads=2, max_len=64))
    Config(num_indices=64).check(Site(dim=16, num_heads=2))
    message = "num_indices 64 is more than the longest sequence has: use 29 or less"
    with pytest.raises(ValueError, match=message):
        Config(num_indices=64).check(Site(dim=16, num_heads=2, max_len=29))
    with pytest.raises(ValueError, match="column 8 is outside a head of width 8: use 0 to 7"):
        Config(selection="embed", column=8).check(Site(dim=16, num_heads=2))
    with pytest.raises(ValueError, match="CUR attention cannot be causal: the inverse mixes all selected rows"):
        Config().check(Site(dim=16, num_heads=2, causal=True))
    with pytest.raises(ValueError, match="rotary needs an even head width"):
        Config(rotary=True).check(Site(dim=6, num_heads=2))


@pytest.mark.parametrize(
    ("params", "equivariant", "cross"),
    [
        ({}, True, False),
        ({"mode": "different"}, True, True),
        ({"force_class": "always"}, None, False),
        ({"rotary": True}, None, False),
        ({"selection": "linspace"}, None, False),
        ({"selection": "random", "mode": "different"}, None, True),
    ],
)
def test_facts(params, equivariant, cross):
    facts = PLUGIN.facts_of(Config(**params))
    assert (facts.permutation_equivariant, facts.cross) == (equivariant, cross)
    assert (facts.causal, facts.padding_invariant, facts.complexity) == ("never", True, "L")


@pytest.mark.parametrize("selection", ["abs", "random"])
def test_weights_of_a_softmax_model_load_strictly(selection):
    softmax = subquad.mixer("softmax", dim=8, num_heads=2)
    cur = subquad.mixer("cur", dim=8, num_heads=2, max_len=64, selection=selection)
    cur.load_state_dict(softmax.state_dict())
    x = torch.randn(2, 9, 8)
    assert torch.equal(cur.value(x), softmax.value(x))
