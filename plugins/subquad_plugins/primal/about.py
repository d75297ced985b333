"""What tests and pages know of primal."""

from __future__ import annotations

from subquad_plugins.about import CAUSAL, PADDED, About, Refused, unordered

ABOUT = About(
    ways={
        **unordered("default", "few", without=set(), **PADDED),
        **unordered("no loss", **PADDED),
    },
    refused_places=[
        Refused(
            "primal attention cannot be causal: its directions follow from early and late",
            {},
            CAUSAL,
        ),
    ],
)
