"""Nystromformer: attention through means of segments, and a convolution of the values. Light
half.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Self

from pydantic import model_validator

from subquad.plugin import AttentionConfig, Facts, MixerConfig, MixerPlugin, Published, Site, param
from subquad_plugins.numerics.counts import CountedConfig, count_of_tokens


class ConvolutionConfig(MixerConfig):
    """Parameters of mixers with a convolution of the values beside them."""

    conv_kernel: int

    @model_validator(mode="after")
    def _a_convolution_has_a_middle(self) -> Self:
        if self.conv_kernel and self.conv_kernel % 2 == 0:
            raise ValueError(
                f"conv_kernel {self.conv_kernel} has no middle: use an odd number, or 0 for none"
            )
        return self


class LandmarkConfig(ConvolutionConfig, CountedConfig):
    """Parameters of mixers with landmarks and a convolution beside them."""

    counted = ("num_landmarks", 64)

    num_landmarks: int

    def check(self, site: Site) -> None:
        super().check(site)
        if site.causal:
            raise ValueError("landmarks cannot be causal: each stands for early and late tokens")


class Config(LandmarkConfig, AttentionConfig):
    """Parameters of Nystrom attention."""

    num_landmarks: int = count_of_tokens(
        64,
        meaning="segments of the queries and of the keys, whose means are "
        "the landmarks; a sample with fewer tokens gives all it has",
        symbol="m",
        search=(16, 32, 64, 128, 256),
    )
    iterations: int = param(
        6, meaning="steps of the iterative pseudo-inverse", ge=1, le=32, search=(2, 4, 6, 8)
    )
    conv_kernel: int = param(
        35,
        meaning="width, an odd number, of each head's convolution "
        "of the values that is added; 0: none",
        symbol="k",
        ge=0,
        search=(0, 3, 35),
    )
    as_published: bool = param(
        False,
        meaning="as in the authors' code: segments of the padded length, whose means count "
        "padding as zeros, and an inverse that starts from the whole batch, so that samples "
        "change each other's outputs",
    )

    def narrow(self, facts: Facts) -> Facts:
        facts = replace(
            facts,
            cross=not self.conv_kernel,
            padding_invariant=not self.as_published,
            couples_samples=self.as_published,
        )
        return super().narrow(facts)


# microseconds per token, mlpen/Nystromformer at commit 5689313
PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.nystrom.core:Nystrom",
    summary="Nystromformer: attention through means of segments",
    paper="Xiong et al. 2021, Nystromformer: a Nystrom-based "
    "algorithm for approximating self-attention",
    facts=Facts(complexity="L"),
    variants={
        "few": {"num_landmarks": 5, "conv_kernel": 3},
        "landmarks-alone": {"num_landmarks": 5, "conv_kernel": 0},
        "as-published": {"num_landmarks": 5, "as_published": True},
    },
    published=Published(
        build="subquad_plugins.nystrom.published:PublishedNystrom",
        over_attention={2048: 23.3 / 56.5},
    ),
)
