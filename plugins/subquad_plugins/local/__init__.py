"""Local attention: each token sees those near it. Light half."""

from __future__ import annotations

from subquad.plugin import AttentionConfig, Facts, MixerPlugin, param


class Config(AttentionConfig):
    """Parameters of local attention."""

    window: int = param(
        64, meaning="blocks before its own, and after it, that a token sees", symbol="w", ge=0, search=(16, 32, 64, 128)
    )
    block: int = param(1, meaning="tokens of a block; 1: a sliding window", ge=1)


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.local.core:Local",
    summary="softmax attention within a sliding window, or within blocks",
    paper="Parmar et al. 2018, Image Transformer; Tay et al. 2021, Long Range Arena",
    facts=Facts(causal="optional", padding_invariant=True, complexity="L"),
    variants={"blocks": {"block": 4, "window": 1}, "one-block": {"block": 5, "window": 0}},
)
