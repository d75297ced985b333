"""What tests and pages know of s5."""

from __future__ import annotations

from subquad_plugins.about import LENGTHS, PADDED, About, Refused, both, causal

STEPS = r"dt_min 0\.1 is above dt_max 0\.01"

WAYS = {**both("default", **PADDED), **causal("past", causal="always", **PADDED)}

ABOUT = About(
    ways=WAYS,
    operations=WAYS,
    refused_settings=[
        Refused(STEPS, {"dt_min": 0.1, "dt_max": 0.01}),
        Refused("state_dim 64 is not made of 3 blocks of pairs", {"blocks": 3}),
    ],
    compared=LENGTHS,
)
