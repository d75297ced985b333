"""RetNet: linear attention that forgets at a fixed rate for each head. Light half."""

from __future__ import annotations

from subquad.plugin import Facts, MixerConfig, MixerPlugin, Site, param


class GatedHeadsConfig(MixerConfig):
    """Parameters that mixers with a matrix as state share."""

    expand: int = param(2, meaning="width of values over that of keys", ge=1, le=8, search=(1, 2))


class Config(GatedHeadsConfig):
    """Parameters of RetNet."""

    def check(self, site: Site) -> None:
        super().check(site)
        if site.head_dim % 2:
            raise ValueError(
                "retnet turns pairs of channels and needs an even head "
                f"width, got {site.dim} / {site.num_heads} = {site.head_dim}"
            )


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.retnet.mixer:RetNet",
    summary="RetNet: linear attention with a fixed decay for each head",
    paper="Sun et al. 2023, Retentive Network: A Successor "
    "to Transformer for Large Language Models",
    facts=Facts(causal="always", padding_invariant=True, complexity="L"),
    variants={"narrow": {"expand": 1}},
)
