"""Efficient attention: softmax over channels of the queries, over tokens of the keys. Light
half.
"""

from __future__ import annotations

from subquad.plugin import AttentionConfig, Facts, MixerPlugin


class Config(AttentionConfig):
    """Parameters of efficient attention: those of the projections."""


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.efficient.core:Efficient",
    summary="efficient attention: each channel of the keys is a softmax over the tokens",
    paper="Shen et al. 2021, Efficient Attention: Attention with Linear Complexities",
    facts=Facts(
        causal="optional",
        padding_invariant=True,
        permutation_equivariant=True,
        cross=True,
        complexity="L",
    ),
)
