"""What tests and pages know of bigbird."""

from __future__ import annotations

from subquad_plugins.about import CAUSAL, CROSS, PADDED, About, Refused, core

WAYS = core("default", "small", without=CROSS, **PADDED)

ABOUT = About(
    ways=WAYS,
    operations=WAYS,
    refused_places=[
        Refused(
            "BigBird attention cannot be causal: its first and last blocks see everything",
            {},
            CAUSAL,
        ),
    ],
)
