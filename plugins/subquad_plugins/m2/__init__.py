"""Monarch Mixer: a gated long convolution in both directions, and a second one beside it. Light
half.
"""

from __future__ import annotations

from subquad.plugin import Facts, MixerPlugin, param
from subquad_plugins.hyena import FilterConfig


class Config(FilterConfig):
    """Parameters of the sequence mixer of Monarch Mixer."""

    position_dim: int = param(
        5,
        meaning="features of a position, an odd number: itself, cosines and sines",
        ge=3,
        le=129,
        search=(3, 5, 33),
    )
    residual: bool = param(
        True, meaning="a second long convolution of the tokens themselves", search=(True, False)
    )


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.m2.mixer:M2",
    summary="Monarch Mixer: a gated long convolution with implicit kernels, in both directions",
    paper="Fu et al. 2023, Monarch Mixer: A Simple Sub-Quadratic GEMM-Based Architecture",
    facts=Facts(
        causal="optional",
        padding_invariant=True,
        max_length="site",
        complexity="L log L",
        leak=1e-12,
    ),
    variants={"gated alone": {"residual": False, "filter_dim": 8, "filter_layers": 1}},
)
