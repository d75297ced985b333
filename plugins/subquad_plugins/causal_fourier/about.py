"""What tests and pages know of causal_fourier."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import subquad_plugins.causal_fourier.naive as causal_fourier
from subquad_plugins.about import BOUND, L_LOG_L, UNKNOWN, About, Oracle, Refused, Result, causal
from subquad_plugins.causal_fourier import PLUGIN
from subquad_plugins.fourier.about import interpolated


def _defined(mixer: Any, config: Any, x: Tensor, keep: Tensor | None) -> Result:
    value = x if mixer.value is None else mixer.value(x)
    keep = torch.ones(x.shape[:2], dtype=torch.bool) if keep is None else keep
    mixed = torch.zeros_like(x)
    for sample, real in enumerate(keep):
        delta = None if mixer.offset is None else mixer.delta()[: int(real.sum())]
        tokens = value[sample : sample + 1, real]
        rows = causal_fourier.causal_fourier(tokens, mixer.turn, config.norm, delta)
        mixed[sample, real] = rows[0]
    return (mixed if mixer.out is None else mixer.out(mixed)), {}


TERMS = {"frequencies": "learned", "evaluation": "chirp", "terms": 12}
CHIRPED = {**TERMS, "projections": "both", "terms": 8}

ABOUT = About(
    ways={
        **causal(
            "default",
            "paper",
            "chirp",
            "learned",
            "learned-chirp",
            causal="always",
            **BOUND,
            **L_LOG_L,
        ),
        **causal("dense", causal="always", **BOUND, complexity="L^2"),
    },
    further=[
        {"projections": "both", "frequencies": "learned", "evaluation": "chirp"},
        {"evaluation": "chirp"},
    ],
    oracles={
        "": Oracle(
            _defined,
            causal=[params for params in ({}, *PLUGIN.variants.values()) if params != TERMS],
        ),
        "12 terms": Oracle(_defined, causal=[TERMS], tolerance=interpolated(12), of_gradients=1e-9),
        "8 terms": Oracle(_defined, causal=[CHIRPED], tolerance=interpolated(8), of_gradients=1e-4),
    },
    needs_length=True,
    refused_places=[
        Refused(
            "terms 10 has no effect with evaluation auto up to 2048 positions: leave it at",
            {"terms": 10, "frequencies": "learned"},
            {"max_len": 2048},
        ),
        Refused(
            "period is 8, and the longest sequence has 16 positions: set period to 0 or to 16",
            {"period": 8},
            {"max_len": 16},
        ),
    ],
    refused_builds=[
        Refused(f"set period, as {UNKNOWN}"),
    ],
    accepted=[
        ({"terms": 10, "frequencies": "learned"}, {}),
        ({"terms": 10, "frequencies": "learned"}, {"max_len": 2049}),
        ({"frequencies": "learned"}, {"max_len": 2048}),
        ({"terms": 10, "frequencies": "learned", "evaluation": "chirp"}, {"max_len": 16}),
        ({"period": 16}, {"max_len": 16}),
        ({"period": 8}, {}),
    ],
    multiplies=False,
)
