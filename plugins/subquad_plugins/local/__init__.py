"""Local attention: each token sees those near it. Light half."""

from __future__ import annotations

from subquad.plugin import AttentionConfig, Facts, MixerPlugin, Site, param


class Config(AttentionConfig):
    """Parameters of local attention."""

    window: int | None = param(
        None,
        meaning="blocks before its own, and after it, that a token sees; null: 64 tokens, "
        "or all of a shorter sequence",
        symbol="w",
        ge=0,
        search=(16, 32, 64, 128),
    )
    block: int = param(1, meaning="tokens of a block; 1: a sliding window", ge=1)

    @property
    def blocks(self) -> int:
        """Before a token's own that it sees."""
        if self.window is None:
            return -(-64 // self.block)
        return self.window

    def check(self, site: Site) -> None:
        super().check(site)
        tokens = max(self.window or 1, 1) * self.block
        if site.max_len and tokens > site.max_len:
            most = f"use {site.max_len} or less"
            raise ValueError(
                f"a window of {tokens} tokens is more than the longest sequence has: {most}"
            )


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.local.core:Local",
    summary="softmax attention within a sliding window, or within blocks",
    paper="Parmar et al. 2018, Image Transformer; Tay et al. 2021, Long Range Arena",
    facts=Facts(causal="optional", padding_invariant=True, complexity="L"),
    variants={"blocks": {"block": 4, "window": 1}, "one-block": {"block": 5, "window": 0}},
)
