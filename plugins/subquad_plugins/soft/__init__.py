"""SOFT: attention by a Gaussian of distances, without softmax, through packed tokens. Light
half.
"""

from __future__ import annotations

from subquad.plugin import Facts, MixerPlugin, param
from subquad_plugins.numerics.counts import count_of_tokens
from subquad_plugins.nystrom import LandmarkConfig


class Config(LandmarkConfig):
    """Parameters of SOFT."""

    num_landmarks: int = count_of_tokens(
        64,
        meaning="landmarks of the longest sequence; a shorter "
        "one has fewer, each of as many tokens",
        symbol="m",
        search=(16, 32, 64, 128),
    )
    ridge: float = param(
        0.01, meaning="added to the diagonal of the matrix that is inverted", ge=1e-4, le=1
    )
    conv_kernel: int = param(
        3,
        meaning="width, an odd number, of each head's convolution "
        "of the values that is added; 0: none",
        ge=0,
        search=(0, 3, 9),
    )


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.soft.mixer:SOFT",
    summary="SOFT: Gaussian attention without softmax, through landmarks",
    paper="Lu et al. 2021, SOFT: softmax-free transformer with linear complexity",
    facts=Facts(padding_invariant=True, max_length="site", complexity="L"),
    variants={
        "few": {"num_landmarks": 5},
        "landmarks-alone": {"num_landmarks": 5, "conv_kernel": 0},
    },
)
