"""The wavelet mixer against its oracle, its settings, and its behaviour at the edges."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensors import built, drawn

from subquad.nn import as_output
from subquad.plugin import Site
from subquad_plugins.wavelet import PLUGIN, Config
from subquad_plugins.wavelet.mixer import Wavelet


def build(params: dict[str, Any], causal: bool = False) -> Any:
    return built("wavelet", params, dim=6, causal=causal)


def test_scales_start_alike_and_parameters_do_not_depend_on_the_length():
    mixer: Any = Wavelet(Config(level=3), Site(dim=4))
    torch.testing.assert_close(mixer.bands.weights(torch.ones(1)), torch.full((4,), 0.25))
    shapes = [
        [tuple(p.shape) for p in Wavelet(Config(), Site(dim=4, max_len=length)).parameters()]
        for length in (0, 5)
    ]
    assert shapes[0] == shapes[1] == [(5,), (4, 4)]


MISPLACED = [
    (
        {"mode": "zero"},
        True,
        "mode works only where the mixer is not causal: leave it at its default",
    ),
    (
        {"wavelet": "db38", "level": 12},
        True,
        "wavelet db38 with level 12 looks back 307125 tokens where one-sided, more "
        "than 4096: use a lower level",
    ),
    (
        {"scale_weights": "fixed"},
        False,
        "scale_weights fixed with include_approx true weighs all bands alike, "
        "which gives back the input where",
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
        mixer, x = build(params, causal), drawn(3, 9, 6, seed=2)
        later = x.clone()
        later[:, 0] += 1.0
        assert bool((mixer(later) - mixer(x)).detach()[:, 1:].abs().amax() > 1e-3)


def test_weights_that_are_built_can_learn():
    levels = [({"level": 1}, True), ({"level": 2, "include_approx": False}, True)]
    levels += [({"level": 1, "include_approx": False, "scale_weights": "fixed"}, False)]
    for params, learned in levels:
        mixer = build(params)
        assert (mixer.bands.scale_logits is not None) == learned
        mixer(drawn(3, 9, 6, seed=2)).square().sum().backward()
        assert all(bool(p.grad.abs().max() > 1e-6) for p in mixer.parameters())


def test_what_the_plugin_says():
    assert all(field.description for field in Config.model_fields.values())
    assert PLUGIN.facts_of(Config()).causal == "optional"
    assert as_output(build({})(drawn(3, 9, 6, seed=2))).losses == {}
    assert build({}, True).bands.bank.name == "haar"
    assert build({}).bands.bank.name == "db4"
