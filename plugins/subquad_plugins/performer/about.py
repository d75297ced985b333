"""What tests and pages know of performer."""

from __future__ import annotations

from dataclasses import replace

from subquad_plugins.about import PADDING, SET, About, core, features

ABOUT = About(
    ways={
        **features("default", "relu", **SET),
        **{
            name: replace(row, excluded=row.excluded - {"state-declared"} | {"state-hidden"})
            for name, row in features("redraw", stateful=True, **SET).items()
        },
        **core("as-published", without=PADDING, permutation_equivariant=True, cross=True),
    },
    operations={"default", "default, causal", "redraw", "redraw, causal", "as-published"},
    fla=["causal_product"],
)
