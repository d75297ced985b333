"""Fourier mixing of tokens: FNet's transform, that of MDFWA's encoder, and Hartley's, fixed or at
learned frequencies.

Light half: parameters and descriptor.
`naive.py` has the mathematics, docs/reference/mixers/fourier.md the choices and numbers.
Reference: Kiruluta et al., Beyond Self-Attention: A Subquadratic Fourier-Wavelet Transformer with
Multi-Modal Fusion, arXiv 2111.15473v2 (MDFWA), Eq. 2; Lee-Thorp et al. 2022, FNet: Mixing Tokens
with Fourier Transforms.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from subquad.plugin import Facts, MixerConfig, MixerPlugin, param

ROUNDING = 1e-12
"""What an FFT lets through from where nothing should come, relative to the largest output, in
float64.
"""


class Config(MixerConfig):
    """Parameters of Fourier mixing."""

    form: Literal["re_seq", "re_2d", "hartley"] = param(
        "re_seq",
        meaning="re_seq: real part over tokens; re_2d: over tokens and channels (FNet); "
        "hartley: real minus imaginary",
        search=("re_seq", "re_2d", "hartley"),
    )
    norm: Literal["paper", "ortho"] = param(
        "ortho",
        meaning="paper: the bare sum; ortho: over sqrt(N), for re_2d sqrt(N D)",
        search=("paper", "ortho"),
    )
    length: Literal["sample", "padded"] = param(
        "sample",
        meaning="sample: each sample's own number of real tokens; padded: zeros up to the "
        "batch's length take part",
        symbol="N",
        search=("sample", "padded"),
    )
    frequencies: Literal["fixed", "learned"] = param(
        "fixed",
        meaning="frequency of each output token: its place k, or learned from k on",
        search=("fixed", "learned"),
    )
    terms: int = param(
        8,
        meaning="interpolation terms of learned frequencies, an FFT each",
        symbol="P",
        ge=2,
        le=24,
        when={"frequencies": ("learned",)},
    )
    projections: Literal["none", "out", "both"] = param(
        "none",
        meaning="learned maps of each token: none, one after "
        "the mixing, or one before and one after",
        search=("none", "out", "both"),
    )

    def narrow(self, facts: Facts) -> Facts:
        if self.length == "sample":
            facts = replace(facts, padding_invariant=True, leak=ROUNDING)
        if self.frequencies == "learned":
            return replace(facts, max_length="site")
        return facts


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.fourier.mixer:Fourier",
    summary="Fourier mixing: FNet, the encoder's half of "
    "MDFWA, or Hartley; no parameters unless asked for",
    paper="Kiruluta et al., Beyond Self-Attention, arXiv "
    "2111.15473v2 (MDFWA); Lee-Thorp et al. 2022, FNet",
    facts=Facts(causal="never", padding_invariant=False, complexity="L log L"),
    variants={
        "fnet": {"form": "re_2d", "length": "padded", "norm": "paper"},
        "re_2d": {"form": "re_2d"},
        "hartley": {"form": "hartley", "projections": "both"},
        "learned": {"frequencies": "learned", "length": "padded", "projections": "out"},
        "learned-sample": {"frequencies": "learned", "form": "re_2d", "terms": 12},
    },
)
