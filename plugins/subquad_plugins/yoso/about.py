"""What tests and pages know of yoso."""

from __future__ import annotations

from subquad_plugins.about import CROSS, PADDED, SET, About, core

ABOUT = About(
    ways={
        **core(
            "default", "long hash", without={"cross-cache"}, **SET, cross=True, complexity="L^2"
        ),
        **core("convolution", without=CROSS, **PADDED, complexity="L^2"),
    },
)
