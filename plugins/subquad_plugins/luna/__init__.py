"""Luna: few learned tokens read the sequence, and the sequence reads them. Light half."""

from __future__ import annotations

from subquad.plugin import Facts, MixerPlugin, Site, param
from subquad_plugins.numerics.counts import CountedConfig, count_of_tokens


class PackSettings(CountedConfig):
    """How many tokens a sequence is packed into: shared with DBA."""

    counted = ("rank", 16)

    rank: int = count_of_tokens(
        16,
        meaning="tokens that the sequence is packed into",
        symbol="r",
        search=(8, 16, 32, 64),
    )

    def check(self, site: Site) -> None:
        super().check(site)
        if site.causal:
            raise ValueError("packed tokens cannot be causal: each has read early and late tokens")


class Config(PackSettings):
    """Parameters of Luna."""

    share_values: bool = param(
        True, meaning="values are the keys, in both steps", search=(False, True)
    )


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.luna.mixer:Luna",
    summary="Luna: packed tokens that pass from layer to layer",
    paper="Ma et al. 2021, Luna: linear unified nested attention",
    facts=Facts(padding_invariant=True, permutation_equivariant=True, complexity="L"),
    variants={"few": {"rank": 5}, "apart": {"rank": 5, "share_values": False}},
)
