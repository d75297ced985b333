"""`key=value` on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from subquad.errors import ConfigError
from subquad.experiment.origins import Origin, one_line, shorten
from subquad.experiment.strict_yaml import parse_value
from subquad.experiment.tree import Setting


def parse_overrides(overrides: Sequence[str], cwd: Path) -> list[Setting]:
    """Settings from `train.lr=3e-4`, `mixer=agf`, `matrix.seed=[0, 1]`.

    Args:
        overrides: as typed; the value follows YAML's rules for plain text, and needs no quotes.
        cwd: what relative paths in values are relative to.

    Raises:
        ConfigError: one is not `key=value`, or a key comes twice.
    """
    settings: list[Setting] = []
    for text in overrides:
        setting = _parse(text, cwd)
        if any(setting.path == other.path for other in settings):
            raise ConfigError(one_line(f"{setting.origin}: {'.'.join(map(str, setting.path))}: given twice"))
        settings.append(setting)
    return settings


def _parse(text: str, cwd: Path) -> Setting:
    name = one_line(f"override {shorten(text, 80)!r}")
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"{name}: no '=', write key=value, as in train.lr=3e-4")
    path = _split(key.strip())
    if not all(path):
        raise ConfigError(f"{name}: {key.strip()!r} is not a key, write key=value, as in train.lr=3e-4")
    return Setting(path, parse_value(value, name), Origin(name, folder=cwd))


def _split(key: str) -> tuple[str, ...]:
    """The path of a key. A key below `matrix` or `vary` is an axis or a setting, itself written with dots."""
    head, _, rest = key.partition(".")
    return (head, rest) if head in ("matrix", "vary") and rest else tuple(key.split("."))
