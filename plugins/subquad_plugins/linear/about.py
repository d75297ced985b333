"""What tests and pages know of linear."""

from __future__ import annotations

from subquad_plugins.about import PADDING, SET, About, core, features

ABOUT = About(
    ways={
        **features("default", **SET),
        **core(
            "as-published",
            without=PADDING | {"cross-cache"},
            permutation_equivariant=True,
            cross=True,
        ),
    },
    searched=False,
    fla=["causal_product"],
)
