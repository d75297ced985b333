"""Primal attention: projections onto singular directions whose weights follow from a few tokens.
Light half.
"""

from __future__ import annotations

from subquad.plugin import Facts, MixerConfig, MixerPlugin, Site, param


class Config(MixerConfig):
    """Parameters of primal attention."""

    rank: int = param(
        20, meaning="singular directions of a head", symbol="s", ge=1, search=(20, 30, 40)
    )
    tokens_per_rank: int = param(
        10,
        meaning="tokens that make the directions, over the rank; not more than there are",
        ge=1,
        search=(5, 10),
    )
    ksvd_weight: float = param(
        0.1,
        meaning="weight of the KSVD loss; 0: not computed",
        symbol="eta",
        ge=0,
        search=(0.0, 0.05, 0.1, 0.2, 0.5),
    )

    def check(self, site: Site) -> None:
        super().check(site)
        if site.causal:
            raise ValueError(
                "primal attention cannot be causal: its "
                "directions follow from early and late tokens"
            )


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.primal.mixer:Primal",
    summary="primal attention: the two projections of a kernel singular value decomposition",
    paper="Chen, Tao, Tonin, Suykens 2023, Primal-attention: "
    "self-attention through asymmetric kernel SVD",
    facts=Facts(padding_invariant=True, complexity="L"),
    variants={
        "few": {"rank": 3, "tokens_per_rank": 2},
        "no loss": {"rank": 3, "tokens_per_rank": 2, "ksvd_weight": 0.0},
    },
)
