"""DBA: the sequence packed by learned tokens, mixed there, and unpacked by weights of its own
tokens. Light half.
"""

from __future__ import annotations

from subquad.plugin import Facts, MixerPlugin, Site, param
from subquad_plugins.luna import PackSettings


class Config(PackSettings):
    """Parameters of dynamic bilinear attention."""

    inner_dim: int = param(
        24, meaning="width of queries and keys of all heads together", ge=1, search=(8, 24, 64)
    )

    def check(self, site: Site) -> None:
        super().check(site)
        if self.inner_dim % site.num_heads:
            raise ValueError(
                f"inner_dim {self.inner_dim} is no multiple of the number of "
                f"heads, {site.num_heads}"
            )


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.dba.mixer:DBA",
    summary="DBA: packed tokens mixed by attention, unpacked "
    "by weights that follow from each token",
    paper="Qin et al. 2022, DBA: efficient transformer with dynamic bilinear low-rank attention",
    facts=Facts(padding_invariant=True, permutation_equivariant=True, complexity="L"),
    variants={"few": {"rank": 5, "inner_dim": 8}},
)
