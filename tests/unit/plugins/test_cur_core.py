"""CUR in its projections: padding, other samples, precision, random picks, compilation, and what
is refused.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensors import drawn

import subquad
from subquad.errors import PluginError
from subquad.nn import AttentionMixer
from subquad.plugin import Site
from subquad_plugins.cur import Config
from subquad_plugins.cur.core import CUR


def mixer_of(
    params: dict[str, Any], dtype: torch.dtype = torch.float64, **site: Any
) -> AttentionMixer:
    place = Site(dim=16, num_heads=2, **site)
    config = Config(**params)
    torch.manual_seed(0)
    mixer = AttentionMixer(CUR(config, place), place, config).to(dtype).eval()
    with torch.no_grad():
        for name, parameter in mixer.named_parameters():
            parameter.mul_(4 if name.startswith(("query", "key")) and parameter.ndim == 2 else 1)
    return mixer


@pytest.mark.parametrize("length", [3, 20])
def test_more_indices_than_tokens_means_all_of_them(length):
    x = drawn(2, length, 16)
    for selection in ("abs", "step", "linspace", "random"):
        many, all_of_them = (
            mixer_of({"num_indices": m, "selection": selection})(x).out for m in (1000, length)
        )
        assert torch.equal(many, all_of_them)


def test_normed_queries_keep_fp32_beside_bfloat16_values():
    mixer, x = (
        mixer_of({"num_indices": 6, "qk_norm": "layer"}, torch.float32),
        drawn(2, 30, 16, dtype=torch.float32),
    )
    with torch.autocast("cpu", torch.bfloat16):
        assert mixer(x).out.isfinite().all()


def test_random_picks_change_in_training_alone():
    mixer, x = mixer_of({"num_indices": 5, "selection": "random"}, seed=3), drawn(2, 40, 16)
    assert torch.equal(mixer(x).out, mixer(x).out)
    mixer.train()
    torch.manual_seed(0)
    first, second = mixer(x).out, mixer(x).out
    torch.manual_seed(0)
    assert torch.equal(mixer(x).out, first)
    assert not torch.equal(first, second)


def test_random_picks_depend_on_seed_and_layer_and_travel_with_the_state():
    x, params = drawn(2, 40, 16), {"num_indices": 5, "selection": "random"}
    mixer = mixer_of(params, seed=3)
    others = [mixer_of(params, seed=4), mixer_of(params, seed=3, layer_index=1)]
    for other in others:
        assert not torch.equal(other(x).out, mixer(x).out)
        other.load_state_dict(mixer.state_dict())
        assert torch.equal(other(x).out, mixer(x).out)
    assert "core.seed" not in mixer_of({"num_indices": 5}).state_dict()


def test_the_class_token_is_forced_where_there_are_prefix_tokens():
    q, k = drawn(2, 2, 40, 8), drawn(2, 2, 40, 8)
    q[:, :, 0] = k[:, :, 0] = 0.0
    cases: list[Any] = [
        ("auto", 0, False),
        ("auto", 1, True),
        ("always", 0, True),
        ("never", 1, False),
    ]
    for force, prefix, expected in cases:
        site = Site(dim=16, num_heads=2, num_prefix_tokens=prefix)
        core = CUR(Config(num_indices=6, force_class=force), site)
        (index, _), (same, _) = core.picks(q, k, None, None)
        assert same is index
        assert index.shape[-1] == 6
        assert bool((index[..., 0] == 0).all()) is expected


def test_mode_same_refuses_other_lengths():
    core = CUR(Config(num_indices=3), Site(dim=16, num_heads=2))
    with pytest.raises(
        PluginError,
        match="cur: mode same needs as many queries as keys, got 4 and 6; use mode different",
    ):
        core(drawn(1, 2, 4, 8), drawn(1, 2, 6, 8), drawn(1, 2, 6, 8))


@pytest.mark.parametrize("selection", ["abs", "random"])
def test_weights_of_a_softmax_model_load_strictly(selection):
    softmax = subquad.mixer("softmax", dim=8, num_heads=2)
    cur = subquad.mixer("cur", dim=8, num_heads=2, max_len=64, selection=selection)
    cur.load_state_dict(softmax.state_dict())
    x = torch.randn(2, 9, 8)
    assert torch.equal(cur.value(x), softmax.value(x))
