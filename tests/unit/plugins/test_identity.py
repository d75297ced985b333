"""The control without mixing: each token alone, and zero where it has no projections."""

from __future__ import annotations

import torch

from subquad.nn import AttentionMixer
from subquad.plugin import Site
from subquad_plugins.identity import Config
from subquad_plugins.identity.mixer import Identity
from subquad_plugins.softmax import Config as SoftmaxConfig
from subquad_plugins.softmax.core import Softmax

SITE = Site(dim=8, num_heads=2)


def test_no_token_sees_another():
    torch.manual_seed(0)
    mixer, x = Identity(Config(), SITE).double(), torch.randn(2, 5, 8, dtype=torch.float64)
    for position in range(5):
        alone = mixer(x[:, position : position + 1])
        torch.testing.assert_close(
            mixer(x)[:, position : position + 1], alone, rtol=1e-13, atol=1e-13
        )


def test_projections_have_the_names_and_shapes_of_attention():
    attention = AttentionMixer(Softmax(SoftmaxConfig(), SITE), SITE).state_dict()
    control = Identity(Config(), SITE).state_dict()
    assert {name: value.shape for name, value in control.items()} == {
        name: attention[name].shape
        for name in ("value.weight", "value.bias", "out.weight", "out.bias")
    }


def test_without_projections_the_output_is_zero():
    mixer, x = Identity(Config(projections=False), SITE), torch.randn(2, 5, 8)
    assert torch.equal(mixer(x), torch.zeros_like(x))
    assert not list(mixer.parameters())
