"""MDFWA: a Fourier and a wavelet branch side by side, causal or not. Light half: parameters and
descriptor.

`naive.py` has the mathematics, docs/reference/mixers/mdfwa.md the choices.
Reference: Kiruluta et al., Beyond Self-Attention: A Subquadratic Fourier-Wavelet Transformer with
Multi-Modal Fusion, arXiv 2111.15473v2.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from subquad.plugin import Facts, MixerPlugin, Site, inherited, param
from subquad_plugins.fourier import ROUNDING
from subquad_plugins.wavelet import Mode, WaveletConfig

FOURIER = {"branches": ("both", "fourier")}
WAVELET = {"branches": ("both", "wavelet")}


class Config(WaveletConfig):
    """Parameters of MDFWA. The wavelet branch: `wavelet`, `level`, `mode`, `scale_weights`,
    `include_approx`.
    """

    wavelet: str = inherited(WaveletConfig, "wavelet", when=WAVELET)
    mode: Mode = inherited(WaveletConfig, "mode", when=WAVELET)
    scale_weights: Literal["adaptive", "fixed"] = inherited(
        WaveletConfig, "scale_weights", when=WAVELET
    )
    # From 2 on: level 1 without the approximation has nothing to weigh.
    level: int = param(
        4,
        meaning="number of scales, the same at every length",
        symbol="J",
        ge=1,
        le=12,
        search=range(2, 7),
        when=WAVELET,
    )
    include_approx: bool = param(
        False,
        meaning="weigh the approximation (slowest scale, with the mean) too; false: it is "
        "dropped, as in the paper",
        search=(False, True),
        when=WAVELET,
    )
    branches: Literal["both", "fourier", "wavelet"] = param(
        "both", meaning="both branches, or one alone"
    )
    form: Literal["re_seq", "re_2d", "hartley"] = param(
        "re_seq",
        meaning="Fourier branch where not causal. re_seq: real part over tokens; re_2d: "
        "over tokens and channels; "
        "hartley: real minus imaginary",
        search=("re_seq", "hartley"),
        when=FOURIER,
    )
    norm: Literal["auto", "paper", "ortho", "causal_rms"] = param(
        "auto",
        meaning="scale of the Fourier branch. paper: 1, causal 2/N; ortho: 1/sqrt(N), "
        "causal sqrt(2/N); causal_rms: "
        "row n by 1/sqrt((n+1)/2), causal only; auto: ortho, causal_rms where causal",
        search=("auto", "paper", "ortho"),
        when=FOURIER,
    )
    frequencies: Literal["fixed", "learned"] = param(
        "fixed",
        meaning="frequency of each output token: its place, or learned from there on",
        symbol="omega",
        search=("fixed", "learned"),
        when=FOURIER,
    )
    terms: int = param(
        8,
        meaning="interpolation terms of learned frequencies",
        symbol="P",
        ge=2,
        le=24,
        search=(6, 8, 10, 12),
        when={"frequencies": ("learned",)},
    )
    period: int = param(
        0,
        meaning="tokens to a full turn of the causal Fourier branch; 0: the longest sequence",
        symbol="N",
        unit="tokens",
        ge=0,
        when=FOURIER,
    )
    gate: Literal["none", "sigmoid"] = param(
        "none",
        meaning="none: the branches are added; sigmoid: a learned gate divides each channel "
        "between them. In a mixer of role cross: a learned gate lets each channel through",
        symbol="G",
        search=("none", "sigmoid"),
        when={"branches": ("both",)},
    )
    norm_output: bool = param(
        True, meaning="layer norm of the result, so that a residual path gives X + LN(Y)"
    )
    dropout: float = param(
        0.0, meaning="probability of dropping an element of Y in training", ge=0, lt=1
    )

    def check(self, site: Site) -> None:
        super().check(replace(site, causal=True) if site.role == "cross" else site)
        if self.period and site.max_len > self.period:
            raise ValueError(
                f"period is {self.period}, and the longest sequence has {site.max_len} positions: "
                f"set period to 0 or to {site.max_len} at least"
            )

    def narrow(self, facts: Facts) -> Facts:
        facts = super().narrow(facts)
        if self.branches == "wavelet" or self.period or self.encoder_only():
            facts = replace(facts, cross=False)
        if self.branches == "wavelet":
            return replace(facts, max_length=None, leak=0.0, complexity="L")
        if not self.is_bound:
            return replace(facts, max_length=None)
        if self.period:
            return replace(facts, max_length=self.period)
        return facts

    @property
    def is_bound(self) -> bool:
        """Whether longer sequences than it was built for are refused.

        Where it could be causal too they always are, though an encoder of fixed frequencies has no
        bound of its own: what is claimed does not depend on where the mixer stands.
        """
        return self.branches != "wavelet" and (
            self.frequencies == "learned" or not self.encoder_only()
        )

    def encoder_only(self) -> list[str]:
        return [*super().encoder_only(), *([] if self.form == "re_seq" else ["form"])]

    def decoder_only(self) -> list[str]:
        own = [
            *(["period"] if self.period else []),
            *(["norm causal_rms"] if self.norm == "causal_rms" else []),
        ]
        return [*super().decoder_only(), *own]


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.mdfwa.mixer:MDFWA",
    summary="MDFWA: Fourier and wavelet mixing side by side, with an exactly causal form "
    "that decodes with a cache",
    paper="Kiruluta et al., Beyond Self-Attention: A Subquadratic Fourier-Wavelet Transformer "
    "with Multi-Modal Fusion, arXiv 2111.15473v2",
    facts=Facts(
        causal="optional",
        padding_invariant=True,
        cross=True,
        max_length="site",
        complexity="L log L",
        leak=ROUNDING,
    ),
    variants={
        "hartley": {"form": "hartley", "include_approx": True},
        "learned": {"frequencies": "learned", "norm": "ortho"},
        "gated": {"gate": "sigmoid", "wavelet": "db2", "level": 3},
        "paper": {"norm": "paper", "scale_weights": "fixed"},
        "fourier": {"branches": "fourier"},
        "wavelet": {"branches": "wavelet", "norm_output": False},
    },
)
