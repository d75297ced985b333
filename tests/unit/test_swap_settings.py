"""A swap keeps every setting that both mixers have, names the others, and equals the original
where it should.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from subquad.errors import ConfigError
from subquad.experiment import load_study
from subquad.experiment.refusals import validated
from subquad.plugin import Config, MixerPlugin, Not, param
from subquad.registry import find_plugins, resolve
from subquad.trained.model import Trained
from subquad_tools.swap.compare import carried, combinations, output_errors, swaps_of

MIXERS = [found.name for found in find_plugins("mixer") if found.distribution == "subquad"]
RECALL = """
dataset: {name: recall, params: {train_size: 16, validation_size: 16, test_size: 16}}
task: classification
backbone: {name: encoder, params: {dim: 16, num_heads: 2, dropout: 0.0}}
train: {epochs: 1, precision: fp64, eval_batch_size: 16}
"""
LENGTH = 17
EXACT = 1e-9
"""Means of differences over means of outputs, in float64: the iterated and the exact inverse
round differently.
"""


def plugin_of(name: str) -> MixerPlugin:
    plugin = resolve("mixer", name).plugin
    assert isinstance(plugin, MixerPlugin)
    return plugin


def configs_of(plugin: MixerPlugin) -> Iterator[Config]:
    """The defaults, each variant, and each field alone at another value that a search or its
    type names.
    """
    given: list[dict[str, Any]] = [{}, *map(dict, plugin.variants.values())]
    for name, spec in plugin.config.model_fields.items():
        extra = spec.json_schema_extra if isinstance(spec.json_schema_extra, dict) else {}
        search: Any = extra.get("search") or {}
        literal = getattr(spec.annotation, "__args__", ())
        others = (
            search.get("choices")
            or [value for value in literal if isinstance(value, str)]
            or [True, False]
        )
        given += [{name: value} for value in others]
    for params in given:
        config, _ = validated(plugin.config, params, (), dict)
        if config is not None:
            yield config


@pytest.mark.ci
@pytest.mark.parametrize("before", MIXERS)
def test_every_setting_is_kept_or_named_for_all_pairs(before):
    for after in MIXERS:
        target = plugin_of(after).config
        for original in configs_of(plugin_of(before)):
            kept, lost = carried(original, target, {})
            config, faults = validated(target, kept, (), dict)
            assert config is not None, (after, original, faults)
            for name, value in original.model_dump(mode="json").items():
                if name in kept:
                    assert config.model_dump(mode="json")[name] == value, (after, original, name)
                elif name in target.model_fields:
                    _, faults = validated(target, {**kept, name: value}, (), dict)
                    assert lost[name] == faults[0].message, (after, original, name)
                else:
                    assert (name in lost) != original.is_default(name), (after, original, name)


class Before(Config):
    kind: str = param("a", meaning="m")
    size: int = param(1, meaning="m", when={"kind": ("b",)})
    width: int = param(1, meaning="m")
    own: int = param(1, meaning="m")


class After(Config):
    size: int = param(1, meaning="m", when={"kind": Not("a")})
    kind: str = param("a", meaning="m")
    width: int = param(1, meaning="m", le=4)


def test_what_is_kept_and_why_the_rest_is_not():
    before = Before(kind="b", size=2, width=9, own=3)
    kept, lost = carried(before, After, {})
    assert kept == {"kind": "b", "size": 2}
    assert lost == {
        "own": "there is no such setting",
        "width": "got 9, must be a whole number <= 4",
    }
    kept, lost = carried(before, After, {"kind": "a"})
    assert kept == {}
    assert (
        lost["size"] == "size 2 has no effect with kind a: leave it at 1, or use kind other than a"
    )
    assert carried(Before(), After, {"width": 3}) == ({"kind": "a", "size": 1}, {})


def test_keys_without_effect_are_those_beside_what_is_kept():
    assert combinations(After, {"size": 3}, Before(kind="b")) == [{"size": 3}]
    assert combinations(After, {"size": 3, "kind": ["a", "b"]}) == [
        {"kind": "a"},
        {"size": 3, "kind": "b"},
    ]
    with pytest.raises(
        ConfigError, match=r"^size: has no effect here: leave it out, or use kind other than a$"
    ):
        combinations(After, {"size": 3}, Before())


def trained(tmp_path: Path, mixer: str, **more: str) -> Trained:
    lines = [f"{key}: {value}\n" for key, value in {"mixer": mixer, **more}.items()]
    (tmp_path / "small.yaml").write_text(RECALL + "".join(lines))
    return Trained.before(load_study(str(tmp_path / "small.yaml"), []).runs[0])


WHOLE = {"num_indices": LENGTH, "pinv": "exact"}
EQUAL = {
    "Mega with Laplace attention and a short average": (
        "{name: mega, params: {attention: laplace, truncation: 4, ema_dim: 3}}",
        "megacur",
        WHOLE,
    ),
    "Mega of other widths": (
        "{name: mega, params: {attention_dim: 6, value_dim: 20, bias: rotary, "
        "norm: scale, bidirectional: false}}",
        "megacur",
        WHOLE,
    ),
    "Mega in chunks": (
        "{name: mega, params: {chunk_size: 6}}",
        "megacur",
        {"num_indices": 6, "pinv": "exact"},
    ),
    "MegaCUR, back": (
        "{name: megacur, params: {num_indices: 17, pinv: exact, attention: laplace, norm: rms}}",
        "mega",
        {},
    ),
    "softmax": ("{name: softmax, params: {qk_norm: rms, rotary: true, bias: false}}", "cur", WHOLE),
    "CUR, back": (
        "{name: cur, params: {num_indices: 17, pinv: exact, qk_norm: layer}}",
        "softmax",
        {},
    ),
    "landmarks that are the tokens": (
        "{name: softmax, params: {rotary: true}}",
        "cur",
        WHOLE | {"mode": "different"},
    ),
    "AGF": (
        "{name: agf, params: {order: 5, basis: legendre, fix_identity: false, "
        "sigma_map: symmetric}}",
        "agf",
        {"ortho_weight": 0.0},
    ),
    "a window over everything": (
        "{name: softmax, params: {qk_norm: layer}}",
        "local",
        {"window": LENGTH},
    ),
    "one layer of another mixer": (
        "{name: mega, params: {attention: laplace, truncation: 4}}",
        "megacur",
        WHOLE,
        "[{name: softmax, params: {qk_norm: rms}, layers: [1]}]",
    ),
}


@pytest.mark.parametrize("case", EQUAL)
def test_a_swap_that_must_be_equal_is(tmp_path, case):
    mixer, after, choices, *entries = EQUAL[case]
    original = trained(tmp_path, mixer, **({"mixers": entries[0]} if entries else {}))
    (swap,) = swaps_of(original.parts.run, after, choices)
    swapped, imported = original.swapped(swap.run)
    assert (imported.missing, imported.unused) == ((), ())
    split = original.dataset.split("validation")
    batch = split.finish(original.parts.on_device(split.fetch(np.arange(16), epoch=0, seed=0)))
    errors = output_errors(original.parts.bare_model, swapped.parts.bare_model, [batch])
    assert len(errors) == 2
    assert max(error.relative for error in errors) < EXACT, errors
    assert len(swap.staying) == len(entries)


def test_other_widths_are_named_as_what_they_are(tmp_path):
    original = trained(tmp_path, "{name: mega, params: {attention: laplace}}")
    (swap,) = swaps_of(original.parts.run, "megacur", {"value_dim": 20, "num_indices": 4})
    _, imported = original.swapped(swap.run)
    assert imported.missing == imported.unused
    assert imported.missing
    assert swap.kept == {"attention": "laplace"}
    assert swap.run.mixer_config.model_dump()["attention"] == "laplace"


SUMMARIES = """
dataset:
  name: pubmed-summarization
  params: {train_size: 8, validation_size: 4, test_size: 4, max_source: 32, max_target: 16}
task: summarization
backbone: {name: encoder-decoder, params: {dim: 16, num_heads: 2, dropout: 0.0}}
train: {epochs: 1, precision: fp64, eval_batch_size: 4}
"""
DECODER = "[{name: softmax, role: decoder}, {name: softmax, params: {qk_norm: rms}, role: cross}]"


def test_roles_with_entries_of_their_own_stay(tmp_path):
    mixers = {
        "mixer": "{name: mega, params: {attention: laplace, truncation: 4}}",
        "mixers": DECODER,
    }
    (tmp_path / "s.yaml").write_text(
        SUMMARIES + "".join(f"{key}: {value}\n" for key, value in mixers.items())
    )
    original = Trained.before(load_study(str(tmp_path / "s.yaml"), []).runs[0])
    (swap,) = swaps_of(original.parts.run, "megacur", {"num_indices": 32, "pinv": "exact"})
    assert swap.staying == (
        "mixers[0], softmax in every layer, role decoder",
        "mixers[1], softmax in every layer, role cross",
    )
    swapped, imported = original.swapped(swap.run)
    assert (imported.missing, imported.unused) == ((), ())
    split = original.dataset.split("validation")
    batch = split.finish(original.parts.on_device(split.fetch(np.arange(4), epoch=0, seed=0)))
    errors = output_errors(original.parts.bare_model, swapped.parts.bare_model, [batch])
    assert len(errors) == 6
    assert max(error.relative for error in errors) < EXACT, errors


def test_a_mixer_that_cannot_stand_at_every_role_is_refused(tmp_path):
    (tmp_path / "s.yaml").write_text(SUMMARIES + "mixer: softmax\n")
    original = Trained.before(load_study(str(tmp_path / "s.yaml"), []).runs[0])
    (swap,) = swaps_of(original.parts.run, "cur", {"num_indices": 8})
    with pytest.raises(
        ConfigError, match=r"cannot be causal .role decoder.; `mixers` can name another"
    ):
        original.swapped(swap.run)
