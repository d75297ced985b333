"""What tests and pages know of longformer."""

from __future__ import annotations

from subquad_plugins.about import PADDED, About, Refused, unordered

SHORT = {"max_len": 8}

WAYS = unordered("default", "narrow", "window-alone", **PADDED)

ABOUT = About(
    ways=WAYS,
    operations=WAYS,
    refused_places=[
        Refused(
            "10 is more than the longest sequence has: use 8 or less", {"num_global": 10}, SHORT
        ),
        Refused("10 is more than the longest sequence has: use 8 or less", {"window": 10}, SHORT),
    ],
)
