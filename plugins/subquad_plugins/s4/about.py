"""What tests and pages know of s4."""

from __future__ import annotations

from subquad_plugins.about import L_LOG_L, PADDED, About, both, causal

WAYS = {
    **both("default", "few", **PADDED, **L_LOG_L),
    **causal("past", causal="always", **PADDED, **L_LOG_L),
}

ABOUT = About(
    ways=WAYS,
    operations=WAYS,
)
