"""What tests and pages know of identity."""

from __future__ import annotations

from subquad_plugins.about import SET, About, causal

ABOUT = About(
    ways=causal("default", causal="always", **SET),
    searched=False,
)
