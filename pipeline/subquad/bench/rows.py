"""Which mixers are timed, and with which parameters: `agf`, `agf:order=5,ortho_weight=0`, `./mine.py:Mine:width=8`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from subquad.errors import ConfigError, PluginError
from subquad.experiment import parameters
from subquad.experiment.strict_yaml import parse_value
from subquad.plugin import Config, Facts, MixerPlugin
from subquad.registry import Resolved, blocked, find_plugins, resolve

REFERENCE = "softmax"
"""The row all others are held against: full attention with four projections, on torch's fused kernel."""

DEFAULTS = (
    "agf",
    "agf:ortho_weight=0",
    "cur:num_indices=64",
    "sfpc:operator=shift,order=8,projections=false",
    "fourier:form=re_2d,projections=none",
)
"""Named by the speed goals; operators without weights of their own are timed without projections around them."""

_ROW = re.compile(r"(?P<name>.+?)(?::(?P<params>\w+=.*))?", re.DOTALL)
_NEXT = re.compile(r",(?=\s*\w+=)")


@dataclass(frozen=True)
class Row:
    """One mixer with its parameters.

    Attributes:
        text: as it was asked for.
        resolved: the plugin.
        config: all its parameters.
        facts: what it claims with them.
    """

    text: str
    resolved: Resolved
    config: Config
    facts: Facts

    @property
    def params(self) -> dict[str, Any]:
        """All parameters, as plain values."""
        return self.config.model_dump(mode="json")


def parse_row(text: str) -> Row:
    """A row from `NAME` or `NAME:key=value,key=value`; values follow YAML's rules for plain text.

    Raises:
        PluginError: there is no such mixer.
        ConfigError: a parameter is wrong, or given twice.
    """
    match = _ROW.fullmatch(text.strip())
    if match is None:
        raise ConfigError("a row needs a mixer: write NAME or NAME:key=value,key=value")
    resolved = resolve("mixer", match["name"])
    assert isinstance(resolved.plugin, MixerPlugin)
    try:
        config = parameters(resolved, _params(match["params"]))
    except ConfigError as error:
        raise ConfigError(f"row {text.strip()!r}: {error}") from None
    return Row(text.strip(), resolved, config, resolved.plugin.facts_of(config))


def _params(text: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in _NEXT.split(text) if text else ():
        key, _, value = item.strip().partition("=")
        if key in found:
            raise ConfigError(f"{key} is given twice")
        found[key] = parse_value(value, key)
    return found


def rows_of(texts: Sequence[str]) -> tuple[list[Row], list[str]]:
    """The rows asked for, or the default ones, and why any default one is left out.

    Raises:
        PluginError, ConfigError: as `parse_row`, for rows that were asked for.
    """
    if texts:
        return [parse_row(text) for text in dict.fromkeys(texts)], []
    rows, skipped = [], []
    for text in (*DEFAULTS, *_others()):
        try:
            rows.append(parse_row(text))
        except (PluginError, ConfigError) as error:
            skipped.append(f"{text}: {error}")
    return [row for row in rows if row.text in DEFAULTS or row.facts.complexity != "L^2"], skipped


def _others() -> Iterator[str]:
    """All other installed mixers, by a name that stands for one alone."""
    named = {text.partition(":")[0] for text in DEFAULTS} | {REFERENCE}
    installed = [found for found in find_plugins("mixer") if not blocked(found.distribution)]
    names = [found.name for found in installed]
    for found in installed:
        if found.name not in named:
            yield found.name if names.count(found.name) == 1 else f"{found.distribution}:{found.name}"
