"""Causal Fourier mixing: each token reads a running Fourier sum at the frequency of its position.

Light half: parameters and descriptor.
`naive.py` has the mathematics, docs/reference/mixers/causal_fourier.md the choices.
Reference: Kiruluta et al., Beyond Self-Attention: A Subquadratic Fourier-Wavelet Transformer with
Multi-Modal Fusion, arXiv 2111.15473v2 (MDFWA), Sec. 3.2.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from subquad.plugin import Facts, MixerConfig, MixerPlugin, Not, Site, param

ROUNDING = 1e-12
"""What the chirp's FFTs let through from later positions, relative to the largest output, in
float64.
"""

CROSSOVER = 768
"""Up to this length `auto` takes the T x T matrix, which is quicker there and exactly causal."""

LEARNED_CROSSOVER = 2048
"""The same for learned frequencies, where the chirp form takes an FFT pair for each term."""


class Config(MixerConfig):
    """Parameters of causal Fourier mixing."""

    period: int = param(
        0, meaning="tokens to a full turn; 0: the longest sequence", symbol="N", unit="tokens", ge=0
    )
    norm: Literal["paper", "ortho", "causal_rms"] = param(
        "causal_rms",
        meaning="row n times 2/N (paper), sqrt(2/N) (ortho) or 1/sqrt((n+1)/2) "
        "(causal_rms: even size everywhere)",
        search=("paper", "ortho", "causal_rms"),
    )
    frequencies: Literal["fixed", "learned"] = param(
        "fixed",
        meaning="frequency of each position n: n, or learned within n - 1/2 .. n + 1/2",
        search=("fixed", "learned"),
    )
    terms: int = param(
        8,
        meaning="interpolation terms of learned frequencies in the chirp form, two FFTs each",
        symbol="P",
        ge=2,
        le=24,
        when={"frequencies": ("learned",), "evaluation": Not("dense")},
    )
    evaluation: Literal["auto", "dense", "chirp"] = param(
        "auto",
        meaning="dense: the L x L matrix, exactly causal; chirp: FFTs; auto: dense up to "
        "768 tokens (learned: 2048)",
    )
    projections: Literal["none", "out", "both"] = param(
        "none",
        meaning="learned maps of each token: none, one after "
        "the mixing, or one before and one after",
        search=("none", "out", "both"),
    )

    def check(self, site: Site) -> None:
        if self.period and site.max_len > self.period:
            raise ValueError(
                f"period is {self.period}, and the longest sequence has {site.max_len} positions: "
                f"set period to 0 or to {site.max_len} at least"
            )
        is_dense = self.evaluation == "auto" and 0 < site.max_len <= LEARNED_CROSSOVER
        if is_dense and not self.is_default("terms"):
            raise ValueError(
                self.no_effect("terms", f"evaluation auto up to {LEARNED_CROSSOVER} positions")
            )

    def narrow(self, facts: Facts) -> Facts:
        if self.period:
            facts = replace(facts, max_length=self.period)
        if self.evaluation == "dense":
            return replace(facts, leak=0.0, complexity="L^2")
        return facts


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.causal_fourier.mixer:CausalFourier",
    summary="causal Fourier mixing, the decoder's half of "
    "MDFWA, exact in L log L; decodes with a cache",
    paper="Kiruluta et al., Beyond Self-Attention, arXiv 2111.15473v2 (MDFWA)",
    facts=Facts(
        causal="always",
        padding_invariant=True,
        max_length="site",
        complexity="L log L",
        leak=ROUNDING,
    ),
    variants={
        "paper": {"norm": "paper"},
        "chirp": {"evaluation": "chirp", "projections": "out"},
        "dense": {"evaluation": "dense", "projections": "both"},
        "learned": {"frequencies": "learned", "norm": "ortho"},
        "learned-chirp": {"frequencies": "learned", "evaluation": "chirp", "terms": 12},
    },
)
