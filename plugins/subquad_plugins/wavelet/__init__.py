"""Wavelet mixing: every scale of the sequence with a weight of its own. Light half.

`naive.py` has the mathematics, docs/reference/mixers/wavelet.md the choices.
Reference: Kiruluta et al., Beyond Self-Attention: A Subquadratic Fourier-Wavelet Transformer with
Multi-Modal Fusion, arXiv 2111.15473v2 (MDFWA), Sec. 3.3: its wavelet branch alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import field_validator, model_validator

from subquad.plugin import Facts, MixerConfig, MixerPlugin, Site, inherited, param
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
EXTRAPOLATING = ("smooth", "antireflect")
MAX_EXTRAPOLATED_LEVEL = 4
"""Modes that go on along a line beyond the ends. Their coefficients grow from level to level
where the sequence is short against the filter, and fp32 loses the sequence in them.
"""
MAX_REACH = 1 << 12
"""How far the one-sided transform may look back, in tokens: so many are kept for decoding, for
each sample.
"""


class WaveletConfig(MixerConfig):
    """The parameters of a wavelet branch."""

    wavelet: str = param(
        "auto",
        meaning="discrete wavelet by PyWavelets' name, orthogonal or biorthogonal; auto: "
        "db4, or haar with atrous",
        search=WAVELETS,
    )
    level: int = param(
        4,
        meaning="number of scales, the same at every length",
        symbol="J",
        ge=1,
        le=12,
        search=range(2, 7),
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
    )
    include_approx: bool = param(
        True,
        meaning="weigh the approximation (slowest scale, with the mean) too; false: it is "
        "dropped, as in the paper",
        search=(True, False),
    )

    @field_validator("wavelet")
    @classmethod
    def _known(cls, name: str) -> str:
        if name != "auto":
            filter_bank(name)
        return name

    @model_validator(mode="after")
    def _can_work_somewhere(self) -> WaveletConfig:
        if self.scale_weights == "adaptive" and self.bands == 1:
            raise ValueError(
                "level 1 with include_approx false leaves one band, and nothing to "
                "learn with scale_weights adaptive: "
                "use a higher level, include_approx true or scale_weights fixed"
            )
        if self.mode in EXTRAPOLATING and self.level > MAX_EXTRAPOLATED_LEVEL:
            raise ValueError(
                f"mode {self.mode} with level {self.level} is not accurate in fp32: use level "
                f"{MAX_EXTRAPOLATED_LEVEL} at most, or another mode"
            )
        if self.encoder_only() and self.decoder_only():
            raise ValueError(
                f"{self.encoder_only()[0]} works only where the mixer is not causal, and "
                f"{self.decoder_only()[0]} only where it is: leave one at its default"
            )
        return self

    @property
    def bands(self) -> int:
        """How many bands are weighed."""
        return self.level + self.include_approx

    def narrow(self, facts: Facts) -> Facts:
        if self.encoder_only():
            facts = replace(facts, causal="never")
        if self.decoder_only():
            return replace(facts, causal="always")
        return facts

    def check(self, site: Site) -> None:
        if site.causal:
            self.refuse_long_reach()
        elif self._alike() in self.decoder_only():
            raise ValueError(
                f"{self._alike()} weighs all bands alike, which gives back the "
                "input where the mixer is not causal: "
                "set include_approx to false, or scale_weights to adaptive"
            )
        if site.causal:
            wrong = self.encoder_only()
        else:
            wrong = self.decoder_only()
        if wrong:
            where = "not causal" if site.causal else "causal"
            raise ValueError(
                f"{wrong[0]} works only where the mixer is {where}: leave it at its default"
            )

    def encoder_only(self) -> list[str]:
        """What works only where the mixer is not causal."""
        # A causal mixer has zeros before the start and nothing to say about the other end.
        if self.mode == "periodization":
            mode = []
        else:
            mode = ["mode"]
        if self._span() <= MAX_REACH:
            return mode
        return [*mode, f"wavelet {self.wavelet} with level {self.level}"]

    def decoder_only(self) -> list[str]:
        """What works only where the mixer is causal: bands weighed alike add up to the input if
        they are decimated.
        """
        if self.scale_weights == "fixed" and self.include_approx:
            return [self._alike()]
        return []

    def _alike(self) -> str:
        return "scale_weights fixed with include_approx true"

    def filter_name(self, atrous: bool) -> str:
        """The wavelet's name, `auto` decided."""
        if self.wavelet != "auto":
            return self.wavelet
        return "haar" if atrous else "db4"

    def refuse_long_reach(self) -> None:
        """Raise ValueError where the one-sided transform would look back, and remember, further
        than is sensible.
        """
        if self._span() > MAX_REACH:
            raise ValueError(
                f"wavelet {self.filter_name(True)} with level {self.level} "
                f"looks back {self._span()} tokens where one-sided, more "
                f"than {MAX_REACH}: use a lower level or a shorter wavelet"
            )

    def _span(self) -> int:
        """How far the one-sided transform looks back, in tokens."""
        if self.wavelet == "auto":  # haar, of which the facts are told without PyWavelets
            return 2**self.level - 1
        return reach(filter_bank(self.filter_name(True)), self.level)


class Config(WaveletConfig):
    """Parameters of the wavelet mixer."""

    mode: Mode = inherited(WaveletConfig, "mode", when={"transform": ("dwt",)})
    transform: Literal["dwt", "atrous"] = param(
        "dwt",
        meaning="dwt: coefficients weighted, then transformed back; "
        "atrous: undecimated and one-sided, always where causal",
    )

    @model_validator(mode="after")
    def _looks_back_as_far_as_is_sensible(self) -> Config:
        if self.transform == "atrous":
            self.refuse_long_reach()
        return self

    def decoder_only(self) -> list[str]:
        if self.transform == "atrous":
            return []
        return super().decoder_only()


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.wavelet.mixer:Wavelet",
    summary="wavelet mixing: each scale of the sequence with a learned weight",
    paper="Kiruluta et al., Beyond Self-Attention: A Subquadratic Fourier-Wavelet Transformer "
    "with Multi-Modal Fusion, arXiv 2111.15473v2",
    facts=Facts(causal="optional", padding_invariant=True, complexity="L"),
    variants={
        "haar-symmetric": {"wavelet": "haar", "mode": "symmetric"},
        "biorthogonal": {"wavelet": "bior2.2", "level": 2},
        "atrous": {"transform": "atrous", "wavelet": "db4", "level": 3},
        "details": {"include_approx": False, "scale_weights": "fixed"},
    },
)
