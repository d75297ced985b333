"""Linformer: keys and values packed into a few by learned projections of the sequence. Light
half.
"""

from __future__ import annotations

from subquad.plugin import AttentionConfig, Facts, MixerPlugin, Site, param
from subquad_plugins.numerics.counts import CountedConfig, count_of_tokens


class Config(AttentionConfig, CountedConfig):
    """Parameters of Linformer attention."""

    counted = ("rank", 64)

    rank: int = count_of_tokens(
        64,
        meaning="packed keys and values that stand for all",
        symbol="k",
        search=(16, 32, 64, 128, 256),
    )
    share_heads: bool = param(
        False, meaning="one projection for all heads, else one each", search=(False, True)
    )
    share_values: bool = param(
        True, meaning="one projection for keys and values, else one each", search=(False, True)
    )

    def check(self, site: Site) -> None:
        super().check(site)
        if site.causal:
            raise ValueError(
                "Linformer attention cannot be causal: a packed key has early and late tokens"
            )

    def longest(self, site: Site) -> int:
        return site.context_len if site.role == "cross" else site.max_len


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.linformer.core:Linformer",
    summary="Linformer: attention to keys and values packed by learned projections",
    paper="Wang, Li, Khabsa, Fang, Ma 2020, Linformer: self-attention with linear complexity",
    facts=Facts(padding_invariant=True, cross=True, max_length="site", complexity="L"),
    variants={
        "few": {"rank": 5},
        "apart": {"rank": 5, "share_values": False},
        "shared": {"rank": 5, "share_heads": True},
    },
)
