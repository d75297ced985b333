"""Flow-Attention: linear attention in which tokens compete for the flow that passes on. Light
half.
"""

from __future__ import annotations

from subquad.plugin import AttentionConfig, Facts, MixerPlugin, param


class Config(AttentionConfig):
    """Parameters of Flow-Attention."""

    clamp: float = param(
        1.0, meaning="largest size of a conserved outgoing flow before its softmax", ge=1, le=60
    )


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.flowformer.core:Flowformer",
    summary="Flow-Attention: sigmoid features, with "
    "competition among sources and allocation to sinks",
    paper="Wu et al. 2022, Flowformer: Linearizing Transformers with Conservation Flows",
    facts=Facts(
        causal="optional",
        padding_invariant=True,
        permutation_equivariant=True,
        cross=True,
        complexity="L",
    ),
)
