"""What MDFWA's parameters accept, the one line each refusal says, and the facts they lead to."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from subquad.plugin import Site
from subquad_plugins.mdfwa import PLUGIN, Config

REFUSED = [
    ({"wavelet": "gaus1"}, "there is no discrete wavelet 'gaus1'"),
    ({"level": 1}, "level 1 with include_approx false leaves one band, and nothing to learn"),
    ({"mode": "smooth", "level": 5}, "mode smooth with level 5 is not accurate in fp32"),
    (
        {"mode": "zero", "period": 9},
        "mode works only where the mixer is not causal, and period only where it is",
    ),
    (
        {"form": "hartley", "norm": "causal_rms"},
        "form works only where the mixer is not causal, and norm causal_rms",
    ),
]

MISPLACED = [
    (
        {"form": "hartley"},
        True,
        0,
        "form works only where the mixer is not causal: leave it at its default",
    ),
    (
        {"mode": "zero"},
        True,
        0,
        "mode works only where the mixer is not causal: leave it at its default",
    ),
    (
        {"period": 9},
        False,
        0,
        "period works only where the mixer is causal: leave it at its default",
    ),
    ({"norm": "causal_rms"}, False, 0, "norm causal_rms works only where the mixer is causal"),
    (
        {"period": 9},
        True,
        12,
        "period is 9, and the longest sequence has 12 positions: set period to 0 or to 12",
    ),
    (
        {"scale_weights": "fixed", "include_approx": True},
        False,
        0,
        "scale_weights fixed with include_approx true weighs all bands alike",
    ),
    (
        {"wavelet": "db38", "level": 12},
        True,
        0,
        "wavelet db38 with level 12 looks back 307125 tokens where one-sided",
    ),
]


@pytest.mark.parametrize(("given", "message"), REFUSED)
def test_settings_that_cannot_work_or_have_no_effect_are_refused(given, message):
    with pytest.raises(ValidationError, match=message):
        Config(**given)


@pytest.mark.parametrize(("given", "causal", "max_len", "message"), MISPLACED)
def test_settings_that_cannot_work_where_the_mixer_stands_are_refused(
    given, causal, max_len, message
):
    with pytest.raises(ValueError, match=message):
        Config(**given).check(Site(dim=4, causal=causal, max_len=max_len))


def test_facts_follow_the_parameters():
    facts = {
        "default": PLUGIN.facts_of(Config()),
        "encoder": PLUGIN.facts_of(Config(form="hartley")),
        "decoder": PLUGIN.facts_of(Config(period=70)),
        "wavelet": PLUGIN.facts_of(Config(branches="wavelet")),
        "far": PLUGIN.facts_of(Config(wavelet="db38", level=12)),
        "alike": PLUGIN.facts_of(Config(scale_weights="fixed", include_approx=True)),
    }
    assert [fact.causal for fact in facts.values()] == [
        "optional",
        "never",
        "always",
        "optional",
        "never",
        "always",
    ]
    assert [fact.max_length for fact in facts.values()] == ["site", None, 70, None, None, "site"]
    assert [fact.leak for fact in facts.values()] == [1e-12, 1e-12, 1e-12, 0.0, 1e-12, 1e-12]
    assert [fact.complexity for fact in facts.values()] == ["L log L"] * 3 + ["L"] + ["L log L"] * 2
    assert PLUGIN.facts_of(Config(form="hartley", frequencies="learned")).max_length == "site"
    assert all(fact.padding_invariant for fact in facts.values())


def test_a_search_tries_no_level_that_is_refused():
    levels = Config.model_fields["level"].json_schema_extra
    assert isinstance(levels, dict)
    assert levels["search"] == {"choices": [2, 3, 4, 5, 6]}
