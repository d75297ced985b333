"""The decoder around every causal mixer: what it scores, that no position sees a later one,
decoding, refusals.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves, tree_map
from writing import (
    VOCABULARY,
    causal_subjects,
    greedy,
    maker,
    model_of,
    prompts,
    text_spec,
    way_name,
    without_caches,
)

from subquad.cost import counting
from subquad.data import NO_LABEL
from subquad.errors import ConfigError, DataError
from subquad.nn import TokenScores, as_output

SUBJECTS = list(causal_subjects())
LENGTHS, STEPS = (7, 4, 1), 13
SPEC = text_spec(max(LENGTHS) + STEPS)


def test_every_kind_of_causal_mixer_is_found():
    assert {"causal_fourier", "identity", "mdfwa", "mega", "sfpc", "softmax", "wavelet"} <= {
        subject.resolved.found.name for subject in SUBJECTS
    }


@pytest.mark.parametrize("subject", SUBJECTS, ids=way_name)
def test_decoding_with_caches_equals_decoding_without(subject):
    """Token for token, prompts of three lengths in one batch; and both equal the forward pass
    over what was written.
    """
    batch = prompts(LENGTHS)
    model = model_of("decoder", maker(subject), SPEC, tied=False)
    cached = model.caches
    tokens, logits = greedy(model, batch, STEPS)
    assert len(set(tokens.flatten().tolist())) > 1
    again, recomputed = greedy(without_caches(model), batch, STEPS)
    assert torch.equal(tokens, again)
    assert (logits - recomputed).abs().max() < 1e-9 * logits.abs().max()
    for row, length in enumerate(LENGTHS):
        whole = torch.cat([batch["inputs"][row, :length], tokens[row, :-1]])[None]
        with torch.no_grad():
            hidden, _ = model.write(whole, None)
        expected = F.linear(hidden, *model.head_weights())[0, length - 1 :]
        assert (logits[row] - expected).abs().max() < 1e-9 * expected.abs().max()
    # the moving average of the one is cut off in one of its ways, the other sorts by hash
    assert cached or subject.resolved.found.name in ("mega", "reformer")


@pytest.mark.parametrize("subject", SUBJECTS, ids=way_name)
def test_no_position_sees_a_later_one(subject):
    """Bit for bit, or within what the mixer's FFTs let through."""
    model, batch = model_of("decoder", maker(subject), SPEC), prompts((12, 12, 12))
    for place in (1, 6, 11):
        other = {**batch, "inputs": batch["inputs"].clone()}
        other["inputs"][:, place:] = (other["inputs"][:, place:] + 3) % VOCABULARY
        with torch.no_grad():
            before, after = (
                model.write(inputs["inputs"], inputs["keep"])[0][:, :place]
                for inputs in (batch, other)
            )
        difference = (before - after).abs().max() / before.abs().max()
        assert difference == 0 if not subject.facts.leak else difference < 100 * subject.facts.leak


@pytest.mark.parametrize("tied", [True, False])
def test_scores_are_those_of_the_logits(tied):
    model, batch = model_of("decoder", maker("softmax"), SPEC, tied=tied), prompts((9, 5))
    scores = model(batch).outputs
    assert isinstance(scores, TokenScores)
    hidden, _ = model.write(batch["inputs"], batch["keep"])
    logits = F.linear(hidden, *model.head_weights())
    expected = F.cross_entropy(
        logits.transpose(1, 2), batch["labels"], ignore_index=NO_LABEL, reduction="none"
    )
    assert torch.allclose(scores.loss.double(), expected, atol=1e-6)
    scores.loss.sum().backward()
    assert all(weight.grad is not None for weight in model.parameters())
    assert (model.head is None) is tied


def test_padding_after_a_text_has_no_influence():
    model = model_of("decoder", maker("mdfwa"), SPEC)
    short, long = (model(prompts((9, 5), width)).outputs.loss for width in (9, 15))
    assert torch.allclose(short, long[:, :9], atol=1e-6)


@pytest.mark.parametrize("cached", [True, False])
def test_beams_may_reorder_the_state_of_any_mixer(cached):
    order = torch.tensor([2, 0, 0, 1])
    for name in ("softmax", "mdfwa", "causal_fourier"):
        model = model_of("decoder", maker(name), SPEC)
        model = model if cached else without_caches(model)
        with torch.no_grad():
            logits, state, memory = model.start(prompts(LENGTHS))
            assert memory is None
            assert all(leaf.shape[0] == len(LENGTHS) for leaf in tree_leaves(state))
            moved = tree_map(lambda leaf: leaf.index_select(0, order), state)
            tokens = logits.argmax(-1)
            kept = [leaf.clone() for leaf in tree_leaves(state)]
            plain, _ = model.step(tokens, state, None)
            reordered, _ = model.step(tokens[order], moved, None)
        assert torch.allclose(plain[order], reordered, atol=1e-9)
        assert all(map(torch.equal, kept, tree_leaves(state)))


@pytest.mark.parametrize("name", ["softmax", "mdfwa", "sfpc", "mega"])
def test_a_step_costs_at_most_linearly_more(name):
    """Counted FLOPs of the step after n, 2n and 4n tokens: each doubling adds at most twice what
    the last one added.
    """
    params, counts = {"operator": "shift"} if name == "sfpc" else {}, []
    model = model_of("decoder", maker(name, **params), text_spec(513))
    for length in (128, 256, 512):
        with torch.no_grad():
            logits, state, memory = model.start(prompts((length,)))
            with counting() as count:
                model.step(logits.argmax(-1), state, memory)
        assert not count.unknown
        counts.append(count.flops)
    assert counts[2] - counts[1] <= 2.02 * (counts[1] - counts[0])
    assert counts[2] <= 4 * counts[0]


def test_longer_texts_than_positions_are_refused():
    model = model_of("decoder", maker("softmax"), text_spec(6))
    with pytest.raises(
        DataError, match=r"^backbone: 7 positions, but the position table was built for 6$"
    ):
        greedy(model, prompts((4, 6)), 2)
    with pytest.raises(ConfigError, match=r"sees later positions and cannot be causal"):
        model_of("decoder", maker("agf"), text_spec(6))


def test_the_model_of_nanogpt():
    spec = text_spec(64)
    model = model_of(
        "decoder",
        maker("softmax"),
        spec,
        num_layers=4,
        dim=128,
        num_heads=4,
        norm="pre",
        activation="gelu",
    )
    attention, feed_forward = 4 * 128 * 128 + 4 * 128, 2 * 4 * 128 * 128 + 5 * 128
    expected = 4 * (attention + feed_forward + 2 * 2 * 128) + 2 * 128 + (VOCABULARY + 64) * 128
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


@pytest.mark.parametrize("mixer", ["mega", "softmax"])
def test_without_norms_a_layer_is_plain_sums(mixer):
    model = model_of("decoder", maker(mixer), text_spec(6), num_layers=1, norm="none")
    (layer,) = model.writing
    tokens = prompts((6, 6))
    x = model.embedding(tokens["inputs"])
    mixed = x + as_output(layer.mixer(x, keep=tokens["keep"])).out
    expected = mixed + layer.ffn(mixed)
    torch.testing.assert_close(layer(x, tokens["keep"])[0], expected, rtol=1e-12, atol=1e-12)
    assert not [name for name, _ in layer.named_parameters() if "norm" in name.partition(".")[0]]
