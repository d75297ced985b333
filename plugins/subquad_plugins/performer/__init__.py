"""Performer: random features whose products are those of softmax attention on average. Light
half.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from subquad.plugin import AttentionConfig, Facts, MixerPlugin, param


class Config(AttentionConfig):
    """Parameters of Performer attention."""

    num_features: int | None = param(
        None,
        meaning="random features of a head; null: E ln E for a head of width E",
        symbol="m",
        ge=1,
        search=(64, 128, 256),
    )
    features: Literal["softmax", "relu"] = param(
        "softmax",
        meaning="what is estimated: softmax attention, or ReLU of random projections",
        search=("softmax", "relu"),
    )
    redraw: int = param(
        0, meaning="calls in training after which features are drawn anew; 0: never", ge=0
    )
    as_published: bool = param(
        False,
        meaning="as the code of the Long Range Arena tables: "
        "scaled twice, padding counts as keys of zero",
    )

    def narrow(self, facts: Facts) -> Facts:
        facts = replace(super().narrow(facts), stateful=self.redraw > 0)
        if self.as_published:
            return replace(facts, causal="never", padding_invariant=False)
        return facts


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.performer.core:Performer",
    summary="Performer: softmax attention estimated by positive random features (FAVOR+)",
    paper="Choromanski et al. 2021, Rethinking Attention with Performers",
    facts=Facts(
        causal="optional",
        padding_invariant=True,
        permutation_equivariant=True,
        cross=True,
        complexity="L",
    ),
    variants={
        "relu": {"features": "relu"},
        "redraw": {"redraw": 2},
        "as-published": {"as_published": True},
    },
)
