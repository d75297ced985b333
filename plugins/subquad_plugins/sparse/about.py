"""What tests and pages know of sparse."""

from __future__ import annotations

from subquad_plugins.about import PADDED, UNKNOWN, About, Refused, sliding

ABOUT = About(
    ways={
        **sliding("default", "strided", **PADDED, complexity="L^1.5"),
        **sliding("fixed, blocks of 5", "strided by 4", **PADDED, complexity="L^2"),
    },
    needs_length=True,
    refused_places=[
        Refused("summary 8 is more than a block has: use 4 or less", {"block": 4}),
    ],
    refused_builds=[
        Refused(f"sparse: {UNKNOWN}; give `block`"),
    ],
)
