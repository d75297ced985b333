"""Singularformer: learned singular vectors pack the sequence, attention mixes, and others unpack
it. Light half.
"""

from __future__ import annotations

from subquad.plugin import Facts, MixerPlugin, param
from subquad_plugins.luna import PackSettings


class Config(PackSettings):
    """Parameters of Singularformer's attention."""

    ortho_weight: float = param(
        1e-2,
        meaning="weight of the orthogonality loss; 0: not computed",
        ge=0,
        search=(0.0, 1e-4, 1e-3, 1e-2, 1e-1),
    )


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.singularformer.mixer:Singularformer",
    summary="Singularformer: packed by learned singular vectors, mixed by attention, unpacked",
    paper="Wu et al. 2023, Singularformer: learning to decompose self-attention to "
    "linearize the complexity",
    facts=Facts(padding_invariant=True, permutation_equivariant=True, complexity="L"),
    variants={"few": {"rank": 5}, "no loss": {"rank": 5, "ortho_weight": 0.0}},
)
