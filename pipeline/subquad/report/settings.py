"""What makes two runs the same experiment but for the seed, and what tells their rows apart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from subquad.experiment.settings import ALTERNATIVES

Setting = tuple[tuple[str, str], ...]


def varying(group: Iterable[Mapping[str, str]]) -> tuple[str, ...]:
    """Keys whose values differ within a group of settings, sorted."""
    members = list(group)
    keys = sorted({key for member in members for key in member})
    return tuple(key for key in keys if len({member.get(key) for member in members}) > 1)


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
