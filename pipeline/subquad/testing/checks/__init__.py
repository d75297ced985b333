"""The checks, a module for each theme."""

from subquad.testing.check import Check
from subquad.testing.checks import (
    batch,
    cache,
    causality,
    claims,
    complexity,
    cross,
    numerics,
    padding,
    shapes,
    sites,
    state,
)

_THEMES = (shapes, claims, causality, padding, batch, numerics, cache, state, cross, sites, complexity)

CHECKS = tuple(check for theme in _THEMES for check in vars(theme).values() if isinstance(check, Check))
"""Every check, in the order of the certificate."""
