"""The checks, a module for each theme."""

from subquad.testing.check import Check
from subquad.testing.checks import complexity, decoding, influence, numerics, shapes, state

_THEMES = (shapes, influence, numerics, decoding, state, complexity)

CHECKS = tuple(check for theme in _THEMES for check in vars(theme).values() if isinstance(check, Check))
"""Every check, in the order of the certificate."""
