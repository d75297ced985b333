"""Longformer: a sliding window, and a few tokens that see everything and are seen by all. Light
half.
"""

from __future__ import annotations

from subquad.plugin import AttentionConfig, Facts, MixerPlugin, Site, param


class Config(AttentionConfig):
    """Parameters of Longformer attention."""

    window: int | None = param(
        None,
        meaning="tokens that a token sees besides itself, half on each side; null: 512, or "
        "all of a shorter sequence",
        symbol="w",
        ge=2,
        multiple_of=2,
        search=(32, 64, 128, 256, 512),
    )
    num_global: int = param(
        1,
        meaning="first real tokens, class tokens among them, "
        "that see everything and are seen by all",
        ge=0,
    )

    def check(self, site: Site) -> None:
        super().check(site)
        for name, count in {"window": self.window or 0, "num_global": self.num_global}.items():
            if site.max_len and count > site.max_len:
                raise ValueError(
                    f"{name} {count} is more than the longest "
                    f"sequence has: use {site.max_len} or less"
                )


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.longformer.mixer:Longformer",
    summary="Longformer: sliding-window attention with global tokens",
    paper="Beltagy, Peters, Cohan 2020, Longformer: the long-document transformer",
    facts=Facts(padding_invariant=True, complexity="L"),
    variants={
        "narrow": {"window": 4, "num_global": 3},
        "window-alone": {"window": 4, "num_global": 0},
    },
)
