"""What tests and pages know of m2."""

from __future__ import annotations

from subquad_plugins.about import BOUND, L_LOG_L, About, both

WAYS = both("default", "gated alone", **BOUND, **L_LOG_L)

ABOUT = About(
    ways=WAYS,
    operations=WAYS,
    needs_length=True,
)
