"""What tests and pages know of flowformer."""

from __future__ import annotations

from subquad_plugins.about import SET, About, features

ABOUT = About(
    ways=features("default", across=False, **SET),
    searched=False,
    fla=["causal_product"],
)
