"""cosFormer: ReLU features, weighted by a cosine of the distance. Light half."""

from __future__ import annotations

from subquad.plugin import AttentionConfig, Facts, MixerPlugin, Site, param


class Config(AttentionConfig):
    """Parameters of cosFormer attention."""

    horizon: int | None = param(
        None,
        meaning="tokens over which the cosine falls to 0; null: the longest sequence's",
        symbol="M",
        ge=1,
    )

    def check(self, site: Site) -> None:
        super().check(site)
        if self.horizon and (longest := max(site.max_len, site.context_len)) > self.horizon:
            raise ValueError(
                f"horizon {self.horizon} is less than the longest sequence has: {longest}"
            )


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.cosformer.core:Cosformer",
    summary="cosFormer: linear attention with ReLU features "
    "and weights that fall with the distance",
    paper="Qin et al. 2022, cosFormer: Rethinking Softmax in Attention",
    facts=Facts(
        causal="optional", padding_invariant=True, cross=True, max_length="site", complexity="L"
    ),
    variants={"far": {"horizon": 100_000}},
)
