"""What tests and pages know of s4d."""

from __future__ import annotations

from subquad_plugins.about import L_LOG_L, LENGTHS, PADDED, About, Refused, both, causal

STEPS = r"dt_min 0\.1 is above dt_max 0\.01"

WAYS = {
    **both("default", "bilinear", **PADDED, **L_LOG_L),
    **causal("past", causal="always", **PADDED, **L_LOG_L),
}

ABOUT = About(
    ways=WAYS,
    operations=WAYS,
    refused_settings=[
        Refused(STEPS, {"dt_min": 0.1, "dt_max": 0.01}),
    ],
    compared=LENGTHS,
)
