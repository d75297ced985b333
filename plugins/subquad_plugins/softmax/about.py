"""What tests and pages know of softmax."""

from __future__ import annotations

from subquad_plugins.about import LENGTHS, SET, About, causal, core

ABOUT = About(
    ways={
        **core("default", "standard", causal="optional", **SET, cross=True, complexity="L^2"),
        **causal("default", "standard", causal="optional", **SET, cross=True, complexity="L^2"),
    },
    operations={"default"},
    searched=False,
    compared=LENGTHS,
    first={"softmax.attention": "packed"},
)
