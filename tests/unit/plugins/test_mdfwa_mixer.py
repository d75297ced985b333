"""MDFWA against its oracle with every switch, and its behaviour at the edges."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensors import built, drawn

from subquad.errors import PluginError
from subquad.plugin import Site
from subquad_plugins.encoder import TransformerConfig
from subquad_plugins.encoder.layer import EncoderLayer
from subquad_plugins.mdfwa import Config
from subquad_plugins.mdfwa.mixer import MDFWA
from subquad_plugins.mdfwa.naive import mdfwa

MAX_LEN = 32


def build(params: dict[str, Any], causal: bool = False) -> Any:
    return built("mdfwa", params, by=0.1, dim=6, causal=causal, max_len=MAX_LEN)


def test_the_block_of_the_paper_is_the_token_and_the_normed_mixture():
    """Section 3.4, Z = X + LayerNorm(Y), then the feed-forward part with its plain sum."""
    mixer = build({"norm": "paper"})
    config = TransformerConfig(dim=6, num_heads=1, dropout=0.0, norm="none")
    block = EncoderLayer(config, mixer).double()
    x = drawn(2, 17, 6, seed=3)
    normed = mdfwa(
        x,
        b=mixer.bias,
        F_F=mixer.from_fourier.weight.T,
        F_W=mixer.from_wavelet.weight.T,
        P=mixer.project.weight,
        alpha=mixer.bands.weights(x),
        gain=mixer.norm.weight,
        bias=mixer.norm.bias,
        norm="paper",
    )
    expected = x + normed
    expected = expected + block.ffn(expected)
    torch.testing.assert_close(block(x)[0], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("length", [1, 30])
def test_every_projection_is_called_at_any_size(length):
    mixer, called = build({"gate": "sigmoid"}), []
    for name in ("from_fourier", "project", "from_wavelet", "gate"):
        mixer.get_submodule(name).register_forward_hook(lambda *_, name=name: called.append(name))
    mixer(drawn(1, length, 6, seed=2))
    assert sorted(called) == ["from_fourier", "from_wavelet", "gate", "project"]


@pytest.mark.parametrize("causal", [False, True])
def test_longer_sequences_than_it_was_built_for_are_refused(causal):
    with pytest.raises(PluginError, match="mdfwa: got 33 positions, and it was built for 32"):
        build({}, causal)(drawn(3, 33, 6, seed=2))
    if causal:
        with pytest.raises(PluginError, match="mdfwa: got 33 positions, and it was built for 32"):
            build({}, causal).prefill(drawn(3, 33, 6, seed=2))
    assert build({"branches": "wavelet"}, causal)(drawn(3, 33, 6, seed=2)).shape == (3, 33, 6)


def test_an_encoder_that_cannot_be_a_decoder_is_bound_by_learned_frequencies_only():
    assert build({"form": "hartley"})(drawn(3, 33, 6, seed=2)).shape == (3, 33, 6)
    with pytest.raises(PluginError, match="mdfwa: got 33 positions, and it was built for 32"):
        build({"form": "hartley", "frequencies": "learned"})(drawn(3, 33, 6, seed=2))


def test_dropout_comes_before_the_norm():
    mixer = MDFWA(Config(dropout=0.5), Site(dim=16, max_len=9)).double().train()
    out = mixer(drawn(3, 9, 16, seed=2)).detach()
    torch.testing.assert_close(
        out.mean(-1), torch.zeros(3, 9, dtype=torch.float64), rtol=0, atol=1e-12
    )
    assert bool((out != 0).all())


def test_frequencies_are_not_decayed_and_start_at_whole_numbers():
    for causal in (False, True):
        mixer: Any = MDFWA(Config(frequencies="learned"), Site(dim=4, causal=causal, max_len=9))
        assert [(name, rule.weight_decay) for name, rule in mixer.parameter_rules().items()] == [
            ("fourier.offset", False)
        ]
        assert dict(mixer.named_parameters())["fourier.offset"].tolist() == [0.0] * 9
    assert build({}).parameter_rules() == {}


def test_an_unknown_length_is_enough_where_none_is_needed():
    x = drawn(3, 50, 4, seed=2).float()
    assert MDFWA(Config(), Site(dim=4))(x).shape == (3, 50, 4)
    assert MDFWA(Config(period=20), Site(dim=4, causal=True))(x[:, :20]).shape == (3, 20, 4)
