"""The projections around every core: cross-attention, rotary positions, norms, decoding, shared
weights.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import subquad
from subquad.errors import ConfigError, PluginError
from subquad.nn import AttentionCore, AttentionMixer, rotate
from subquad.plugin import AttentionConfig, Site

SITE = Site(dim=8, num_heads=2)
ACROSS = replace(SITE, role="cross")


class Plain(AttentionCore):
    """Softmax attention by its formula, with both masks."""

    def forward(self, q, k, v, *, query_keep=None, key_keep=None):
        scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5
        if key_keep is not None:
            scores = scores.masked_fill(~key_keep[:, None, None], -1e9)
        out = scores.softmax(-1) @ v
        return out if query_keep is None else out * query_keep[:, None, :, None]


def mixer(core: type[AttentionCore] = Plain, site: Site = SITE, **config) -> AttentionMixer:
    torch.manual_seed(0)
    return AttentionMixer(core(), site, AttentionConfig(**config)).double()


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def test_cross_attention_with_other_lengths_and_two_masks():
    """Against torch's own multi-head attention with the same weights."""
    ours = mixer(site=ACROSS)
    theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True).double()
    projections = (ours.query, ours.key, ours.value)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([projection.weight for projection in projections]))
        theirs.in_proj_bias.copy_(torch.cat([projection.bias for projection in projections]))
        theirs.out_proj.load_state_dict(ours.out.state_dict())
    x, context = draw(2, 5, 8), draw(2, 9, 8)
    keep = torch.arange(5) < torch.tensor([[5], [3]])
    context_keep = torch.arange(9) < torch.tensor([[4], [9]])
    got = ours(x, keep=keep, context=context, context_keep=context_keep).out
    expected = theirs(x, context, context, key_padding_mask=~context_keep, need_weights=False)[0]
    assert (got - expected)[keep].abs().max() < 1e-12
    # the core was told which queries are padding
    assert torch.equal(got[1, 3:], ours.out.bias.expand(2, 8))


def test_another_sequence_is_refused_where_none_is_expected():
    with pytest.raises(PluginError, match="another sequence can be seen at a site with the role"):
        mixer()(draw(2, 5, 8), context=draw(2, 9, 8))


def test_a_context_that_is_the_sequence_itself_is_self_attention():
    x, keep = draw(2, 6, 8), torch.arange(6) < torch.tensor([[6], [4]])
    across = mixer(site=ACROSS)
    assert torch.equal(
        mixer()(x, keep=keep).out, across(x, keep=keep, context=x, context_keep=keep).out
    )


def test_rotary_positions_turn_pairs_by_their_angle():
    x, positions = draw(1, 2, 3, 4), torch.tensor([[0, 1, 7]])
    turned = rotate(x, positions)
    for place, position in enumerate([0, 1, 7]):
        for channel, rate in enumerate([1.0, 10000.0**-0.5]):
            number = torch.complex(x[0, :, place, channel], x[0, :, place, channel + 2])
            expected = number * torch.exp(
                torch.tensor(1j * position * rate, dtype=torch.complex128)
            )
            assert (turned[0, :, place, channel] - expected.real).abs().max() < 1e-12
            assert (turned[0, :, place, channel + 2] - expected.imag).abs().max() < 1e-12


def test_rotary_scores_depend_on_distances_only():
    q, k = (
        rotate(draw(1, 1, 6, 4), torch.arange(6)[None]),
        rotate(draw(1, 1, 6, 4), torch.arange(6)[None]),
    )
    far_q, far_k = (rotate(draw(1, 1, 6, 4), torch.arange(6)[None] + 5) for _ in range(2))
    assert (q @ k.transpose(2, 3) - far_q @ far_k.transpose(2, 3)).abs().max() < 1e-12


def test_padding_in_front_moves_no_rotary_position():
    ours, x = mixer(rotary=True), draw(1, 5, 8)
    padded, keep = torch.cat([draw(1, 3, 8) * 9, x], 1), torch.arange(8)[None] >= 3
    assert (ours(padded, keep=keep).out[:, 3:] - ours(x).out).abs().max() < 1e-12


def test_rotary_needs_an_even_head_width():
    with pytest.raises(
        ConfigError, match=r"rotary needs an even head width, got 6 / 2 = 3 \(mixer softmax\)"
    ):
        subquad.mixer("softmax", dim=6, num_heads=2, rotary=True)


@pytest.mark.parametrize(
    ("kind", "norm"), [("layer", torch.nn.LayerNorm), ("rms", torch.nn.RMSNorm)]
)
def test_queries_and_keys_are_normed_per_head(kind, norm):
    arguments = {}

    class Spy(Plain):
        def forward(self, q, k, v, **masks):
            arguments.update(q=q, k=k, v=v)
            return v

    ours, x = mixer(Spy, qk_norm=kind), draw(2, 3, 8)
    ours(x)
    for name, project in (("q", ours.query), ("k", ours.key)):
        heads = project(x).unflatten(-1, (2, 4)).transpose(1, 2)
        assert (arguments[name] - norm(4).double()(heads)).abs().max() < 1e-12
    assert torch.equal(arguments["v"], ours.value(x).unflatten(-1, (2, 4)).transpose(1, 2))


def test_a_softmax_models_weights_load_into_another_core():
    """The same names and shapes, so strict loading works, and only the core differs."""
    softmax, other = subquad.mixer("softmax", dim=8, num_heads=2).double(), mixer()
    other.load_state_dict(softmax.state_dict())
    x = draw(2, 7, 8)
    assert (softmax(x) - other(x).out).abs().max() < 1e-12


@pytest.mark.parametrize(
    "params", [{}, {"rotary": True, "qk_norm": "rms"}], ids=["plain", "rotary"]
)
def test_decoding_equals_the_whole_sequence(params):
    ours = subquad.mixer("softmax", dim=8, num_heads=2, causal=True, **params).double().eval()
    x, lengths = draw(3, 9, 8), torch.tensor([4, 6, 1])
    keep = torch.arange(6) < lengths[:, None]
    out, cache = ours.prefill(torch.where(keep[..., None], x[:, :6], 99.0), keep=keep)
    for sample, length in enumerate(lengths):
        assert (out[sample, :length] - ours(x[sample : sample + 1, :length])[0]).abs().max() < 1e-12
    for step in range(3):
        out, cache = ours.step(x[torch.arange(3), lengths + step], cache)
        for sample, length in enumerate(lengths):
            whole = ours(x[sample : sample + 1, : length + step + 1])[0, -1]
            assert (out[sample] - whole).abs().max() < 1e-12


def test_a_core_without_a_cache_says_so():
    assert not mixer().caches
    with pytest.raises(PluginError, match="Plain offers no decode cache"):
        mixer().prefill(draw(1, 2, 8))


@pytest.mark.parametrize("config", [{}, {"rotary": True}, {"qk_norm": "rms"}])
@pytest.mark.parametrize("masked", [False, True])
def test_cached_cross_attention_equals_the_whole_sequence(config, masked):
    """Memory built once; each query's output from it is what `forward` gives, by prefill and by
    steps.
    """
    torch.manual_seed(0)
    ours = subquad.mixer("softmax", dim=8, num_heads=2, role="cross", **config).double()
    assert ours.caches
    x, context = draw(3, 7, 8), draw(3, 9, 8)
    context_keep = torch.arange(9) < torch.tensor([[9], [4], [0]]) if masked else None
    expected = ours(x, context=context, context_keep=context_keep)
    memory = ours.memory(context, keep=context_keep)
    starts = torch.tensor([4, 2, 1])
    keep = torch.arange(4) < starts[:, None]
    out, cache = ours.prefill(x[:, :4], keep=keep, memory=memory)
    assert (out - expected[:, :4])[keep].abs().max() < 1e-12
    for number in range(3):
        place = starts + number
        out, cache = ours.step(x[torch.arange(3), place], cache, memory=memory)
        assert (out - expected[torch.arange(3), place]).abs().max() < 1e-12
        assert torch.equal(cache["position"], place + 1)


def test_a_memory_is_reordered_like_a_cache():
    ours = subquad.mixer("softmax", dim=8, num_heads=2, role="cross").double()
    context, order = draw(3, 5, 8), torch.tensor([2, 0])
    memory = ours.memory(context, keep=torch.arange(5) < torch.tensor([[5], [4], [1]]))
    chosen = {name: tensor.index_select(0, order) for name, tensor in memory.items()}
    x = draw(3, 2, 8)
    whole = ours.prefill(x, memory=memory)[0]
    assert (ours.prefill(x[order], memory=chosen)[0] - whole[order]).abs().max() < 1e-12


def test_queries_that_depend_on_each_other_are_not_cached():
    assert not subquad.mixer("cur", dim=8, num_heads=2, role="cross", mode="different").caches


def test_a_mixer_of_one_sequence_cannot_stand_where_two_meet():
    with pytest.raises(
        ConfigError,
        match=r"mixer agf .* mixes one sequence and cannot let it see another \(role "
        r"cross\); `mixers` can",
    ):
        subquad.mixer("agf", dim=8, num_heads=2, role="cross")
    with pytest.raises(PluginError, match="Identity sees no other sequence"):
        subquad.mixer("identity", dim=8).memory(draw(1, 2, 8))
