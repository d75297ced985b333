"""`mixers:`, other mixers for some layers or roles, and `init:`, weights to start from."""

from __future__ import annotations

import pytest

from subquad.errors import ConfigError
from subquad.experiment import differences, digest
from subquad.experiment.schema import MixerEntry
from subquad.plugin import Site

HALF = """\
from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class Half(TokenMixer):
    Config, facts = MixerConfig, Facts()

    def __init__(self, config, site):
        super().__init__()

    def forward(self, x, *, keep=None, carry=None, context=None, context_keep=None):
        return x / 2, None
"""


def made(plan, number=0):
    return plan.runs[number]


def with_mixers(base_text: str, *entries: str, num_layers: int = 4) -> str:
    lines = "".join(f"  - {entry}\n" for entry in entries)
    return base_text.replace("num_layers: 2", f"num_layers: {num_layers}") + "mixers:\n" + lines


def test_entries_are_checked_like_the_mixer(loaded, base_text):
    text = with_mixers(
        base_text,
        "{name: softmax, params: {dropout: 0.5}, layers: [-1]}",
        "{name: agf, layers: [0]}",
    )
    checked = made(loaded(text))
    first, second = checked.experiment.mixers
    assert (first.name, first.params["dropout"], first.layers, first.role) == (
        "softmax",
        0.5,
        (-1,),
        None,
    )
    assert second.params["order"] == 3
    assert [plugin.found.name for plugin, _ in checked.mixers] == ["softmax", "agf"]
    assert loaded(loaded(text).text).runs == loaded(text).runs


@pytest.mark.parametrize(
    ("layers", "numbers"),
    [
        ([0, 2], [0, 2]),
        (["-3..-1"], [3, 4, 5]),
        (["0..1", -1], [0, 1, 5]),
        (["1..1"], [1]),
        (None, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_layers_are_counted_from_either_end(layers, numbers):
    entry = MixerEntry(name="x", layers=layers and tuple(layers))
    assert entry.numbers(6) == numbers
    assert [n for n in range(6) if entry.takes(Site(dim=8, layer_index=n, num_layers=6))] == numbers


def test_an_entry_takes_sites_of_its_role():
    entry = MixerEntry(name="x", role="cross")
    assert [entry.takes(Site(dim=8, role=role)) for role in ("self", "cross", "decoder")] == [
        False,
        True,
        False,
    ]


def test_overrides_reach_an_entry(loaded, base_text):
    text = with_mixers(base_text, "{name: softmax, layers: [-1]}")
    plan = loaded(text, "mixers.0.params.dropout=0.25", "mixers.0.layers=[0]")
    assert made(plan).experiment.mixers[0].params["dropout"] == 0.25
    study = loaded(
        text, "matrix.mixers.0.params.dropout=[0.0, 0.25]", "matrix.mixer=[agf, softmax]"
    )
    assert [cell.label for cell in study.runs] == [
        "dropout0.0-agf",
        "dropout0.0-softmax",
        "dropout0.25-agf",
        "dropout0.25-softmax",
    ]
    assert [made(study, number).experiment.mixers[0].params["dropout"] for number in (0, 2)] == [
        0.0,
        0.25,
    ]
    assert loaded(study.text).runs == study.runs


def test_paths_in_entries_are_absolute_also_in_a_study(loaded, base_text, tmp_path):
    (tmp_path / "own.py").write_text(HALF)
    text = with_mixers(base_text, "{name: './own.py:Half', layers: [1]}")
    assert made(loaded(text)).experiment.mixers[0].name == f"{tmp_path}/own.py:Half"
    study = loaded(text, "matrix.seed=[0]")
    assert f"name: {tmp_path}/own.py:Half" in study.text
    assert loaded(study.text).runs == study.runs


def test_layers_are_counted_in_the_longer_of_two_stacks(loaded, base_text):
    size = "backbone={name: encoder-decoder, params: {num_layers: 2, decoder_layers: 4}}"
    given = ("dataset=letters", "task=summarisation", size, "mixer=softmax")
    entry = "{name: mdfwa, role: decoder, layers: [LAYER]}"
    run = made(loaded(base_text, *given, f"mixers=[{entry.replace('LAYER', '3')}]"))
    site = Site(dim=8, role="decoder", layer_index=3, num_layers=4)
    assert run.mixer_at(site)[0].found.name == "mdfwa"
    with pytest.raises(
        ConfigError, match=r"names a layer that is not there, as the backbone has 4"
    ):
        loaded(base_text, *given, f"mixers=[{entry.replace('LAYER', '4')}]")


def test_the_digest_knows_them(loaded, base_text):
    plain = made(loaded(base_text.replace("num_layers: 2", "num_layers: 4"))).experiment
    mixed = made(loaded(with_mixers(base_text, "{name: softmax, layers: [-1]}"))).experiment
    assert digest(plain) != digest(mixed)
    assert "mixers[0].params.dropout" in differences(plain, mixed)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (
            ["{name: softmax}"],
            "mixers[0]: says neither layers nor role, and would stand everywhere; "
            "write it as mixer",
        ),
        (["softmax"], "mixers[0]: got 'softmax', must be a mapping"),
        (
            ["{name: softmax, layers: [4]}"],
            "exp.yaml:11: mixers[0].layers: names a layer that is not there, as "
            "the backbone has 4; use 0 to 3, or "
            "-4 to -1",
        ),
        (["{name: softmax, layers: [-5]}"], "mixers[0].layers: names a layer that is not there"),
        (
            ["{name: softmax, layers: ['3..1']}"],
            "mixers[0].layers: means no layer, as a range begins after its end",
        ),
        (
            ["{name: softmax, layers: [x]}"],
            "mixers[0].layers[0]: got 'x', must be a whole number or text",
        ),
        (
            ["{name: softmax, layers: []}"],
            "mixers[0].layers: got [], must be a list of at least 1 values",
        ),
        (
            ["{name: softmax, role: selfish}"],
            "mixers[0].role: got 'selfish', must be one of self, cross, decoder or null",
        ),
        (
            ["{name: softmax, layers: [1, 2]}", "{name: agf, layers: ['2..3']}"],
            "mixers[1]: means sites that mixers[0] means too; each may have one entry",
        ),
        (
            ["{name: softmax, layers: ['0..-1']}"],
            "mixer: stands nowhere, as the entries of mixers take every layer; "
            "leave one layer to it",
        ),
        (
            ["{name: fourier, role: cross}"],
            "mixers[0].name: got 'fourier', which cannot let one sequence see another",
        ),
        (
            ["{name: sofmax, layers: [1]}"],
            "mixers[0].name: unknown mixer 'sofmax'; did you mean 'softmax'?",
        ),
        (["{name: softmax, layer: [1]}"], "mixers[0].layer: unknown key; did you mean 'layers'?"),
        (
            ["{name: softmax, layers: [1], params: {dropot: 1}}"],
            "mixers[0].params.dropot: unknown key; did you mean",
        ),
        (
            ["{name: softmax, layers: [1], params: {dropout: x}}"],
            "exp.yaml:11: mixers[0].params.dropout: got 'x', must",
        ),
        (
            ["{name: block, layers: [1], params: {block: 3}}"],
            "mixers[0].params: block 3 does not divide the head width 16: use 4",
        ),
    ],
)
def test_refused_entries(refused, base_text, entries, message):
    errors = refused(with_mixers(base_text, *entries))
    assert message in errors


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("mixers.1.params.dropout=0.5", "mixers[1]: there is no such entry, the list has 1"),
        ("mixers.first.role=self", "mixers.first.role: cannot be set, as mixers is not a mapping"),
        (
            "mixers.0.role=other",
            "mixers[0].role: got 'other', must be one of self, cross, decoder or null",
        ),
    ],
)
def test_refused_overrides(refused, base_text, override, message):
    assert message in refused(with_mixers(base_text, "{name: softmax, layers: [-1]}"), override)


def test_trimming_asks_every_mixer(refused, base_text):
    text = with_mixers(
        base_text.replace("order: 4", "ortho_weight: 0.0"),
        "{name: agf, params: {mask_padding: false}, layers: [0]}",
    )
    assert "mixer 'agf' with these parameters does not claim to be padding invariant" in refused(
        text, "train.bucket_batches=4"
    )


@pytest.mark.parametrize(
    ("given", "source"),
    [("weights.safetensors", "{0}/weights.safetensors"), ("timm:vit_tiny", "timm:vit_tiny")],
)
def test_starting_weights(loaded, base_text, tmp_path, given, source):
    plan = loaded(base_text + f"init: {{from: '{given}'}}\n")
    init = made(plan).experiment.init
    assert (init.source, init.strict) == (source.format(tmp_path), True)
    assert loaded(plan.text).runs == plan.runs
    study = loaded(base_text + f"init: {{from: '{given}', strict: false}}\n", "matrix.seed=[0]")
    assert loaded(study.text).runs == study.runs
    assert differences(made(plan).experiment, made(loaded(base_text)).experiment) == [
        "init.from",
        "init",
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("{from: ''}", "init.from: got '', must be text that is not empty"),
        ("{frm: x}", "init.frm: unknown key; did you mean 'from'?"),
        ("{strict: false}", "init.from: missing, must be text that is not empty"),
        ("runs/x", "init: got 'runs/x', must be a mapping or null"),
    ],
)
def test_refused_starting_weights(refused, base_text, given, message):
    assert message in refused(base_text + f"init: {given}\n")
