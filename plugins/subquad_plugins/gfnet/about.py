"""What tests and pages know of gfnet."""

from __future__ import annotations

from subquad_plugins.about import BOUND, L_LOG_L, About, Refused, unordered

ABOUT = About(
    ways=unordered("default", **BOUND, **L_LOG_L),
    needs_length=True,
    refused_places=[
        Refused(
            "gfnet filters the grid of 3 x 3 patches, which with 1 tokens in front are 10, and "
            "sequences have up to 12",
            {},
            {"max_len": 12, "grid": (3, 3), "num_prefix_tokens": 1},
        ),
    ],
    refused_builds=[
        Refused("gfnet: neither a grid nor the length of the longest sequence is known"),
    ],
    accepted=[
        ({}, {"max_len": 10, "grid": (3, 3), "num_prefix_tokens": 1}),
    ],
)
