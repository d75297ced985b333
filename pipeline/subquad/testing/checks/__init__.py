"""The checks, a module for each theme."""

from subquad.testing.cases import Check
from subquad.testing.checks import (
    attention,
    compiled,
    complexity,
    decoding,
    gradients,
    influence,
    padding,
    places,
    precision,
    samples,
    shapes,
    state,
    surroundings,
    values,
    weights,
)

_THEMES = (
    shapes,
    places,
    influence,
    padding,
    samples,
    gradients,
    compiled,
    precision,
    decoding,
    attention,
    state,
    weights,
    surroundings,
    values,
    complexity,
)

CHECKS = tuple(
    check for theme in _THEMES for check in vars(theme).values() if isinstance(check, Check)
)
"""Every check, in the order of the certificate."""
