"""MegaCUR: Mega with CUR attention, for weights trained in either.

Light half: parameters and descriptor. docs/mixers/megacur.md has the choices.
Reference: François, Saillot, Klein, Bissyandé, Skupin 2025, Drop-in efficient self-attention approximation method,
Machine Learning 114:139, doi 10.1007/s10994-025-06768-3 (MegaCUR); Ma et al. 2023, Mega: Moving Average Equipped
Gated Attention.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any, Literal

from pydantic import model_validator

from subquad.plugin import Facts, MixerPlugin, Site
from subquad_plugins.cur import SCORED, SPACED
from subquad_plugins.cur import Config as CURConfig
from subquad_plugins.mega import LayerConfig


def _as_in_cur(name: str) -> Any:
    """The field of that name as CUR attention declares it: meaning, limits and what a search may try."""
    return copy(CURConfig.model_fields[name])


class Config(LayerConfig):
    """Parameters of MegaCUR: those of Mega's layer, and those of CUR attention under the same names."""

    num_indices: int = _as_in_cur("num_indices")
    selection: Literal["sum", "abs", "embed", "step", "step_full", "linspace", "random"] = _as_in_cur("selection")
    mode: Literal["same", "different"] = _as_in_cur("mode")
    same_source: Literal["q", "k", "q+k"] = _as_in_cur("same_source")
    column: int = _as_in_cur("column")
    force_class: Literal["auto", "always", "never"] = _as_in_cur("force_class")
    pinv: Literal["iterative", "exact", "ridge"] = _as_in_cur("pinv")
    iterations: int = _as_in_cur("iterations")
    start_gradient: bool = _as_in_cur("start_gradient")
    ridge: float = _as_in_cur("ridge")
    copy_rows: bool = _as_in_cur("copy_rows")
    renormalise: bool = _as_in_cur("renormalise")

    @model_validator(mode="after")
    def _every_cur_setting_counts(self) -> Config:
        if self.selection in SPACED:
            self._refuse(("force_class",), f"selection {self.selection}, which always has the first token")
        if self.selection not in SCORED:
            self._refuse(("same_source",), f"selection {self.selection}, which asks no scores")
        if self.mode == "different":
            self._refuse(("same_source",), "mode different")
        if self.selection != "embed":
            self._refuse(("column",), f"selection {self.selection}")
        if self.pinv != "iterative":
            self._refuse(("iterations", "start_gradient"), f"pinv {self.pinv}")
        if self.pinv != "ridge":
            self._refuse(("ridge",), f"pinv {self.pinv}")
        if self.attention == "laplace":
            self._refuse(("renormalise",), "attention laplace, whose rows have no fixed sum")
        if self.chunk_size and self.num_indices > self.chunk_size:
            raise ValueError(
                f"num_indices {self.num_indices} is more than a chunk has: use {self.chunk_size} or less, "
                "or a larger chunk_size"
            )
        return self

    def check(self, site: Site) -> None:
        super().check(site)
        if site.max_len and self.num_indices > site.max_len:
            raise ValueError(
                f"num_indices {self.num_indices} is more than the longest sequence has: use {site.max_len} or less"
            )
        width, _ = self.widths(site.dim)
        if self.column >= width:
            raise ValueError(f"column {self.column} is outside queries of width {width}: use 0 to {width - 1}")

    def narrow(self, facts: Facts) -> Facts:
        return replace(super().narrow(facts), complexity="L log L")


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.megacur.mixer:MegaCUR",
    summary="Mega with CUR attention through selected tokens",
    paper="François et al. 2025, Drop-in efficient self-attention approximation method, doi 10.1007/s10994-025-06768-3",
    facts=Facts(causal="never", padding_invariant=True, max_length="site", complexity="L log L", leak=1e-12),
    variants={
        "laplace": {"attention": "laplace", "num_indices": 16},
        "chunk": {"chunk_size": 16, "num_indices": 4},
        "rotary": {"bias": "rotary", "num_indices": 8, "selection": "linspace", "renormalise": True},
        "different": {"mode": "different", "num_indices": 8, "pinv": "ridge", "copy_rows": True},
        "random": {"selection": "random", "num_indices": 8, "pinv": "exact"},
    },
)
