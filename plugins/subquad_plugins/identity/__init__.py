"""No mixing: the control that shows what a network does without any exchange between tokens.
Light half.
"""

from __future__ import annotations

from subquad.plugin import Facts, MixerConfig, MixerPlugin, param


class Config(MixerConfig):
    """Parameters of the control."""

    projections: bool = param(
        True,
        meaning="pass each token through a value and an output projection, as attention "
        "does; false: output zero",
    )


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.identity.mixer:Identity",
    summary="no mixing, the control: no token sees another",
    facts=Facts(
        causal="always", padding_invariant=True, permutation_equivariant=True, complexity="L"
    ),
)
