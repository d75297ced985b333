"""The dual encoder: what its pair features are, that towers share weights and nothing else, and
what it refuses.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from writing import maker

from subquad.data import DataSpec
from subquad.errors import DataError
from subquad.nn import BackboneContext, MixerOutput, TokenMixer, gather_losses
from subquad.plugin import Site
from subquad_plugins.dual_encoder import PLUGIN
from subquad_plugins.dual_encoder.backbone import DualEncoder, pair_features
from subquad_plugins.encoder import Config
from subquad_plugins.encoder.backbone import Encoder

TOKENS = DataSpec.tokens(max_len=9, vocab_size=20, num_classes=2)
SERIES = DataSpec.series(max_len=9, channels=3, num_classes=2)
AGF, SOFTMAX = maker("agf"), maker("softmax")
LENGTHS, LENGTHS_B = (9, 5, 7), (4, 9, 1)


def build(make_mixer=AGF, spec: DataSpec = TOKENS, kind: Any = DualEncoder, **params: Any) -> Any:
    torch.manual_seed(0)
    settings: dict[str, Any] = {
        "dim": 8,
        "num_heads": 2,
        "dropout": 0.0,
        "head_hidden": 6,
        **params,
    }
    context = BackboneContext(spec=spec, num_outputs=2, make_mixer=make_mixer)
    return kind(Config(**settings), context).double()


def pairs(spec: DataSpec = TOKENS, lengths_b: tuple[int, ...] = LENGTHS_B) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    batch = {}
    for suffix, lengths in (("", LENGTHS), ("_b", lengths_b)):
        keep = torch.arange(9) < torch.tensor(lengths)[:, None]
        tokens = torch.randint(1, 20, keep.shape, generator=generator) * keep
        values = torch.randn(*keep.shape, 3, generator=generator, dtype=torch.float64)
        batch |= {f"inputs{suffix}": tokens if spec.vocab_size else values, f"keep{suffix}": keep}
    return batch


def single(batch: dict[str, Tensor], suffix: str = "") -> dict[str, Tensor]:
    return {"inputs": batch[f"inputs{suffix}"], "keep": batch[f"keep{suffix}"]}


def test_pair_features_equal_their_definition():
    a, b = torch.tensor([[2.0, 3.0]]), torch.tensor([[5.0, -1.0]])
    assert pair_features(a, b).tolist() == [[2.0, 3.0, 5.0, -1.0, 10.0, -3.0, -3.0, 4.0]]


@pytest.mark.parametrize("head", ["mean", "mean_padded", "cls", "last", "flatten"])
@pytest.mark.parametrize("spec", [SERIES, TOKENS], ids=["series", "tokens"])
def test_it_is_the_encoder_run_over_both_and_a_head_on_the_pair(head, spec):
    """The encoder with the same weights and an identity head gives the two feature vectors."""
    model, encoder = (
        build(spec=spec, head=head).eval(),
        build(spec=spec, head=head, kind=Encoder).eval(),
    )
    tower = {
        name: value for name, value in model.state_dict().items() if not name.startswith("head.")
    }
    missing, unexpected = encoder.load_state_dict(tower, strict=False)
    assert all(name.startswith("head.") for name in missing)
    assert unexpected == []
    encoder.head = nn.Identity()
    batch = pairs(spec)
    a, b = (encoder(single(batch, suffix)).outputs for suffix in ("", "_b"))
    hidden = torch.relu(model.head[0](torch.cat([a, b, a * b, a - b], 1)))
    torch.testing.assert_close(model(batch).outputs, model.head[2](hidden), rtol=1e-12, atol=1e-12)


def test_extra_losses_are_means_over_both_sequences_per_sample():
    model, batch = build(num_layers=2), pairs()
    output = model(batch)
    towers = [
        gather_losses(model.mixers, model.features(*single(batch, suffix).values())[1])
        for suffix in ("", "_b")
    ]
    (a, penalty_a), (b, penalty_b) = towers
    assert penalty_a is not None
    assert penalty_b is not None
    assert output.losses["ortho"].shape == (3,)
    torch.testing.assert_close(output.losses["ortho"], (a["ortho"] + b["ortho"]) / 2)
    torch.testing.assert_close(output.penalty, (penalty_a + penalty_b) / 2)
    torch.testing.assert_close(output.penalty, 0.1 * output.losses["ortho"])


def test_mixers_without_losses_give_none():
    output = build(SOFTMAX)(pairs())
    assert (dict(output.losses), output.penalty) == ({}, None)


class Recorder(TokenMixer):
    """Hands on what it was given, with its own layer added, and remembers it."""

    def __init__(self, site: Site):
        super().__init__()
        self.site = site
        self.seen: list[tuple[Tensor | None, Any]] = []

    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> MixerOutput:
        self.seen.append((keep, carry))
        return MixerOutput(0 * x, {}, (*(carry or ()), self.site.layer_index))


def test_carries_and_masks_of_the_two_sequences_stay_apart():
    model, batch = build(Recorder, num_layers=3), pairs()
    model(batch)
    for index, mixer in enumerate(model.mixers):
        (keep, carry), (keep_b, carry_b) = mixer.seen
        assert torch.equal(keep, batch["keep"])
        assert torch.equal(keep_b, batch["keep_b"])
        assert carry == carry_b == (tuple(range(index)) or None)


@pytest.mark.parametrize("make_mixer", [AGF, SOFTMAX], ids=["agf", "softmax"])
@pytest.mark.parametrize("head", ["mean", "mean_padded", "cls", "last"])
def test_what_stands_in_padding_does_not_matter(make_mixer, head):
    model, batch = build(make_mixer, head=head).eval(), pairs()
    other = {**batch, "inputs_b": batch["inputs_b"].masked_fill(~batch["keep_b"], 7)}
    torch.testing.assert_close(model(other).outputs, model(batch).outputs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("make_mixer", [AGF, SOFTMAX], ids=["agf", "softmax"])
def test_every_parameter_receives_a_finite_gradient_also_with_an_empty_sequence(make_mixer):
    model = build(make_mixer)
    output = model(pairs(lengths_b=(4, 0, 1)))
    assert output.outputs.isfinite().all()
    (output.outputs.sum() + (0.0 if output.penalty is None else output.penalty.sum())).backward()
    assert all(
        parameter.grad is not None and parameter.grad.isfinite().all()
        for parameter in model.parameters()
    )


@pytest.mark.ci
@pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf"
)  # torch's own, while tracing
def test_compiled_blocks_give_the_same_outputs_and_gradients():
    torch.compiler.reset()
    plain, compiled, batch = build(SOFTMAX, num_layers=1), build(SOFTMAX, num_layers=1), pairs()
    for block in compiled.blocks:
        block.compile(backend="eager")
    for model in (plain, compiled):
        model(batch).outputs.square().sum().backward()
    torch.testing.assert_close(
        compiled(batch).outputs, plain(batch).outputs, rtol=1e-10, atol=1e-12
    )
    for parameter, other in zip(compiled.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad, rtol=1e-10, atol=1e-12)


def test_a_batch_of_single_sequences_is_refused():
    batch = {**single(pairs()), "labels": torch.zeros(3, dtype=torch.int64)}
    message = (
        r"^dual-encoder: batches must hold inputs_b and keep_b, these hold inputs, "
        r"keep, labels; use backbone encoder$"
    )
    with pytest.raises(DataError, match=message):
        build()(batch)


def test_the_light_half_says_what_it_is():
    assert (PLUGIN.inputs, PLUGIN.targets) == (("series", "tokens"), ("pair",))
    assert PLUGIN.config is Config
