"""What tests and pages know of reformer."""

from __future__ import annotations

from subquad_plugins.about import CACHE, LOSSES, PADDED, PADDING, About, causal, unordered

ABOUT = About(
    ways={
        **unordered("default", "short chunks", "four rounds", **PADDED, causal="optional"),
        **causal(
            "default",
            "short chunks",
            "four rounds",
            without=LOSSES | CACHE,
            causal="optional",
            **PADDED,
        ),
        **unordered("as published", without=LOSSES | PADDING),
    },
)
