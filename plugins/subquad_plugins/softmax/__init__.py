"""Softmax attention: the quadratic baseline, and the reference for shared projections. Light
half.
"""

from __future__ import annotations

from typing import Literal

from subquad.plugin import AttentionConfig, Facts, MixerPlugin, param


class Config(AttentionConfig):
    """Parameters of softmax attention."""

    dropout: float = param(
        0.0, meaning="probability of dropping an attention weight in training", ge=0, lt=1
    )
    kernel: Literal["fused", "standard"] = param(
        "fused",
        meaning="fused: torch's kernels, which on CUDA are FlashAttention; standard: all L x L "
        "weights are stored, as in the tables that call this the Transformer",
    )


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.softmax.core:Softmax",
    summary="softmax attention, the quadratic baseline",
    paper="Vaswani et al. 2017, Attention Is All You Need",
    facts=Facts(
        causal="optional",
        padding_invariant=True,
        permutation_equivariant=True,
        cross=True,
        complexity="L^2",
    ),
    variants={"standard": {"kernel": "standard"}},
)
