"""Hyena: long convolutions whose kernels a small network makes of positions, between products of
projections.

Light half.
"""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from subquad.plugin import Facts, MixerConfig, MixerPlugin, Range, param


class FilterConfig(MixerConfig):
    """Parameters of the network that makes kernels, and of the short convolution before."""

    filter_dim: int = param(
        64, meaning="width of the network that makes kernels", ge=1, le=4096, search=(16, 32, 64)
    )
    filter_layers: int = param(
        2, meaning="its layers between the first and the last", ge=0, le=16, search=(1, 2, 3)
    )
    position_dim: int = param(
        3,
        meaning="features of a position, an odd number: itself, cosines and sines",
        ge=3,
        le=129,
        search=(3, 5, 33),
    )
    sine_frequency: float = param(
        10.0,
        meaning="frequency of its sines at the start",
        symbol="w",
        gt=0,
        le=1e4,
        search=Range(1, 30, log=True),
    )
    conv_kernel: int = param(
        3,
        meaning="tokens that the convolution of the projections sees",
        ge=2,
        le=64,
        search=(2, 3, 4),
    )

    @model_validator(mode="after")
    def _features_are_odd(self) -> Self:
        if self.position_dim % 2 == 0:
            raise ValueError(
                f"position_dim {self.position_dim} is even: it counts the "
                "position, and pairs of features"
            )
        return self


class Config(FilterConfig):
    """Parameters of Hyena."""

    order: int = param(2, meaning="long convolutions plus one", ge=2, le=8, search=(2, 3))


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.hyena.mixer:Hyena",
    summary="Hyena: long convolutions with implicit kernels, between products",
    paper="Poli et al. 2023, Hyena Hierarchy: Towards Larger Convolutional Language Models",
    facts=Facts(
        causal="always", padding_invariant=True, max_length="site", complexity="L log L", leak=1e-12
    ),
    variants={"order 3": {"order": 3, "filter_dim": 8, "filter_layers": 1, "position_dim": 5}},
)
