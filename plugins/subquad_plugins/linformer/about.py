"""What tests and pages know of linformer."""

from __future__ import annotations

from subquad_plugins.about import BOUND, CAUSAL, UNKNOWN, About, Refused, core

RANK = "rank 9 is more than the longest sequence has: use 8 or less"
SHORT = {"max_len": 8}

ABOUT = About(
    ways=core("default", "few", "apart", "shared", cross=True, **BOUND),
    small={"rank": 4},
    needs_length=True,
    refused_places=[
        Refused(RANK, {"rank": 9}, SHORT),
        Refused(RANK, {"rank": 9}, {"max_len": 20, "context_len": 8, "role": "cross"}),
        Refused("Linformer attention cannot be causal", {"rank": 2}, CAUSAL),
    ],
    refused_builds=[
        Refused(f"linformer: {UNKNOWN}"),
    ],
)
