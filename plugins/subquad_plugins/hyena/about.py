"""What tests and pages know of hyena."""

from __future__ import annotations

from subquad_plugins.about import BOUND, L_LOG_L, LENGTHS, About, Refused, causal

WAYS = causal("default", "order 3", causal="always", **BOUND, **L_LOG_L)

ABOUT = About(
    ways=WAYS,
    operations=WAYS,
    needs_length=True,
    refused_settings=[
        Refused(
            "position_dim 4 is even: it counts the position, and pairs of features",
            {"position_dim": 4},
        ),
    ],
    refused_builds=[
        Refused("kernels made of positions need the length of the longest sequence"),
    ],
    compared=LENGTHS,
)
