"""What tests and pages know of gated-deltanet."""

from __future__ import annotations

from subquad_plugins.about import LENGTHS, PADDED, About, causal

WAYS = causal("default", "deltanet", causal="always", **PADDED)

ABOUT = About(
    ways=WAYS,
    operations=WAYS,
    compared=LENGTHS,
    fla=["delta_rule", "short_conv"],
)
