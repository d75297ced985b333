"""BigBird: blocks that see their neighbours, a few random blocks, and the first and the last
one. Light half.
"""

from __future__ import annotations

from subquad.plugin import AttentionConfig, Facts, MixerPlugin, Site, param


class Config(AttentionConfig):
    """Parameters of BigBird attention."""

    block: int = param(64, meaning="tokens of a block", symbol="b", ge=1, search=(16, 32, 64))
    num_random: int = param(
        3, meaning="random blocks that a block sees", symbol="r", ge=1, search=(1, 2, 3)
    )

    def check(self, site: Site) -> None:
        super().check(site)
        if site.causal:
            raise ValueError(
                "BigBird attention cannot be causal: its first and last blocks see everything"
            )


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.bigbird.core:BigBird",
    summary="BigBird: attention to neighbouring, random, first and last blocks",
    paper="Zaheer et al. 2020, Big Bird: transformers for longer sequences",
    facts=Facts(padding_invariant=True, complexity="L"),
    variants={"small": {"block": 2, "num_random": 2}},
)
