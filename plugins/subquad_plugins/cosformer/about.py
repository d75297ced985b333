"""What tests and pages know of cosformer."""

from __future__ import annotations

from subquad_plugins.about import PADDED, About, Refused, features

ABOUT = About(
    ways=features("default", "far", across=False, max_length="site", **PADDED),
    searched=False,
    needs_length=True,
    refused_places=[
        Refused(
            "horizon 8 is less than the longest sequence has: 200", {"horizon": 8}, {"max_len": 200}
        ),
    ],
    refused_builds=[
        Refused("cosformer: set horizon, as the length"),
    ],
    fla=["causal_product"],
)
