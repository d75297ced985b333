"""Names and settings of searchers and schedulers, as a user gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from subquad.errors import ConfigError
from subquad.experiment.refusals import known_keys, refusal, validated
from subquad.experiment.settings import Marks, one_line
from subquad.plugin import Config
from subquad.suggest import did_you_mean

Kind = TypeVar("Kind")
Settings = TypeVar("Settings", bound=Config)


class NoSettings(Config):
    """For what has none."""


def named(role: str, name: str, known: Mapping[str, Kind]) -> Kind:
    """What has this name.

    Args:
        role: "searcher" or "scheduler".

    Raises:
        ConfigError: nothing has.
    """
    if name not in known:
        hint = did_you_mean(name, known) or f"; there is {', '.join(known)}"
        raise ConfigError(one_line(f"{role}: unknown {role} {name!r}{hint}"))
    return known[name]


def settled(role: str, schema: type[Settings], given: Mapping[str, Any], marks: Marks | None = None) -> Settings:
    """Settings as their schema has them.

    Args:
        role: "searcher" or "scheduler"; messages name a setting `searcher.startup`.
        marks: where they were given, by paths that begin with the role.

    Raises:
        ConfigError: the first of what is wrong with them.
    """
    path = (role,)
    settings, faults = validated(schema, given, path, marks, lambda: known_keys(schema, path))
    if settings is None:
        raise refusal(faults, marks)
    return settings
