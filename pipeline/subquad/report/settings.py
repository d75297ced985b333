"""What makes two runs the same experiment but for the seed, and what tells their rows apart."""

from __future__ import annotations

import json
import math
from collections.abc import Container, Iterable, Mapping
from typing import Any

from subquad.experiment.settings import ALTERNATIVES
from subquad.runs import flatten

_NOT_SETTINGS = ("format", "name", "resources", "tracking", "train.seed")
_NO_EFFECT = ("train.micro_batch", "train.loader_workers", "train.log_every", "train.keep_checkpoints")
_PREFIXES = tuple(f"{name}." for name in _NOT_SETTINGS)

Setting = tuple[tuple[str, str], ...]


def settings_of(experiment: Mapping[str, Any], axes: Mapping[str, Any]) -> dict[str, str]:
    """Settings a score may depend on, as text by dotted key; where it runs only if the study varies it.

    Args:
        experiment: experiment.yaml.
        axes: the run's coordinates in its study; a choice of several settings is a mapping.
    """
    swept = set(axes).union(*(value for value in axes.values() if isinstance(value, Mapping)))
    return {
        key: _text(value)
        for key, value in flatten(experiment).items()
        if key != "train.seed" and (key in swept or not _ignored(key))
    }


def varying(group: Iterable[Mapping[str, str]]) -> tuple[str, ...]:
    """Keys whose values differ within a group of settings, sorted."""
    members = list(group)
    keys = sorted({key for member in members for key in member})
    return tuple(key for key in keys if len({member.get(key) for member in members}) > 1)


def differing(first: Mapping[str, str], second: Mapping[str, str], known: Container[str] = ()) -> tuple[str, ...]:
    """`train.lr 0.001 / 0.0003`, for settings outside the mixer, and not `known`, in which two rows differ."""
    keys = [key for key in varying([first, second]) if not key.startswith("mixer.") and key not in known]
    return tuple(f"{key} {first.get(key, 'none')} / {second.get(key, 'none')}" for key in keys)


def short_setting(setting: Setting) -> str:
    """`order=4, lr=0.001`: the last word of each key."""
    return ", ".join(f"{key.rsplit('.', 1)[-1]}={value}" for key, value in setting)


def with_alternatives(keys: Iterable[str]) -> set[str]:
    """Keys, and those that are switched off where one of them is given: `train.epochs` with `train.steps`."""
    pairs = [{".".join(map(str, path)) for path in pair} for pair in ALTERNATIVES]
    given = set(keys)
    return given.union(*(pair for pair in pairs if pair & given))


def in_order(text: str) -> tuple[float, str]:
    """Sort key of values: numbers in their order, words after them."""
    try:
        return float(text), text
    except ValueError:
        return math.inf, text


def _ignored(key: str) -> bool:
    return key in _NOT_SETTINGS or key in _NO_EFFECT or key.startswith(_PREFIXES)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
