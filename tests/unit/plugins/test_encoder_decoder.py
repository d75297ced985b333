"""The encoder-decoder around mixers of three roles: what a target position sees, decoding,
modalities, refusals.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map
from writing import (
    END,
    VOCABULARY,
    causal_subjects,
    cross_subjects,
    documents,
    greedy,
    maker,
    model_of,
    sequence_spec,
    way_name,
    without_caches,
)

from subquad.cost import counting
from subquad.data import NO_LABEL
from subquad.errors import ConfigError, DataError
from subquad.plugin import Site

SPEC = sequence_spec()
SOURCES, TARGETS, STEPS = (11, 6, 1), (14, 9, 1), 13
EVERY_CROSS = list(cross_subjects())


def fits(subject) -> bool:
    """Whether a way to build a mixer takes so short sources."""
    try:
        subject.config.check(
            Site(dim=8, num_heads=2, max_len=SPEC.lengths["target"], context_len=17, role="cross")
        )
    except ValueError:
        return False
    return True


CAUSAL, CROSS = list(causal_subjects()), [subject for subject in EVERY_CROSS if fits(subject)]
ROLES = [("decoder", subject) for subject in CAUSAL] + [("cross", subject) for subject in CROSS]


def role_name(case) -> str:
    return f"{case[0]} {way_name(case[1])}"


def by_role(default: str = "softmax", **mixers):
    """Builds the mixer that is named for a site's role, the default for others."""
    makers = {role: mixer if callable(mixer) else maker(mixer) for role, mixer in mixers.items()}
    return lambda site: makers.get(site.role, maker(default))(site)


def small(spec=SPEC, make=None, **params):
    return model_of("encoder-decoder", make or by_role(), spec, tied=False, **params)


def hidden_of(model, batch) -> Tensor:
    """Hidden states (B, T, D) of the decoder, taught by the labels."""
    found: list[Tensor] = []
    hook = model.final.register_forward_hook(lambda module, given, result: found.append(result))
    model(batch)
    hook.remove()
    return found[0]


def test_there_are_mixers_that_see_another_sequence():
    assert "softmax" in {subject.resolved.found.name for subject in CROSS}
    assert {subject.resolved.found.name for subject in CROSS} == {
        subject.resolved.found.name for subject in EVERY_CROSS
    }


@pytest.mark.parametrize("case", ROLES, ids=role_name)
@torch.no_grad()
def test_decoding_equals_teaching_token_for_token(case):
    """With caches, without, and the forward pass that is given what was written: the same logits
    at each place.
    """
    role, subject = case
    batch = documents(SOURCES, TARGETS, SPEC)
    model = small(make=by_role(**{role: subject}))
    tokens, logits = greedy(model, batch, STEPS)
    again, recomputed = greedy(without_caches(model), batch, STEPS)
    assert torch.equal(tokens, again)
    limit = 1e-9 * logits.abs().max()
    assert (logits - recomputed).abs().max() < limit
    taught = F.linear(hidden_of(model, {**batch, "labels": tokens}), *model.head_weights())
    assert (logits - taught).abs().max() < limit


@pytest.mark.parametrize("case", ROLES, ids=role_name)
def test_a_target_position_sees_the_source_and_no_later_target(case):
    role, subject = case
    model, batch = (
        small(make=by_role(**{role: subject})),
        documents(SOURCES[:1] * 2, TARGETS[:1] * 2, SPEC),
    )
    leak = subject.facts.leak
    with torch.no_grad():
        before = hidden_of(model, batch)
        for place in (0, 5, 12):
            labels = batch["labels"].clone()
            labels[:, place:] = 2 + (labels[:, place:] + 1) % (VOCABULARY - 2)
            # The label of a place is given to the next one.
            difference = (
                (hidden_of(model, {**batch, "labels": labels}) - before)[:, : place + 1].abs().max()
            )
            assert difference == 0 if not leak else difference < 100 * leak * before.abs().max()
        for place in range(SOURCES[0]):
            inputs = batch["inputs"].clone()
            inputs[:, place] = 2 + (inputs[:, place] + 1) % (VOCABULARY - 2)
            assert (hidden_of(model, {**batch, "inputs": inputs}) - before).abs().amax(
                -1
            ).min() > 1e-9


def test_teaching_gives_cross_entropy_and_every_weight_a_gradient():
    model, batch = small(), documents(SOURCES, TARGETS, SPEC)
    scores = model(batch).outputs
    logits = F.linear(hidden_of(model, batch), *model.head_weights())
    expected = F.cross_entropy(
        logits.transpose(1, 2), batch["labels"], ignore_index=NO_LABEL, reduction="none"
    )
    assert torch.allclose(scores.loss.double(), expected, atol=1e-6)
    scores.loss.sum().backward()
    assert all(
        weight.grad is not None and weight.grad.any()
        for weight in model.parameters()
        if weight.ndim > 1
    )


def test_the_first_token_is_preceded_by_the_end_token():
    model, batch = small(), documents(SOURCES, TARGETS, SPEC)
    given: list[Tensor] = []
    model.embedding.register_forward_hook(lambda module, inputs, result: given.append(inputs[0]))
    model(batch)
    labels, before = batch["labels"], given[0]
    assert (before[:, 0] == END).all()
    for row, length in enumerate(TARGETS):
        assert torch.equal(before[row, 1:length], labels[row, : length - 1])
        assert not before[row, length:].any()


def test_padding_and_what_stands_in_it_has_no_influence():
    longer = sequence_spec(titles=9)
    model = small(longer, by_role("mdfwa", cross="softmax"))
    batch = documents(SOURCES, TARGETS, longer)
    expected = model(batch).outputs.loss
    cut = {
        name: tensor[:, :4] if name.endswith("titles") else tensor for name, tensor in batch.items()
    }
    assert torch.allclose(model(cut).outputs.loss, expected, atol=1e-6)
    dirty = {**batch, "inputs": torch.where(batch["keep"], batch["inputs"], 7)}
    dirty["inputs_figures"] = torch.where(
        batch["keep_figures"][..., None], batch["inputs_figures"], 9.0
    )
    assert torch.allclose(model(dirty).outputs.loss, expected, atol=1e-6)


def test_modalities_are_read_after_the_text_before_it_or_not_at_all():
    batch = documents(SOURCES, TARGETS, SPEC)
    parts = {kind: small(modalities=kind).sources.parts for kind in ("after", "before", "none")}
    assert parts == {
        "after": ["inputs", "inputs_figures", "inputs_titles"],
        "before": ["inputs_figures", "inputs_titles", "inputs"],
        "none": ["inputs"],
    }
    models = {part: small(modalities=part) for part in parts}
    assert models["after"].sources.length == 11 + 4 + 2
    changed = {**batch, "inputs_titles": (batch["inputs_titles"] + 1) % VOCABULARY}
    for kind, model in models.items():
        with torch.no_grad():
            difference = (model(changed).outputs.loss - model(batch).outputs.loss).abs().amax(1)
        assert bool((difference == 0).all()) is (kind == "none")
    assert models["none"].sources.modality is None


def test_each_role_and_layer_may_have_its_own_mixer():
    """A Fourier encoder with a softmax decoder, and decoders of another depth."""
    calls = []

    def make(site):
        calls.append(
            (
                site.role,
                site.layer_index,
                site.num_layers,
                site.causal,
                site.max_len,
                site.context_len,
            )
        )
        return by_role("softmax", self="fourier")(site)

    model = model_of("encoder-decoder", make, SPEC, decoder_layers=1)
    assert sorted(calls) == [
        ("cross", 0, 1, False, 14, 17),
        ("decoder", 0, 1, True, 14, 0),
        ("self", 0, 2, False, 17, 0),
        ("self", 1, 2, False, 17, 0),
    ]
    assert [type(layer.mixer).__name__ for layer in model.reading] == ["Fourier", "Fourier"]
    assert len(model.blocks) == 3


@torch.no_grad()
def test_the_source_is_read_once_and_beams_may_reorder_state_and_memory():
    model, batch, order = small(), documents(SOURCES, TARGETS, SPEC), torch.tensor([1, 1, 2, 0])
    calls = []
    for layer in model.reading:
        layer.register_forward_hook(lambda *_: calls.append(1))
    logits, state, memory = model.start(batch)
    assert all(leaf.shape[0] == 3 for leaf in tree_leaves((state, memory)))
    tokens = logits.argmax(-1)
    for _ in range(3):
        moved = tree_map(lambda leaf: leaf.index_select(0, order), (state, memory))
        other, _ = model.step(tokens[order], *moved)
        logits, state = model.step(tokens, state, memory)
        assert torch.allclose(other, logits[order], atol=1e-12)
        tokens = logits.argmax(-1)
    assert len(calls) == 2


@torch.no_grad()
def test_a_step_costs_at_most_linearly_more():
    """Counted FLOPs after n, 2n and 4n tokens: a doubling adds at most twice what the last one
    added.
    """
    spec = sequence_spec(target=49)
    model, counts = small(spec), []
    logits, state, memory = model.start(documents((11,), (2,), spec))
    for length in range(1, 49):
        with counting() as count:
            logits, state = model.step(logits.argmax(-1), state, memory)
        if length in (12, 24, 48):
            counts.append(count.flops)
    assert counts[2] - counts[1] <= 2.05 * (counts[1] - counts[0])


def test_what_cannot_work_is_refused():
    with pytest.raises(ConfigError, match=r"mixer CUR offers no decode cache across two sequences"):
        model_of(
            "encoder-decoder", by_role(cross=maker("cur", mode="different", num_indices=4)), SPEC
        )
    with pytest.raises(ConfigError, match=r"^encoder-decoder: the data set names no end_token"):
        small(replace(SPEC, end_token=0))
    plain = replace(
        SPEC,
        arrays={
            name: array for name, array in SPEC.arrays.items() if not name.startswith("inputs_")
        },
    )
    with pytest.raises(
        ConfigError, match=r"^encoder-decoder: modalities none has no effect, .* leave it at after$"
    ):
        small(plain, modalities="none")
    with pytest.raises(
        DataError, match=r"^backbone: 15 positions, but the position table was built for 14$"
    ):
        greedy(small(), documents(SOURCES, TARGETS, SPEC), 15)


def test_without_norms_source_and_target_are_plain_sums():
    model = model_of("encoder-decoder", maker("softmax"), SPEC, num_layers=1, norm="none")
    (layer,) = model.writing
    x, source = (torch.randn(2, length, 8, dtype=torch.float64) for length in (9, 11))
    mixed = x + layer.mixer(x).out
    looked = mixed + layer.cross(mixed, context=source).out
    expected = looked + layer.ffn(looked)
    torch.testing.assert_close(layer(x, context=source)[0], expected, rtol=1e-12, atol=1e-12)
