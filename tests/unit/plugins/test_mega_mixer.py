"""The Mega mixer against its oracle, and its behaviour at the edges."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensors import built, drawn

from subquad.errors import PluginError
from subquad.plugin import Site
from subquad_plugins.mega import Config
from subquad_plugins.mega.attention import mega_weights
from subquad_plugins.mega.mixer import Mega
from subquad_plugins.mega.weights import LAYER_NAMES, from_official

BOTH = [pytest.param(False, id="bidirectional"), pytest.param(True, id="causal")]


def build(*, max_len=11, causal=False, **params: Any) -> Any:
    return built("mega", {"ema_dim": 3, **params}, dim=8, max_len=max_len, causal=causal)


@pytest.mark.parametrize("form", ["softmax", "laplace"])
@pytest.mark.parametrize("causal", BOTH)
def test_a_chunk_is_attention_of_its_own(form, causal):
    """With the moving average cut to the token itself, chunks know nothing of each other."""
    params: dict[str, Any] = {"attention": form, "truncation": 1}
    mixer = build(chunk_size=4, causal=causal, **params)
    whole = Mega(Config(ema_dim=3, **params), Site(dim=8, max_len=4, causal=causal)).double().eval()
    whole.load_state_dict(mixer.state_dict())
    x = drawn(3, 11, 8)
    parts = torch.cat([whole(part) for part in x.split(4, 1)], 1)
    torch.testing.assert_close(mixer(x), parts, rtol=0, atol=1e-12)


def test_caches_are_offered_where_a_recurrence_can_stand_in():
    assert not build().caches
    assert build(causal=True).caches
    assert not build(causal=True, truncation=4).caches
    assert build(causal=True, truncation=11).caches
    with pytest.raises(PluginError, match="Mega offers no decode cache"):
        build().prefill(drawn(3, 11, 8))
    with pytest.raises(PluginError, match="Mega offers no decode cache"):
        build().step(drawn(3, 11, 8)[:, 0], {})


def test_sequences_longer_than_the_bias_are_refused():
    mixer = build(causal=True, max_len=5)
    with pytest.raises(
        PluginError, match="a sequence of 6 tokens is too long for a relative bias of 5 positions"
    ):
        mixer(drawn(3, 6, 8))
    _, cache = mixer.prefill(drawn(3, 5, 8))
    with pytest.raises(
        PluginError, match="a sequence of 6 tokens is too long for a relative bias of 5 positions"
    ):
        mixer.step(drawn(3, 11, 8)[:, 0], cache)


def test_attention_weights_by_hand():
    """Two tokens of width 1: sqrt(z) and the count of visible keys are all there is."""
    q, k = torch.tensor([[1.0], [2.0]]).double(), torch.tensor([[3.0], [-1.0]]).double()
    bias = torch.tensor([[0.1, 0.2], [0.3, 0.4]]).double()
    scores = q @ k.T
    softmax = mega_weights(q, k, bias, "softmax")
    torch.testing.assert_close(softmax, (scores + bias).softmax(-1), rtol=0, atol=1e-14)
    normal = torch.distributions.Normal(
        torch.tensor(0.707107, dtype=q.dtype), torch.tensor(0.282095, dtype=q.dtype)
    )
    laplace = mega_weights(q, k, bias, "laplace", causal=True)
    expected = torch.stack(
        [normal.cdf(scores[0] / 1 + bias[0]), normal.cdf(scores[1] / 2 + bias[1])]
    ).tril()
    torch.testing.assert_close(laplace, expected, rtol=0, atol=1e-14)
    masked = mega_weights(q, k, bias, "laplace", keep=torch.tensor([False, True]))
    torch.testing.assert_close(
        masked[:, 1], normal.cdf(scores[:, 1] + bias[:, 1]), rtol=0, atol=1e-14
    )
    assert not masked[:, 0].any()


def test_starting_values_are_the_published_ones():
    torch.manual_seed(0)
    mixer: Any = Mega(Config(), Site(dim=64, max_len=500, num_heads=4))
    for name in ("value.weight", "branches.weight", "out.weight", "scale", "bias.table"):
        assert float(mixer.get_parameter(name).detach().std()) == pytest.approx(0.02, rel=0.2), name
    for name in ("value.bias", "branches.bias", "out.bias", "shift"):
        assert not mixer.get_parameter(name).any(), name
    mixer(drawn(3, 11, 64, dtype=torch.float32)).sum().backward()
    assert all(parameter.grad is not None for parameter in mixer.parameters())


def test_official_names_cover_the_state_and_nothing_else():
    for mixer in (build(norm="layer"), build(norm="scale", bias="rotary"), build(norm="rms")):
        assert set(mixer.state_dict()) <= set(LAYER_NAMES.values())
    with pytest.raises(
        PluginError, match=r"norm\.norm\.running_mean of the authors' layer has no counterpart"
    ):
        from_official({"norm.norm.running_mean": torch.zeros(8)})
    assert from_official({"norm.norm.weight": torch.ones(8)}, prenorm=False) == {}
    assert set(from_official({"norm.norm.scalar": torch.ones(())})) == {"norm.scale"}
