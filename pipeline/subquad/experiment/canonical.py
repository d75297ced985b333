"""One text, one hash and one comparison for each experiment."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from subquad.experiment.schema import Experiment, decides_numbers
from subquad.experiment.settings import KeyPath, children, dotted
from subquad.experiment.strict_yaml import to_yaml


def dump(experiment: Experiment) -> str:
    """The experiment as YAML: every setting, in the schema's order."""
    return to_yaml(experiment.model_dump(mode="json"))


def digest(experiment: Experiment, sources: Mapping[KeyPath, str] | None = None) -> str:
    """SHA-256 (hex) over what decides the numbers: all settings that decide numbers
    (`schema.Free`).

    Args:
        experiment: a checked one, with its plugins' parameters filled in.
        sources: SHA-256 of each plugin's file, where it is given as one, by `("mixer",)` or
            `("mixers", 0)`; it then stands for the file's path.
    """
    data = dict(_deciding(experiment.model_dump(mode="json")))
    for path, sha256 in (sources or {}).items():
        name = dotted((*path, "name"))
        data[name] = data[name].rpartition(":")[2]
        data[dotted((*path, "source_sha256"))] = sha256
    text = json.dumps(data, sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def differences(a: Experiment | Mapping[str, Any], b: Experiment) -> list[str]:
    """Dotted keys in which two experiments differ, of those that the digest covers; `a` may be
    plain values.
    """
    plain = a.model_dump(mode="json") if isinstance(a, Experiment) else a
    before = dict(_deciding(plain))
    after = dict(_deciding(b.model_dump(mode="json")))
    shared = before.keys() & after.keys()
    return [key for key in {**before, **after} if key not in shared or before[key] != after[key]]


def _deciding(data: Any, path: KeyPath = ()) -> Iterator[tuple[str, Any]]:
    """The settings that decide the numbers, flat; a list of mappings is one of settings too."""
    for key, value in children(data):
        here = (*path, key)
        if not decides_numbers(dotted(here)):
            continue
        holds_settings = (
            any(isinstance(item, dict) for item in value) if isinstance(value, list) else value
        )
        if isinstance(value, (dict, list)) and holds_settings:
            yield from _deciding(value, here)
        else:
            yield dotted(here), value
