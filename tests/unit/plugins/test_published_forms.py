"""The published forms that speed is compared with: the same numbers as the mixers, from the same
weights.
"""

from dataclasses import replace
from typing import Any

import pytest
import torch

from subquad.errors import PluginError
from subquad.experiment import parameters
from subquad.nn import as_output
from subquad.plugin import MixerPlugin, Site
from subquad.registry import make_mixer, resolve

FORMS = [
    ("agf", {}),
    ("agf", {"order": 5, "jacobi_a": 2.0, "jacobi_b": -1.0}),
    (
        "agf",
        {"order": 1, "fix_identity": False, "ortho_norm": "frobenius", "sigma_map": "symmetric"},
    ),
    ("agf", {"order": 4, "basis": "chebyshev", "coeff_activation": "none", "ortho_weight": 0.0}),
    ("nystrom", {"num_landmarks": 4}),
    ("nystrom", {"num_landmarks": 8, "conv_kernel": 0, "iterations": 2}),
]


def both(name: str, params: dict[str, Any], length: int = 16) -> list[torch.nn.Module]:
    """The mixer and its published form, with the same weights in float64."""
    ours, site = resolve("mixer", name), Site(dim=12, num_heads=3, max_len=length)
    assert isinstance(ours.plugin, MixerPlugin)
    assert ours.plugin.published is not None
    theirs = replace(ours, plugin=replace(ours.plugin, build=ours.plugin.published.build))
    torch.manual_seed(0)
    mixers = [make_mixer(name, parameters(name, params), site).double() for name in (ours, theirs)]
    with torch.no_grad():
        for weight in mixers[0].parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    mixers[1].load_state_dict(mixers[0].state_dict())
    return mixers


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("name", "params"), FORMS)
def test_outputs_losses_and_gradients_are_the_same(name, params, masked):
    x = torch.randn(2, 16, 12, dtype=torch.float64, requires_grad=True)
    keep = torch.ones(2, 16, dtype=torch.bool)
    if masked and name == "agf":  # the published segments are of the padded length
        keep[1, 11:] = False
    ours, theirs = both(name, params)
    assert theirs.loss_weights == ours.loss_weights
    found = []
    for mixer in (ours, theirs):
        result = as_output(mixer(x, keep=keep if masked else None))
        values = [result.out, *result.losses.values()]
        grads = torch.autograd.grad(
            sum(value.square().sum() for value in values), [x, *mixer.parameters()]
        )
        found.append(
            dict(zip(["x", *(key for key, _ in mixer.named_parameters())], grads, strict=True))
        )
        found[-1] |= {"out": result.out, **result.losses}
    assert set(found[0]) == set(found[1])
    for key, value in found[0].items():
        torch.testing.assert_close(
            found[1][key], value, rtol=1e-8, atol=1e-11, msg=lambda text, key=key: f"{key}: {text}"
        )


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("agf", {"form": "uv"}, "agf: the published form has form svd"),
        (
            "nystrom",
            {"num_landmarks": 5},
            "nystrom: the published form needs lengths that are multiples of 5",
        ),
    ],
)
def test_what_was_not_published_is_refused(name, params, message):
    with pytest.raises(PluginError, match=message):
        both(name, params)
