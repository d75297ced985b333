"""What tests and pages know of mamba."""

from __future__ import annotations

from subquad_plugins.about import LENGTHS, PADDED, About, Refused, causal

STEPS = r"dt_min 0\.1 is above dt_max 0\.01"

WAYS = causal("default", "hold", causal="always", **PADDED)

ABOUT = About(
    ways=WAYS,
    operations=WAYS,
    refused_settings=[
        Refused(STEPS, {"dt_min": 0.1, "dt_max": 0.01}),
    ],
    compared=LENGTHS,
    first={"mamba.scan": "triton"},
    fla=["short_conv"],
)
