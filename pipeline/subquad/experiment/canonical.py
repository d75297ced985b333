"""One text, one hash and one comparison for each experiment."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from subquad.experiment.schema import Experiment, decides_numbers
from subquad.experiment.settings import KeyPath, children, dotted
from subquad.experiment.strict_yaml import to_yaml


def dump(experiment: Experiment) -> str:
    """The experiment as YAML: every setting, in the schema's order."""
    return to_yaml(experiment.model_dump(mode="json"))


def digest(
    experiment: Experiment,
    sources: Mapping[KeyPath, str] | None = None,
    places: Collection[str] = (),
    *,
    coupled: bool = False,
) -> str:
    """SHA-256 (hex) over what decides the numbers: all settings that decide numbers
    (`schema.Free`).

    Args:
        experiment: a checked one, with its plugins' parameters filled in.
        places: settings that only say where something lies, by dotted key.
        sources: SHA-256 of each plugin's file, where it is given as one, by `("mixer",)` or
            `("mixers", 0)`; it then stands for the file's path.
        coupled: the samples of a batch change each other.
    """
    data = _settings(experiment, places, coupled)
    for path, sha256 in (sources or {}).items():
        place = dotted(path)
        data[f"{place}.name"] = data[f"{place}.name"].rpartition(":")[2]
        data[f"{place}.source_sha256"] = sha256
    return hashlib.sha256(
        json.dumps(data, sort_keys=True, ensure_ascii=True, allow_nan=False).encode()
    ).hexdigest()


def differences(
    a: Experiment | Mapping[str, Any],
    b: Experiment,
    places: Collection[str] = (),
    *,
    coupled: bool = False,
) -> list[str]:
    """Dotted keys in which two experiments differ, of those that the digest covers; `a` may be
    plain values.
    """
    before = _settings(a, places, coupled)
    after = _settings(b, places, coupled)
    absent = object()
    return [key for key in before | after if before.get(key, absent) != after.get(key, absent)]


def _settings(
    experiment: Experiment | Mapping[str, Any], places: Collection[str], coupled: bool
) -> dict[str, Any]:
    """All that decide the numbers, flat."""
    if isinstance(experiment, Experiment):
        experiment = experiment.model_dump(mode="json")
    return {key: value for key, value in _deciding(experiment, coupled) if key not in places}


def _deciding(data: Any, coupled: bool, path: KeyPath = ()) -> Iterator[tuple[str, Any]]:
    """The settings that decide the numbers, flat; a list of mappings is one of settings too."""
    for key, value in children(data):
        here = (*path, key)
        name = dotted(here)
        if not decides_numbers(name, coupled):
            continue
        holds_settings = isinstance(value, dict) and bool(value)
        if isinstance(value, list):
            holds_settings = any(isinstance(item, dict) for item in value)
        if holds_settings:
            yield from _deciding(value, coupled, here)
        else:
            yield name, value
