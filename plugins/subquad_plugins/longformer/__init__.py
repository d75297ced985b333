"""Longformer: a sliding window, and a few tokens that see everything and are seen by all. Light half."""

from __future__ import annotations

from subquad.plugin import AttentionConfig, Facts, MixerPlugin, Site, param


class Config(AttentionConfig):
    """Parameters of Longformer attention."""

    window: int = param(
        512,
        meaning="tokens that a token sees besides itself, half on each side",
        symbol="w",
        ge=2,
        multiple_of=2,
        search=(32, 64, 128, 256, 512),
    )
    num_global: int = param(
        1, meaning="first real tokens, class tokens among them, that see everything and are seen by all", ge=0
    )

    def check(self, site: Site) -> None:
        super().check(site)
        if site.max_len and self.num_global > site.max_len:
            raise ValueError(f"num_global {self.num_global} is more than the longest sequence has: {site.max_len}")


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.longformer.mixer:Longformer",
    summary="Longformer: sliding-window attention with global tokens",
    paper="Beltagy, Peters, Cohan 2020, Longformer: the long-document transformer",
    facts=Facts(padding_invariant=True, complexity="L"),
    variants={"narrow": {"window": 4, "num_global": 3}, "window-alone": {"window": 4, "num_global": 0}},
)
