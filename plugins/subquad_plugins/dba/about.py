"""What tests and pages know of dba."""

from __future__ import annotations

from subquad_plugins.about import CAUSAL, SET, About, Refused, handing_on

ABOUT = About(
    ways=handing_on("default", "few", **SET),
    refused_places=[
        Refused("packed tokens cannot be causal: each has read early and late tokens", {}, CAUSAL),
        Refused(
            "inner_dim 24 is no multiple of the number of heads, 5", {}, {"dim": 40, "num_heads": 5}
        ),
    ],
)
