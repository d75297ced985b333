"""The encoder: every setting acts, padding and contracts hold, refusals are one line."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn
from writing import maker

from subquad.data import DataSpec
from subquad.errors import ConfigError, DataError, PluginError
from subquad.nn import AttentionMixer, BackboneContext, MixerOutput, ModelOutput, TokenMixer
from subquad.plugin import Site
from subquad_plugins.encoder import Config
from subquad_plugins.encoder.backbone import Encoder
from subquad_plugins.encoder.embed import sinusoidal
from subquad_plugins.softmax import Config as SoftmaxConfig
from subquad_plugins.softmax.core import Softmax

SERIES = DataSpec.series(max_len=9, channels=3, num_classes=4)
TOKENS = DataSpec.tokens(max_len=9, vocab_size=20, num_classes=4)
LABELLED = replace(TOKENS, target="positions")
AGF, SOFTMAX = maker("agf"), maker("softmax")
HEADS = ["mean", "mean_padded", "cls", "last", "flatten"]


def build(make_mixer=AGF, spec: DataSpec = SERIES, **params: Any) -> Any:
    torch.manual_seed(0)
    settings: dict[str, Any] = {"dim": 8, "num_heads": 2, "dropout": 0.0, **params}
    context = BackboneContext(spec=spec, num_outputs=4, make_mixer=make_mixer, seed=7)
    return Encoder(Config(**settings), context).double()


def batch(
    spec: DataSpec = SERIES, lengths: tuple[int, ...] = (9, 5), padded: int = 9
) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    keep = torch.arange(padded) < torch.tensor(lengths)[:, None]
    if spec.vocab_size:
        return {
            "inputs": torch.randint(1, 20, keep.shape, generator=generator) * keep,
            "keep": keep,
        }
    return {
        "inputs": torch.randn(*keep.shape, 3, generator=generator, dtype=torch.float64),
        "keep": keep,
    }


class Recorder(TokenMixer):
    """Returns a constant and remembers what it was given."""

    def __init__(self, site: Site, result: Any = None):
        super().__init__()
        self.site, self.result = site, result
        self.seen: list[tuple[Tensor | None, Any]] = []

    def forward(self, x: Tensor, *, keep: Tensor | None = None, carry: Any = None) -> Any:
        self.seen.append((keep, carry))
        return self.result(x) if self.result else MixerOutput(0 * x, {}, self.site.layer_index)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("norm", ["pre", "post", "none"])
@pytest.mark.parametrize("spec", [SERIES, TOKENS], ids=["series", "tokens"])
def test_every_parameter_receives_a_gradient(head, norm, spec):
    model = build(spec=spec, head=head, norm=norm, head_hidden=6)
    output = model(batch(spec))
    assert isinstance(output, ModelOutput)
    assert output.outputs.shape == (2, 4)
    assert output.penalty is not None
    (output.outputs.sum() + output.penalty.sum()).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("make_mixer", [AGF, SOFTMAX], ids=["agf", "softmax"])
@pytest.mark.parametrize("head", ["mean", "cls", "last", "flatten", "mean_padded"])
@pytest.mark.parametrize("norm", ["pre", "post", "none"])
def test_what_stands_in_padding_does_not_matter(make_mixer, head, norm):
    model, given = build(make_mixer, head=head, norm=norm).eval(), batch()
    other = {**given, "inputs": given["inputs"].masked_fill(~given["keep"][..., None], 50.0)}
    torch.testing.assert_close(model(other).outputs, model(given).outputs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("head", ["mean", "cls", "last"])
def test_how_much_padding_follows_does_not_matter(head):
    model, given = build(head=head).eval(), batch(lengths=(5, 3))
    shorter = {"inputs": given["inputs"][:, :6], "keep": given["keep"][:, :6]}
    torch.testing.assert_close(model(shorter).outputs, model(given).outputs, rtol=1e-12, atol=1e-12)


def test_pooling_equals_its_definition():
    x = torch.randn(3, 4, 8, dtype=torch.float64)
    keep = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [0, 1, 1, 0]]).bool()
    pools = {head: build(head=head).pool(x, keep) for head in HEADS}
    torch.testing.assert_close(
        pools["mean"], torch.stack([x[0].mean(0), x[1, :2].mean(0), x[2, 1:3].mean(0)])
    )
    torch.testing.assert_close(
        pools["mean_padded"], torch.stack([x[0].sum(0), x[1, :2].sum(0), x[2, 1:3].sum(0)]) / 4
    )
    assert torch.equal(pools["last"], torch.stack([x[0, 3], x[1, 1], x[2, 2]]))
    assert torch.equal(pools["cls"], x[:, 0])
    assert torch.equal(pools["flatten"], (x * keep[..., None]).flatten(1))


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("make_mixer", [AGF, SOFTMAX], ids=["agf", "softmax"])
def test_a_sample_without_any_real_token_stays_finite(head, make_mixer):
    model = build(make_mixer, head=head)
    output = model(batch(lengths=(9, 0)))
    output.outputs.sum().backward()
    assert output.outputs.isfinite().all()
    assert all(
        parameter.grad is None or parameter.grad.isfinite().all()
        for parameter in model.parameters()
    )


def test_sites_say_where_each_mixer_stands():
    sites: list[Site] = []

    def make(site: Site) -> TokenMixer:
        sites.append(site)
        return Recorder(site)

    build(make, num_layers=3, head="cls")
    expected: dict[str, Any] = {
        "dim": 8,
        "num_heads": 2,
        "max_len": 10,
        "num_prefix_tokens": 1,
        "seed": 7,
    }
    assert sites == [Site(**expected, layer_index=index, num_layers=3) for index in range(3)]
    sites.clear()
    build(make, num_layers=1)
    assert sites == [Site(dim=8, num_heads=2, max_len=9, seed=7)]


def test_layers_may_have_several_mixers_and_a_carry_stays_among_its_own():
    class Other(Recorder):
        """A mixer that would not know the first one's carry."""

    def make(site: Site) -> TokenMixer:
        return Other(site) if site.layer_index == 2 else Recorder(site)

    model = build(make, num_layers=5)
    model(batch())
    assert [block.mixer.seen[0][1] for block in model.blocks] == [None, 0, None, None, 3]
    mixed = build(lambda site: (AGF if site.layer_index else SOFTMAX)(site), num_layers=2)
    mixed(batch()).outputs.sum().backward()
    assert all(parameter.grad is not None for parameter in mixed.parameters())


@pytest.mark.parametrize("told", [False, True])
def test_mask_and_carry_reach_the_mixers(told):
    model = build(Recorder, num_layers=3, mask_mixer=told, head="cls")
    given = batch()
    model(given)
    calls = [block.mixer.seen[0] for block in model.blocks]
    assert [carry for _, carry in calls] == [None, 0, 1]
    for keep, _ in calls:
        assert (keep is not None) == told
        assert keep is None or torch.equal(
            keep, torch.cat([torch.ones(2, 1, dtype=torch.bool), given["keep"]], 1)
        )


def test_no_mask_where_every_sequence_has_one_length():
    model = build(Recorder, replace(SERIES, equal_length=True))
    model(batch())
    assert model.blocks[0].mixer.seen[0][0] is None


def test_a_bare_tensor_from_a_mixer_is_accepted():
    model = build(lambda site: Recorder(site, lambda x: x))
    output = model(batch())
    assert (dict(output.losses), output.penalty) == ({}, None)


WRONG = [
    (lambda x: None, r"mixer Recorder returned a NoneType, not a Tensor or a MixerOutput"),
    (lambda x: (x, {}), r"mixer Recorder returned a tuple, not a Tensor or a MixerOutput"),
    (lambda x: x[:, :4], r"mixer Recorder returned shape \(2, 4, 8\) for an input of \(2, 9, 8\)"),
    (lambda x: x.float(), r"mixer Recorder returned torch.float32 for an input of torch.float64"),
    (
        lambda x: MixerOutput(x, {"ortho": x.sum()}),
        r"mixer Recorder: loss 'ortho' has shape \(\), not \(2,\), one per sample",
    ),
]


@pytest.mark.parametrize(("result", "message"), WRONG)
def test_a_mixer_that_breaks_its_contract_is_named(result, message):
    with pytest.raises(PluginError, match=message):
        build(lambda site: Recorder(site, result))(batch())


def test_a_core_that_breaks_its_contract_is_named_not_its_wrapper():
    class Shortens(Softmax):
        def forward(self, q, k, v, **masks):
            return v[:, :, :4]

    with pytest.raises(PluginError, match=r"mixer Shortens returned shape \(2, 4, 8\)"):
        build(lambda site: AttentionMixer(Shortens(SoftmaxConfig(), site), site))(batch())


def test_autocast_is_no_breach_of_contract():
    model, given = build().float(), batch()
    given["inputs"] = given["inputs"].float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(given)
    torch.testing.assert_close(output.outputs.float(), model(given).outputs, rtol=0, atol=5e-2)


def test_extra_losses_are_averaged_over_layers_and_weighted():
    model = build(num_layers=2)
    x, keep = model.embed(*batch().values())
    _, results = model.encode(x, keep)
    output = model(batch())
    expected = (results[0].losses["ortho"] + results[1].losses["ortho"]) / 2
    torch.testing.assert_close(output.losses["ortho"], expected)
    torch.testing.assert_close(output.penalty, 0.1 * expected)


def test_settings_change_what_they_name():
    base = build().state_dict()
    assert base["embedding.positions.table"].shape == (9, 8)
    assert build(ffn_dim=5).blocks[0].ffn[0].out_features == 5
    assert build().blocks[0].ffn[0].out_features == 32
    assert "embedding.positions.table" not in build(positions="none").state_dict()
    assert "embedding.positions.table" not in build(positions="sinusoidal").state_dict()
    assert "final.0.weight" not in build(final_norm=False).state_dict()
    assert isinstance(build(final_activation="gelu").final[1], nn.GELU)
    assert isinstance(build(activation="relu").blocks[0].ffn[1], nn.ReLU)
    assert build(head="cls").embedding.positions.table.shape == (10, 8)
    assert build(head="flatten").head.in_features == 72
    assert [
        module.p
        for module in build(dropout=0.3, head_dropout=0.2).modules()
        if isinstance(module, nn.Dropout)
    ] == [*[0.3] * 7, 0.2]


def test_position_and_embedding_starts():
    long = DataSpec.tokens(max_len=500, vocab_size=400, num_classes=4)
    model = build(spec=long, dim=64, positions="learned")
    for table in (model.embedding.positions.table, model.embedding.project.weight):
        assert float(table.detach().std()) == pytest.approx(0.02, rel=0.05)
    uniform = build(spec=long, dim=64, position_init="uniform").embedding.positions.table.detach()
    assert float(uniform.abs().max()) == pytest.approx(0.02, rel=0.01)
    assert float(uniform.std()) == pytest.approx(0.02 / math.sqrt(3), rel=0.05)


@pytest.mark.parametrize("position_init", ["normal", "uniform"])
def test_embedding_init_is_the_width_of_every_start(position_init):
    long = DataSpec.tokens(max_len=500, vocab_size=400, num_classes=4)
    given: dict[str, Any] = {"spec": long, "dim": 64, "head": "cls", "position_init": position_init}
    narrow, wide = build(**given).embedding, build(**given, embedding_init=0.5).embedding
    for name, start in wide.named_parameters():
        torch.testing.assert_close(
            start, dict(narrow.named_parameters())[name] * 25, rtol=1e-5, atol=1e-7
        )
    assert [name for name, _ in wide.named_parameters()] == [
        "prefix",
        "project.weight",
        "positions.table",
    ]


def test_embedding_init_is_refused_where_nothing_starts_from_it():
    message = (
        "encoder: embedding_init 0.5 has no effect with a data set of series, "
        "positions none and head mean: "
        "leave it at 0.02, or use positions learned"
    )
    with pytest.raises(ConfigError, match=message):
        build(positions="none", embedding_init=0.5)
    build(positions="none", embedding_init=0.02)
    build(positions="none", embedding_init=0.5, head="cls")
    build(positions="none", embedding_init=0.5, spec=TOKENS)


def test_head_each_gives_outputs_of_every_position():
    model, given = build(spec=LABELLED, head="each", head_hidden=6), batch(LABELLED)
    x, keep = model.embed(given["inputs"], given["keep"])
    expected = model.head(model.encode(x, keep)[0])
    outputs = model(given).outputs
    assert outputs.shape == (2, 9, 4)
    assert torch.equal(outputs, expected)


def test_heads_that_do_not_give_what_is_labelled_are_refused():
    with pytest.raises(
        ConfigError, match=r"encoder: head each is for data sets that label positions, .*: use mean"
    ):
        build(spec=TOKENS, head="each")
    for head in HEADS:
        with pytest.raises(
            ConfigError,
            match=rf"encoder: head {head} gives one output for a sequence, .*: use each",
        ):
            build(spec=LABELLED, head=head)


def test_input_scale_multiplies_the_embedding():
    plain, scaled = build(positions="none"), build(positions="none", input_scale=True)
    inputs = batch()["inputs"]
    torch.testing.assert_close(scaled.embedding(inputs), plain.embedding(inputs) * math.sqrt(8))


def test_sinusoidal_positions_equal_the_formula():
    table = sinusoidal(5, 7)
    assert table.shape == (5, 7)
    for position in range(5):
        for column in range(7):
            angle = position / 10000 ** ((column - column % 2) / 7)
            assert float(table[position, column]) == pytest.approx(
                math.cos(angle) if column % 2 else math.sin(angle)
            )


def test_longer_inputs_than_the_network_was_built_for_are_refused():
    with pytest.raises(
        DataError, match="backbone: 12 positions, but the position table was built for 9"
    ):
        build()(batch(lengths=(12, 5), padded=12))
    with pytest.raises(
        DataError, match="encoder: head flatten was built for length 9, the inputs have length 7"
    ):
        build(head="flatten")(batch(lengths=(7, 5), padded=7))
    assert build(positions="none")(batch(lengths=(12, 5), padded=12)).outputs.shape == (2, 4)


REFUSED = [
    (
        {"dim": 100, "num_heads": 8},
        "dim 100 is not divisible by num_heads 8: use num_heads 10, or dim 104",
    ),
    (
        {"dim": 64, "num_heads": 100},
        "dim 64 is not divisible by num_heads 100: use num_heads 64, or dim 100",
    ),
]


@pytest.mark.parametrize(("params", "message"), REFUSED)
def test_settings_that_cannot_work_are_refused(params, message):
    with pytest.raises(ValidationError, match=message):
        Config(**params)


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({}, ""),
        (
            {"head": "each"},
            "head each has outputs, and the data set labels, for padded positions; "
            "use a data set of",
        ),
    ],
)
def test_labelled_positions_forbid_trimming(params, reason):
    assert Config(**params).padding_reason()[: len(reason) or None] == reason
