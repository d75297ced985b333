"""Mega: gated single-head attention on top of a multi-dimensional damped moving average.

Light half: parameters and descriptor.
`naive.py` has the mathematics, docs/reference/mixers/mega.md the choices and numbers.
Reference: Ma et al. 2023, Mega: Moving Average Equipped Gated Attention (ICLR).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import model_validator

from subquad.plugin import Facts, MixerConfig, MixerPlugin, Range, Site, param


class LayerConfig(MixerConfig):
    """Parameters of Mega's layer, whatever its attention: shared with MegaCUR."""

    attention: Literal["softmax", "laplace"] = param(
        "softmax",
        meaning="attention function; laplace acts on each score alone",
        search=("softmax", "laplace"),
    )
    attention_dim: int | None = param(
        None,
        meaning="width of queries and keys; null: half of dim",
        symbol="z",
        ge=1,
        le=4096,
        search=(32, 64, 96),
    )
    value_dim: int | None = param(
        None,
        meaning="width of values; null: twice dim",
        symbol="v",
        ge=1,
        le=65536,
        search=(128, 160, 256, 320),
    )
    ema_dim: int = param(
        16,
        meaning="moving averages per channel",
        symbol="h",
        ge=1,
        le=256,
        search=(1, 2, 4, 8, 16, 32),
    )
    bidirectional: bool = param(
        True,
        meaning="a second moving average from the future; a causal mixer never has one",
        search=(True, False),
    )
    truncation: int = param(
        0,
        meaning="longest lag of the moving average plus one; 0: no limit",
        ge=0,
        search=(0, 1024, 4096),
    )
    bias: Literal["simple", "rotary"] = param(
        "simple",
        meaning="relative position bias: a number per distance, or two rotated vectors",
        search=("simple", "rotary"),
    )
    max_positions: int = param(
        0,
        meaning="positions of the simple bias; 0: the longest sequence, or chunk_size",
        ge=0,
        le=2**20,
        when={"bias": ("simple",), "chunk_size": (0,)},
    )
    chunk_size: int = param(
        0,
        meaning="attention within chunks of this many tokens; 0: over the whole sequence",
        symbol="c",
        ge=0,
        search=(0, 128, 256, 512),
    )
    norm: Literal["none", "layer", "scale", "rms"] = param(
        "none",
        meaning="norm of the mixer's own input; none leaves it to the backbone",
        search=("none", "layer", "scale", "rms"),
    )
    dropout: float = param(
        0.0,
        meaning="dropout of the moving average and of the gated hidden state",
        ge=0,
        lt=1,
        search=Range(0.0, 0.3),
    )
    value_dropout: float = param(
        0.0, meaning="dropout of values", ge=0, lt=1, search=Range(0.0, 0.3)
    )

    @model_validator(mode="after")
    def _rotary_needs_pairs(self) -> LayerConfig:
        if self.bias == "rotary" and self.attention_dim is not None and self.attention_dim % 2:
            raise ValueError(f"bias rotary needs an even attention_dim, got {self.attention_dim}")
        return self

    def check(self, site: Site) -> None:
        super().check(site)
        if site.causal and not self.bidirectional:
            raise ValueError(self.no_effect("bidirectional", "a causal mixer"))
        if self.max_positions and site.max_len > self.max_positions:
            raise ValueError(
                f"max_positions {self.max_positions} is less than the longest "
                f"sequence, {site.max_len}: "
                "give at least that, or 0"
            )
        if site.max_len and self.truncation >= site.max_len:
            longest = f"sequences of at most {site.max_len} tokens"
            raise ValueError(
                self.no_effect("truncation", longest, f"a truncation below {site.max_len}")
            )

    def narrow(self, facts: Facts) -> Facts:
        facts = super().narrow(facts)
        if self.chunk_size:
            facts = replace(facts, complexity="L log L")
        if self.chunk_size or self.bias == "rotary":
            return replace(facts, max_length=None)
        return replace(facts, max_length=self.max_positions or "site")

    def widths(self, dim: int) -> tuple[int, int]:
        """Widths of queries and keys (even by default: the rotary bias needs it) and of values."""
        return self.attention_dim or 2 * -(-dim // 4), self.value_dim or 2 * dim


class Config(LayerConfig):
    """Parameters of Mega."""

    attention_dropout: float = param(
        0.0, meaning="dropout of attention weights", ge=0, lt=1, search=Range(0.0, 0.3)
    )


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.mega.mixer:Mega",
    summary="Mega: gated attention on a damped moving average, whole or in chunks",
    paper="Ma et al. 2023, Mega: Moving Average Equipped Gated Attention",
    facts=Facts(
        causal="optional", padding_invariant=True, max_length="site", complexity="L^2", leak=1e-12
    ),
    variants={
        "laplace": {"attention": "laplace"},
        "chunk": {"chunk_size": 16},
        "laplace-chunk": {
            "attention": "laplace",
            "chunk_size": 16,
            "truncation": 4,
            "norm": "scale",
        },
        "rotary": {"bias": "rotary"},
    },
)
