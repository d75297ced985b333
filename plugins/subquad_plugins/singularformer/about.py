"""What tests and pages know of singularformer."""

from __future__ import annotations

from subquad_plugins.about import SET, About, unordered

ABOUT = About(
    ways={
        **unordered("default", "few", without=set(), **SET),
        **unordered("no loss", **SET),
    },
)
