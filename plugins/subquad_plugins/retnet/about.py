"""What tests and pages know of retnet."""

from __future__ import annotations

from subquad_plugins.about import PADDED, About, Refused, causal

ABOUT = About(
    ways=causal("default", "narrow", causal="always", **PADDED),
    refused_places=[
        Refused(
            "retnet turns pairs of channels and needs an even head width, got 6 / 2 = 3",
            {},
            {"dim": 6},
        ),
    ],
    fla=["delta_rule"],
)
