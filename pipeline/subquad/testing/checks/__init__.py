"""The checks, a module for each theme."""

from subquad.testing.cases import Check
from subquad.testing.checks import (
    compiled,
    complexity,
    decoding,
    gradients,
    influence,
    padding,
    precision,
    samples,
    shapes,
    state,
    surroundings,
    values,
)

_THEMES = (
    shapes,
    influence,
    padding,
    samples,
    gradients,
    compiled,
    precision,
    decoding,
    state,
    surroundings,
    values,
    complexity,
)

CHECKS = tuple(
    check for theme in _THEMES for check in vars(theme).values() if isinstance(check, Check)
)
"""Every check, in the order of the certificate."""
