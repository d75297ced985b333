"""Another mixer in a trained model: which of its settings the new one keeps, and which it cannot
have.

A setting is kept where both mixers have one of this name, and the value is valid and has an effect
in the new one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from subquad.errors import ConfigError
from subquad.experiment import Run, checked_run, parse
from subquad.experiment.refusals import validated
from subquad.plugin import Config
from subquad.plugin.effect import default_of, unmet_conditions
from subquad.registry import resolve

Values = dict[str, Any]


@dataclass(frozen=True)
class Swap:
    """One swap that the user asks for.

    Attributes:
        run: the original with the new mixer.
        given: the new mixer's parameters that the user gave, as far as they have an effect.
        kept: those that come from the original and are not the new mixer's defaults.
        lost: parameters of the original that the new mixer does not have so, each with the reason.
        staying: mixers of single layers or roles, which are not swapped, in words.
    """

    run: Run
    given: Values
    kept: Values
    lost: dict[str, str]
    staying: tuple[str, ...]


def swaps_of(original: Run, mixer: str, given: Mapping[str, Any]) -> Iterator[Swap]:
    """Each combination of the given parameters, where a list means all its values.

    Args:
        original: of which the mixer is swapped that stands wherever no entry of `mixers` does.
        mixer: the new one's name.
        given: parameters of the new one.

    Raises:
        ConfigError: a parameter is unknown, cannot be so, or never has an effect.
        PluginError: no such mixer.
    """
    target = resolve("mixer", mixer).plugin.config
    before = original.mixer_config
    plain = original.experiment.model_dump(mode="json")
    staying = []
    for number, entry in enumerate(original.experiment.mixers):
        where = "every layer"
        if entry.layers is not None:
            where = f"layers {', '.join(map(str, entry.layers))}"
        role = f", role {entry.role}" if entry.role else ""
        staying.append(f"mixers[{number}], {entry.name} in {where}{role}")
    for params in combinations(target, given, before):
        kept, lost = carried(before, target, params)
        plain["mixer"] = {"name": mixer, "params": {**kept, **params}}
        run = checked_run(parse(plain), resolve=resolve)
        told = {key: value for key, value in kept.items() if not run.mixer_config.is_default(key)}
        yield Swap(run, params, told, lost, tuple(staying))


def carried(
    original: Config, target: type[Config], given: Mapping[str, Any]
) -> tuple[Values, dict[str, str]]:
    """What a mixer keeps of another one's parameters, and why it does not keep the rest.

    A parameter of the original that stands at its default and that the new mixer does not know is
    no loss.

    Args:
        original: the parameters of the mixer before.
        target: the schema of the new mixer's.
        given: parameters of the new mixer; they are not taken from the original.
    """
    waiting: Values = {}
    lost: dict[str, str] = {}
    for key, value in original.model_dump(mode="json").items():
        if key not in target.model_fields:
            if not original.is_default(key):
                lost[key] = "there is no such setting"
        elif key not in given:
            waiting[key] = value
    if not _faults(target, {**given, **waiting}):
        return waiting, lost
    kept: Values = {}
    while True:
        reasons = {
            key: _faults(target, {**given, **kept, key: value}) for key, value in waiting.items()
        }
        first = next((key for key, reason in reasons.items() if not reason), None)
        if first is None:
            return kept, lost | reasons
        kept[first] = waiting.pop(first)


def _faults(target: type[Config], params: Values) -> str:
    """What is wrong with parameters; "" where nothing is."""
    _, faults = validated(target, params, (), dict)
    return faults[0].message if faults else ""


def combinations(
    config: type[Config], given: Mapping[str, Any], original: Config | None = None
) -> list[Values]:
    """All combinations of the given values, each once; of keys that the others leave an effect.

    Args:
        config: the new mixer's schema.
        given: values, or lists of them, by key.
        original: the parameters of the mixer before, whose values stand where nothing is given.

    Raises:
        ConfigError: a key never has an effect.
    """
    defaults = {
        name: default_of(spec)
        for name, spec in config.model_fields.items()
        if not spec.is_required()
    }
    lists = [value if isinstance(value, list) else [value] for value in given.values()]
    found: list[Values] = []
    idle: dict[str, str] = {}
    for values in product(*lists):
        params = dict(zip(given, values, strict=True))
        had = carried(original, config, params)[0] if original else {}
        kept = {}
        for key, value in params.items():
            unmet = key in config.model_fields and unmet_conditions(
                config, key, {**defaults, **had, **params}
            )
            if unmet:
                idle[key] = " or ".join(map(str, unmet))
            else:
                kept[key] = value
        if kept not in found:
            found.append(kept)
    for key, needed in idle.items():
        if not any(key in params for params in found):
            raise ConfigError(f"{key}: has no effect here: leave it out, or use {needed}")
    return found
