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

from subquad.effect import default_of, unmet_conditions
from subquad.errors import ConfigError
from subquad.experiment import Run, checked_run, parse
from subquad.experiment.refusals import validated
from subquad.plugin import Config
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
    plugin = resolve("mixer", mixer)
    plain = original.experiment.model_dump(mode="json")
    for params in combinations(plugin.plugin.config, given, original.mixer_config):
        kept, lost = carried(original.mixer_config, plugin.plugin.config, params)
        run = checked_run(parse({**plain, "mixer": {"name": mixer, "params": {**kept, **params}}}))
        non_default = {
            key: value for key, value in kept.items() if not run.mixer_config.is_default(key)
        }
        yield Swap(run, params, non_default, lost, _staying(original))


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
    had = original.model_dump(mode="json")
    known = target.model_fields
    lost = {
        key: "there is no such setting"
        for key in had
        if key not in known and not original.is_default(key)
    }
    waiting = {key: value for key, value in had.items() if key in known and key not in given}
    if not _faults(target, {**given, **waiting}):
        return waiting, lost
    kept: Values = {}
    reasons: dict[str, str] = {}
    while waiting:
        reasons = {
            key: _faults(target, {**given, **kept, key: value}) for key, value in waiting.items()
        }
        key = next((key for key in waiting if not reasons[key]), None)
        if key is None:
            break
        kept[key] = waiting.pop(key)
    return kept, lost | {key: reasons[key] for key in waiting}


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
        before = carried(original, config, params)[0] if original else {}
        at = {**defaults, **before, **params}
        unmet = {
            key: unmet_conditions(config, key, at) for key in params if key in config.model_fields
        }
        kept = {key: value for key, value in params.items() if not unmet.get(key)}
        idle |= {key: " or ".join(map(str, needed)) for key, needed in unmet.items() if needed}
        if kept not in found:
            found.append(kept)
    for key in given:
        if key in idle and not any(key in params for params in found):
            raise ConfigError(f"{key}: has no effect here: leave it out, or use {idle[key]}")
    return found


def _staying(original: Run) -> tuple[str, ...]:
    """The entries of `mixers`, whose layers and roles a swap leaves alone."""
    lines = []
    for number, entry in enumerate(original.experiment.mixers):
        where = "every layer"
        if entry.layers is not None:
            where = f"layers {', '.join(map(str, entry.layers))}"
        role = f", role {entry.role}" if entry.role else ""
        lines.append(f"mixers[{number}], {entry.name} in {where}{role}")
    return tuple(lines)
