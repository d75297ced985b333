"""What tests and pages know of luna."""

from __future__ import annotations

from subquad_plugins.about import SET, About, Refused, handing_on

RANK = "rank 9 is more than the longest sequence has: use 8 or less"
SHORT = {"max_len": 8}

ABOUT = About(
    ways=handing_on("default", "few", "apart", **SET),
    refused_places=[
        Refused(RANK, {"rank": 9}, SHORT),
    ],
)
