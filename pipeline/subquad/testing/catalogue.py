"""All checks, and the ones a user names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from subquad.errors import ConfigError
from subquad.suggest import did_you_mean
from subquad.testing.check import Check
from subquad.testing.checks import (
    batch,
    cache,
    carry,
    causality,
    claims,
    compiled,
    cross,
    determinism,
    gradients,
    layout,
    lengths,
    losses,
    padding,
    permutation,
    precision,
    shapes,
    sites,
    state,
)

THEMES = (
    shapes,
    claims,
    gradients,
    causality,
    padding,
    batch,
    permutation,
    determinism,
    precision,
    layout,
    lengths,
    compiled,
    cache,
    state,
    losses,
    carry,
    cross,
    sites,
)


def checks() -> tuple[Check, ...]:
    """Every check, in the order of the certificate."""
    from subquad.testing import complexity  # here, since it imports this package

    return (*(check for theme in THEMES for check in theme.CHECKS), *complexity.CHECKS)


def chosen(only: Iterable[str] | None = None, exclude: Mapping[str, str] | None = None) -> tuple[Check, ...]:
    """The checks that `only` names, all where it names none.

    Raises:
        ConfigError: a name in `only` or `exclude` is no check, or an exclusion has no reason.
    """
    every = checks()
    names = list(only or ())
    for name in (*names, *(exclude or {})):
        known(name, every)
    for name, reason in (exclude or {}).items():
        if not reason.strip():
            raise ConfigError(f"exclude {name}: give a reason, as in {name}='why it does not apply'")
    return tuple(check for check in every if not names or check.name in names)


def known(name: str, every: Iterable[Check]) -> None:
    """Refuse a name that no check has.

    Raises:
        ConfigError: with the nearest name.
    """
    names = [check.name for check in every]
    if name not in names:
        raise ConfigError(f"no check {name!r}{did_you_mean(name, names)}; checks: {', '.join(names)}")
