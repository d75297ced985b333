"""What tests and pages know of soft."""

from __future__ import annotations

from subquad_plugins.about import BOUND, CAUSAL, UNKNOWN, About, Refused, unordered

LARGEST = "num_landmarks 9 is more than the longest sequence has: use 8 or less"
SHORT = {"max_len": 8}

ABOUT = About(
    ways=unordered("default", "few", "landmarks-alone", **BOUND),
    small={"num_landmarks": 4},
    needs_length=True,
    refused_settings=[
        Refused("conv_kernel 2 has no middle", {"conv_kernel": 2}),
    ],
    refused_places=[
        Refused(LARGEST, {"num_landmarks": 9}, SHORT),
        Refused("landmarks cannot be causal", {}, CAUSAL),
    ],
    refused_builds=[
        Refused(f"soft: {UNKNOWN}"),
    ],
)
