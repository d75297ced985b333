"""Linear attention with the features elu + 1. Light half."""

from __future__ import annotations

from dataclasses import replace

from subquad.plugin import AttentionConfig, Facts, MixerPlugin, param


class Config(AttentionConfig):
    """Parameters of linear attention."""

    as_published: bool = param(
        False,
        meaning="as the code of the Long Range Arena tables: "
        "without normaliser, scaled by the padded length",
    )

    def narrow(self, facts: Facts) -> Facts:
        facts = super().narrow(facts)
        if self.as_published:
            return replace(facts, causal="never", padding_invariant=False)
        return facts


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.linear.core:Linear",
    summary="linear attention with the features elu + 1",
    paper="Katharopoulos et al. 2020, Transformers are RNNs",
    facts=Facts(
        causal="optional",
        padding_invariant=True,
        permutation_equivariant=True,
        cross=True,
        complexity="L",
    ),
    variants={"as-published": {"as_published": True}},
)
