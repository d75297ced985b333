"""MegaCUR: Mega with CUR attention, for weights trained in either.

Light half: parameters and descriptor. docs/reference/mixers/megacur.md has the choices.
Reference: François, Saillot, Klein, Bissyandé, Skupin 2025, Drop-in efficient self-attention
approximation method, Machine Learning 114:139, doi 10.1007/s10994-025-06768-3 (MegaCUR); Ma et al.
2023, Mega: Moving Average Equipped Gated Attention.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import model_validator

from subquad.plugin import Facts, MixerPlugin, Not, Site, inherited
from subquad_plugins.cur import SPACED, CURSettings, renormalise_under
from subquad_plugins.mega import LayerConfig


class Config(LayerConfig, CURSettings):
    """Parameters of MegaCUR: those of Mega's layer, and those of CUR attention."""

    mode: Literal["same", "different"] = inherited(
        CURSettings, "mode", when={"selection": Not(*SPACED)}
    )
    renormalise: bool = renormalise_under("attention")

    @model_validator(mode="after")
    def _cur_fits_the_layer(self) -> Config:
        if self.chunk_size and self.num_indices > self.chunk_size:
            raise ValueError(
                f"num_indices {self.num_indices} is more than a chunk has: "
                f"use {self.chunk_size} or less, or a larger chunk_size"
            )
        return self

    def longest(self, site: Site) -> int:
        limits = (self.chunk_size, site.max_len)
        return min(filter(None, limits), default=0)

    def check(self, site: Site) -> None:
        super().check(site)
        width, _ = self.widths(site.dim)
        if self.column >= width:
            raise ValueError(
                f"column {self.column} is outside queries of width {width}: use 0 to {width - 1}"
            )

    def narrow(self, facts: Facts) -> Facts:
        return replace(super().narrow(facts), complexity="L log L")


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.megacur.mixer:MegaCUR",
    summary="Mega with CUR attention through selected tokens",
    paper="François et al. 2025, Drop-in efficient self-attention approximation method, "
    "doi 10.1007/s10994-025-06768-3",
    facts=Facts(
        causal="never", padding_invariant=True, max_length="site", complexity="L log L", leak=1e-12
    ),
    variants={
        "laplace": {"attention": "laplace", "num_indices": 16},
        "chunk": {"chunk_size": 16, "num_indices": 4},
        "rotary": {
            "bias": "rotary",
            "num_indices": 8,
            "selection": "linspace",
            "renormalise": True,
        },
        "different": {"mode": "different", "num_indices": 8, "pinv": "ridge", "copy_rows": True},
        "random": {"selection": "random", "num_indices": 8, "pinv": "exact"},
    },
)
