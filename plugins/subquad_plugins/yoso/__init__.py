"""YOSO in expectation: attention by how likely the hashes of query and key collide. Light half."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from subquad.plugin import AttentionConfig, Facts, MixerPlugin, param
from subquad_plugins.nystrom import ConvolutionConfig


class Config(AttentionConfig, ConvolutionConfig):
    """Parameters of YOSO's expectation."""

    bits: int = param(9, meaning="bits of a hash", symbol="tau", ge=1, le=64, search=(6, 9, 12))
    conv_kernel: int = param(
        0,
        meaning="width, an odd number, of each head's convolution "
        "of the values that is added; 0: none",
        ge=0,
        search=(0, 9, 35),
    )
    gradient: Literal["exact", "bound"] = param(
        "exact",
        meaning="of the weights by q . k: their derivative, or the bound bits / 2 x weight "
        "of the paper and its code",
    )

    def narrow(self, facts: Facts) -> Facts:
        facts = replace(
            facts, cross=not self.conv_kernel, permutation_equivariant=not self.conv_kernel or None
        )
        return super().narrow(facts)


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.yoso.core:YOSO",
    summary="YOSO in expectation (quadratic): weights are "
    "probabilities that hashes of query and key collide",
    paper="Zeng et al. 2021, You only sample (almost) once, Eq. 3 and 8",
    facts=Facts(padding_invariant=True, complexity="L^2"),
    variants={"long hash": {"bits": 30}, "convolution": {"conv_kernel": 5}},
)
