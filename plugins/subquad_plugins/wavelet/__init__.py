"""Wavelet mixing: every scale of the sequence with a weight of its own. Light half.

`naive.py` has the mathematics, docs/mixers/wavelet.md the choices.
Reference: Kiruluta et al., Beyond Self-Attention: A Subquadratic Fourier-Wavelet Transformer with Multi-Modal Fusion,
arXiv 2111.15473v2 (MDFWA), Sec. 3.3: its wavelet branch alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import field_validator, model_validator

from subquad.plugin import Facts, MixerConfig, MixerPlugin, Site, param
from subquad_plugins.wavelet.filters import filter_bank, reach

Mode = Literal[
    "zero",
    "constant",
    "symmetric",
    "reflect",
    "periodic",
    "smooth",
    "antisymmetric",
    "antireflect",
    "periodization",
]
WAVELETS = ("auto", "haar", "db2", "db4", "db8", "sym4", "coif1", "bior2.2")
MAX_REACH = 1 << 16
"""How far the one-sided transform may look back, in tokens: so many are kept for decoding, for each sample."""


class WaveletConfig(MixerConfig):
    """The parameters of a wavelet branch."""

    wavelet: str = param(
        "auto",
        meaning="discrete wavelet by PyWavelets' name, orthogonal or biorthogonal; auto: db4, or haar with atrous",
        search=WAVELETS,
    )
    level: int = param(
        4, meaning="number of scales, the same at every length", symbol="J", ge=1, le=12, search=range(1, 7)
    )
    mode: Mode = param(
        "periodization",
        meaning="how the sequence goes on beyond its ends; no effect where causal",
        search=("periodization", "symmetric", "zero"),
    )
    scale_weights: Literal["adaptive", "fixed"] = param(
        "adaptive",
        meaning="weights of the scales: the softmax of learned numbers, or 1 / J",
        symbol="alpha",
        search=("adaptive", "fixed"),
    )

    @field_validator("wavelet")
    @classmethod
    def _known(cls, name: str) -> str:
        if name != "auto":
            filter_bank(name)
        return name

    def narrow(self, facts: Facts) -> Facts:
        # A causal mixer has zeros before the start and nothing to say about the other end.
        return facts if self.mode == "periodization" else replace(facts, causal="never")

    def check(self, site: Site) -> None:
        if site.causal and self.mode != "periodization":
            raise ValueError("mode has no effect where the mixer is causal: leave it at periodization")

    def filter_name(self, atrous: bool) -> str:
        """The wavelet's name, `auto` decided."""
        if self.wavelet != "auto":
            return self.wavelet
        return "haar" if atrous else "db4"

    def refuse_long_reach(self) -> None:
        """Raise ValueError where the one-sided transform would look back, and remember, further than is sensible."""
        name = self.filter_name(True)
        span = reach(filter_bank(name), self.level)
        if span > MAX_REACH:
            raise ValueError(
                f"wavelet {name} with level {self.level} looks back {span} tokens where one-sided, more than "
                f"{MAX_REACH}: use a lower level or a shorter wavelet"
            )


class Config(WaveletConfig):
    """Parameters of the wavelet mixer."""

    include_approx: bool = param(
        True,
        meaning="weigh the approximation (slowest scale, with the mean) too; false: it is dropped, as in the paper",
        search=(True, False),
    )
    transform: Literal["dwt", "atrous"] = param(
        "dwt",
        meaning="dwt: coefficients weighted, then transformed back; atrous: undecimated and one-sided, always where "
        "causal",
        search=("dwt", "atrous"),
    )

    @model_validator(mode="after")
    def _every_setting_counts(self) -> Config:
        if self.transform == "atrous":
            self.refuse_idle(("mode",), "transform atrous")
        refuse_no_mixing(self.scale_weights, self.include_approx)
        return self

    def check(self, site: Site) -> None:
        super().check(site)
        if site.causal or self.transform == "atrous":
            self.refuse_long_reach()


def refuse_no_mixing(scale_weights: str, include_approx: bool) -> None:
    """Raise ValueError where every scale has the same weight for good, so that the branch returns its input."""
    if scale_weights == "fixed" and include_approx:
        raise ValueError(
            "scale_weights fixed with include_approx true weighs all bands alike, which gives back the input: "
            "set include_approx to false, or scale_weights to adaptive"
        )


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.wavelet.mixer:Wavelet",
    summary="wavelet mixing: each scale of the sequence with a learned weight",
    paper="Kiruluta et al., Beyond Self-Attention: A Subquadratic Fourier-Wavelet Transformer with Multi-Modal Fusion, "
    "arXiv 2111.15473v2",
    facts=Facts(causal="optional", padding_invariant=True, complexity="L"),
    variants={
        "haar-symmetric": {"wavelet": "haar", "mode": "symmetric"},
        "biorthogonal": {"wavelet": "bior2.2", "level": 2},
        "atrous": {"transform": "atrous", "wavelet": "db4", "level": 3},
        "details": {"include_approx": False, "scale_weights": "fixed"},
    },
)
