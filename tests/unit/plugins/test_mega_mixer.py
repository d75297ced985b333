"""The Mega mixer against its oracle, and its behaviour at the edges."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subquad.errors import PluginError
from subquad.plugin import Site
from subquad_plugins.mega import Config
from subquad_plugins.mega.attention import mega_weights
from subquad_plugins.mega.mixer import Mega
from subquad_plugins.mega.naive import mega
from subquad_plugins.mega.weights import LAYER_NAMES, from_official

CONFIGS = [
    {},
    {"attention": "laplace", "norm": "layer"},
    {"chunk_size": 4, "norm": "scale"},
    {"attention": "laplace", "chunk_size": 3, "truncation": 2},
    {"bias": "rotary", "norm": "rms", "attention_dim": 6, "value_dim": 5, "ema_dim": 1},
    {"attention": "laplace", "bias": "rotary", "chunk_size": 50},
    {"max_positions": 30, "ema_dim": 4},
]
BOTH = [pytest.param(False, id="bidirectional"), pytest.param(True, id="causal")]


def build(seed=1, *, dim=8, max_len=11, causal=False, dtype=torch.float64, **params: Any) -> Any:
    """A mixer in evaluation mode none of whose parameters is at its start."""
    torch.manual_seed(seed)
    mixer = Mega(Config(**{"ema_dim": 3, **params}), Site(dim=dim, max_len=max_len, causal=causal)).to(dtype)
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return mixer.eval()


def tokens(batch=3, length=11, dim=8, dtype=torch.float64) -> torch.Tensor:
    return torch.randn(batch, length, dim, dtype=dtype, generator=torch.Generator().manual_seed(3))


def padding(length=11) -> torch.Tensor:
    """One sample padded behind, one in front, one not at all."""
    keep = torch.ones(3, length, dtype=torch.bool)
    keep[0, length // 2 + 1 :] = False
    keep[1, : length // 3] = False
    return keep


@pytest.mark.parametrize("params", CONFIGS, ids=str)
@pytest.mark.parametrize("causal", BOTH)
@pytest.mark.parametrize("masked", [False, True])
def test_outputs_and_gradients_equal_the_oracle(params, causal, masked):
    mixer, x = build(causal=causal, **params), tokens().requires_grad_()
    keep = padding() if masked else None
    real = torch.ones(x.shape[:2], dtype=torch.bool) if keep is None else keep
    weights = {name: value.detach().clone().requires_grad_() for name, value in mixer.state_dict().items()}
    out, expected = mixer(x, keep=keep), mega(x, weights, mixer.config, causal=causal, keep=keep)
    torch.testing.assert_close(out[real], expected[real], rtol=0, atol=1e-12)

    cotangent = torch.randn_like(out).masked_fill(~real[..., None], 0.0)
    names = list(weights)
    got = torch.autograd.grad(out, [x, *(mixer.get_parameter(name) for name in names)], cotangent)
    wanted = torch.autograd.grad(expected, [x, *(weights[name] for name in names)], cotangent)
    for ours, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("form", ["softmax", "laplace"])
@pytest.mark.parametrize("causal", BOTH)
def test_a_chunk_is_attention_of_its_own(form, causal):
    """With the moving average cut to the token itself, chunks know nothing of each other."""
    params: dict[str, Any] = {"attention": form, "truncation": 1}
    mixer = build(chunk_size=4, causal=causal, **params)
    whole = Mega(Config(ema_dim=3, **params), Site(dim=8, max_len=4, causal=causal)).double().eval()
    whole.load_state_dict(mixer.state_dict())
    x = tokens()
    parts = torch.cat([whole(part) for part in x.split(4, 1)], 1)
    torch.testing.assert_close(mixer(x), parts, rtol=0, atol=1e-12)


@pytest.mark.parametrize("params", CONFIGS, ids=str)
@pytest.mark.parametrize("causal", BOTH)
def test_padding_does_not_reach_real_tokens(params, causal):
    mixer, x, keep = build(causal=causal, **params), tokens(), padding()
    out = mixer(x, keep=keep)
    garbage = mixer(x.masked_fill(~keep[..., None], 1e3), keep=keep)
    assert torch.equal(garbage[keep], out[keep])
    for sample in range(3):
        alone = mixer(x[sample : sample + 1, keep[sample]])
        torch.testing.assert_close(out[sample, keep[sample]], alone[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("params", CONFIGS, ids=str)
@pytest.mark.parametrize("causal", BOTH)
def test_a_sample_without_any_real_token_stays_finite(params, causal):
    mixer, x, keep = build(causal=causal, **params), tokens().requires_grad_(), padding()
    keep[1] = False
    out = mixer(x, keep=keep)
    out.sum().backward()
    assert out.isfinite().all()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in mixer.parameters())


@pytest.mark.parametrize("params", CONFIGS, ids=str)
def test_later_tokens_do_not_reach_earlier_ones(params):
    mixer, x = build(causal=True, **params), tokens()
    other = torch.cat([x[:, :5], 3 * tokens().flip(0)[:, 5:]], 1)
    out = mixer(x)
    assert float((mixer(other) - out)[:, :5].detach().abs().max()) <= 1e-12 * float(out.detach().abs().max())


@pytest.mark.parametrize("params", [one for one in CONFIGS if "truncation" not in one], ids=str)
@pytest.mark.parametrize("start", [1, 4, 7])
def test_steps_equal_the_forward_pass(params, start):
    mixer, x = build(causal=True, **params), tokens()
    lengths = torch.tensor([start, max(start - 3, 0), start // 2])
    keep = torch.arange(start) < lengths[:, None]
    out, cache = mixer.prefill(x[:, :start], keep=keep)
    torch.testing.assert_close(out[keep], mixer(x[:, :start], keep=keep)[keep], rtol=0, atol=1e-13)
    sequences = torch.stack([torch.cat([x[b, :n], tokens()[b].flip(0)])[:11] for b, n in enumerate(lengths)])
    full = mixer(sequences)
    for step in range(11 - start):
        before = {name: value.clone() for name, value in cache.items()}
        places = (lengths + step)[:, None, None].expand(-1, 1, 8)
        token, new = mixer.step(sequences.gather(1, places)[:, 0], cache)
        torch.testing.assert_close(token, full.gather(1, places)[:, 0], rtol=0, atol=1e-12)
        assert all(torch.equal(value, before[name]) for name, value in cache.items())
        cache = new
    assert torch.equal(cache["position"], lengths + 11 - start)


def test_caches_are_offered_where_a_recurrence_can_stand_in():
    assert not build().caches
    assert build(causal=True).caches
    assert not build(causal=True, truncation=4).caches
    assert build(causal=True, truncation=11).caches
    with pytest.raises(PluginError, match="Mega offers no decode cache"):
        build().prefill(tokens())
    with pytest.raises(PluginError, match="Mega offers no decode cache"):
        build().step(tokens()[:, 0], {})


def test_sequences_longer_than_the_bias_are_refused():
    mixer = build(causal=True, max_len=5)
    with pytest.raises(PluginError, match="a sequence of 6 tokens is too long for a relative bias of 5 positions"):
        mixer(tokens(length=6))
    _, cache = mixer.prefill(tokens(length=5))
    with pytest.raises(PluginError, match="a sequence of 6 tokens is too long for a relative bias of 5 positions"):
        mixer.step(tokens()[:, 0], cache)


@pytest.mark.parametrize("length", [1, 2, 13])
@pytest.mark.parametrize("params", [{"chunk_size": 4}, {"bias": "rotary"}], ids=str)
def test_any_length_and_strided_inputs(length, params):
    mixer, x = build(**params), tokens(length=length)
    strided = x.transpose(1, 2).contiguous().transpose(1, 2)
    torch.testing.assert_close(mixer(strided), mixer(x), rtol=0, atol=1e-13)
    assert mixer(x).shape == x.shape


def test_attention_weights_by_hand():
    """Two tokens of width 1: sqrt(z) and the count of visible keys are all there is."""
    q, k = torch.tensor([[1.0], [2.0]]).double(), torch.tensor([[3.0], [-1.0]]).double()
    bias = torch.tensor([[0.1, 0.2], [0.3, 0.4]]).double()
    scores = q @ k.T
    softmax = mega_weights(q, k, bias, "softmax")
    torch.testing.assert_close(softmax, (scores + bias).softmax(-1), rtol=0, atol=1e-14)
    normal = torch.distributions.Normal(torch.tensor(0.707107, dtype=q.dtype), torch.tensor(0.282095, dtype=q.dtype))
    laplace = mega_weights(q, k, bias, "laplace", causal=True)
    expected = torch.stack([normal.cdf(scores[0] / 1 + bias[0]), normal.cdf(scores[1] / 2 + bias[1])]).tril()
    torch.testing.assert_close(laplace, expected, rtol=0, atol=1e-14)
    masked = mega_weights(q, k, bias, "laplace", keep=torch.tensor([False, True]))
    torch.testing.assert_close(masked[:, 1], normal.cdf(scores[:, 1] + bias[:, 1]), rtol=0, atol=1e-14)
    assert not masked[:, 0].any()


@pytest.mark.parametrize("form", ["softmax", "laplace"])
def test_bfloat16_stays_near(form):
    mixer, x = build(dtype=torch.float32, attention=form, chunk_size=4), tokens(dtype=torch.float32)
    with torch.no_grad():
        expected = mixer(x, keep=padding())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = mixer(x, keep=padding())
        whole = mixer.bfloat16()(x.bfloat16(), keep=padding())
    assert out.dtype == whole.dtype == torch.bfloat16
    for half in (out, whole):
        torch.testing.assert_close(half.float(), expected, rtol=0, atol=3e-2 * float(expected.abs().max()))


def test_dropouts_act_in_training_only():
    x = tokens()
    for name in ("dropout", "attention_dropout", "value_dropout"):
        params: dict[str, Any] = {name: 0.5}
        mixer = build(**params)
        assert torch.equal(mixer(x), build()(x))
        mixer.train()
        assert not torch.equal(mixer(x), mixer(x))


def test_starting_values_are_the_published_ones():
    torch.manual_seed(0)
    mixer: Any = Mega(Config(), Site(dim=64, max_len=500, num_heads=4))
    for name in ("value.weight", "branches.weight", "out.weight", "scale", "bias.table"):
        assert float(mixer.get_parameter(name).detach().std()) == pytest.approx(0.02, rel=0.2), name
    for name in ("value.bias", "branches.bias", "out.bias", "shift"):
        assert not mixer.get_parameter(name).any(), name
    mixer(tokens(dim=64, dtype=torch.float32)).sum().backward()
    assert all(parameter.grad is not None for parameter in mixer.parameters())


def test_official_names_cover_the_state_and_nothing_else():
    for mixer in (build(norm="layer"), build(norm="scale", bias="rotary"), build(norm="rms")):
        assert set(mixer.state_dict()) <= set(LAYER_NAMES.values())
    with pytest.raises(PluginError, match=r"norm\.norm\.running_mean of the authors' layer has no counterpart"):
        from_official({"norm.norm.running_mean": torch.zeros(8)})
    assert from_official({"norm.norm.weight": torch.ones(8)}, prenorm=False) == {}
    assert set(from_official({"norm.norm.scalar": torch.ones(())})) == {"norm.scale"}


@pytest.mark.ci
@pytest.mark.parametrize("params", [{}, {"chunk_size": 4, "attention": "laplace"}, {"bias": "rotary"}], ids=str)
def test_whole_mixer_compiles_into_one_graph(params):
    mixer, x = build(**params), tokens()
    compiled = torch.compile(mixer, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, keep=padding()), mixer(x, keep=padding()), rtol=0, atol=1e-12)
