"""Parameters of Mega and MegaCUR: what is refused, and what is claimed for which settings."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from subquad.errors import PluginError
from subquad.plugin import Site
from subquad_plugins import cur, mega, megacur
from subquad_plugins.mega.mixer import Mega


@pytest.mark.parametrize("plugin", [mega, megacur])
@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"bias": "rotary", "attention_dim": 7}, "bias rotary needs an even attention_dim, got 7"),
    ],
)
def test_bad_parameters_are_refused(plugin, params, message):
    with pytest.raises(ValidationError, match=message):
        plugin.Config(**params)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"chunk_size": 32},
            "num_indices 64 is more than a chunk has: use 32 or less, or a larger chunk_size",
        ),
    ],
)
def test_cur_settings_that_cannot_take_effect_are_refused(params, message):
    with pytest.raises(ValidationError, match=message):
        megacur.Config(**params)


def test_the_site_is_checked():
    with pytest.raises(
        ValueError, match="bidirectional false has no effect with a causal mixer: leave it at true"
    ):
        mega.Config(bidirectional=False).check(Site(dim=8, causal=True))
    with pytest.raises(ValueError, match="max_positions 9 is less than the longest sequence, 10"):
        mega.Config(max_positions=9).check(Site(dim=8, max_len=10))
    mega.Config(max_positions=9).check(Site(dim=8))
    with pytest.raises(
        ValueError,
        match="truncation 10 has no effect with sequences of at most 10 tokens: leave it at 0",
    ):
        mega.Config(truncation=10).check(Site(dim=8, max_len=10))
    mega.Config(truncation=9).check(Site(dim=8, max_len=10))
    mega.Config(truncation=10).check(Site(dim=8))
    with pytest.raises(ValueError, match="column 5 is outside queries of width 4: use 0 to 3"):
        megacur.Config(selection="embed", column=5).check(Site(dim=8))


def test_a_table_needs_a_size():
    with pytest.raises(
        PluginError, match="the longest sequence is not known: set max_positions, or bias rotary"
    ):
        Mega(mega.Config(), Site(dim=8))
    assert Mega(mega.Config(bias="rotary"), Site(dim=8)).bias.limit is None
    assert Mega(mega.Config(chunk_size=3), Site(dim=8, max_len=10)).bias.limit == 3
    assert Mega(mega.Config(), Site(dim=8, max_len=10)).bias.limit == 10


@pytest.mark.parametrize(
    ("params", "complexity", "max_length"),
    [
        ({}, "L^2", "site"),
        ({"max_positions": 99}, "L^2", 99),
        ({"bias": "rotary"}, "L^2", None),
        ({"chunk_size": 64}, "L log L", None),
    ],
)
def test_facts_follow_the_parameters(params: dict[str, Any], complexity, max_length):
    facts = mega.PLUGIN.facts_of(mega.Config(**params))
    assert (facts.complexity, facts.max_length, facts.causal) == (
        complexity,
        max_length,
        "optional",
    )
    facts = megacur.PLUGIN.facts_of(megacur.Config(**params))
    assert (facts.complexity, facts.max_length, facts.causal) == ("L log L", max_length, "never")
    assert facts.padding_invariant


def test_default_widths_are_those_of_the_published_text_model():
    assert mega.Config().widths(128) == (64, 256)
    assert mega.Config().widths(18) == (10, 36)
    assert mega.Config(attention_dim=96, value_dim=320).widths(160) == (96, 320)


def test_cur_parameters_are_those_of_the_cur_plugin():
    shared = set(megacur.Config.model_fields) - set(mega.Config.model_fields)
    assert shared == set(cur.Config.model_fields) - {"bias", "qk_norm", "rotary", "function"}
    for name in shared:
        ours, theirs = megacur.Config.model_fields[name], cur.Config.model_fields[name]
        assert (ours.annotation, ours.default, ours.metadata) == (
            theirs.annotation,
            theirs.default,
            theirs.metadata,
        )
