"""The checks, a module for each theme."""

from importlib import import_module

from subquad_check.cases import Check

_THEMES = """shapes influence samples gradients compiled precision kernels attention state
weights surroundings values complexity"""

CHECKS = tuple(
    check
    for theme in _THEMES.split()
    for check in vars(import_module(f"{__name__}.{theme}")).values()
    if isinstance(check, Check)
)
"""Every check, in the order of the certificate."""
