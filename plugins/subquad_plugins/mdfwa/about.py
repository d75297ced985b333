"""What tests and pages know of mdfwa."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import subquad_plugins.mdfwa.naive as mdfwa
from subquad_plugins.about import (
    BOUND,
    CAUSAL,
    L_LOG_L,
    LENGTHS,
    PADDED,
    UNKNOWN,
    About,
    Kernel,
    Moved,
    Oracle,
    Refused,
    Result,
    both,
    drawn,
    unordered,
    zeros,
)
from subquad_plugins.mdfwa.fusion import _FUSION

ONE_BAND = "level 1 with include_approx false leaves one band, and nothing to learn"
FAR = {"wavelet": "db38", "level": 12}


def _defined(mixer: Any, config: Any, x: Tensor, keep: Tensor | None) -> Result:
    causal = mixer.causal
    norm = ("causal_rms" if causal else "ortho") if config.norm == "auto" else config.norm
    given: dict[str, Any] = {
        "b": mixer.bias,
        "form": config.form,
        "mode": config.mode,
        "keep": keep,
    }
    given |= {"norm": norm, "period": (config.period or 32) if causal else None}
    if mixer.fourier is not None:
        given["F_F"] = mixer.from_fourier.weight.T
        if config.frequencies == "learned" and causal:
            given["delta"] = mixer.fourier.delta()
        elif config.frequencies == "learned":
            given["omega"] = mixer.fourier.omega(x.shape[1])
    if mixer.bands is not None:
        given |= {"F_W": mixer.from_wavelet.weight.T, "P": mixer.project.weight}
        given |= {"alpha": mixer.bands.weights(x), "wavelet": mixer.bands.bank.name}
        given["include_approx"] = config.include_approx
    if config.norm_output:
        given |= {"gain": mixer.norm.weight, "bias": mixer.norm.bias}
    if mixer.gate is not None:
        given |= {"W_G": mixer.gate.weight.T, "b_G": mixer.gate.bias}
    return mdfwa.mdfwa(x, **given), {}


def _start(dtype: Any, shape: Any, gated=False):
    from subquad_plugins.mdfwa.kernel import Fusion

    gate = zeros(dtype, *shape) if gated else None
    branches = zeros(dtype, *shape), zeros(dtype, *shape)
    return Fusion.apply(*branches, gate, zeros(torch.float32, shape[2]))


EXACT = {"frequencies": "learned", "terms": 22}
"""Enough interpolation terms that learned frequencies are exact."""
BRANCHES = {"spectral": drawn(2, 64, 64), "banded": drawn(2, 64, 64)}

ABOUT = About(
    ways={
        **both("default", "learned", "gated", "paper", "fourier", cross=True, **BOUND, **L_LOG_L),
        **unordered("hartley", **PADDED, **L_LOG_L),
        **both("wavelet", **PADDED),
    },
    operations={"default", "learned", "gated", "paper", "fourier", "hartley", "wavelet"},
    follows=[
        ({}, {"causal": "optional", **BOUND, **L_LOG_L}),
        ({"form": "hartley"}, {"causal": "never", **PADDED, "max_length": None, **L_LOG_L}),
        ({"form": "hartley", "frequencies": "learned"}, {"causal": "never", **BOUND, **L_LOG_L}),
        ({"period": 70}, {"causal": "always", **PADDED, "max_length": 70, **L_LOG_L}),
        (
            {"branches": "wavelet"},
            {"causal": "optional", **PADDED, "max_length": None, "complexity": "L", "leak": 0.0},
        ),
        (
            {"wavelet": "db38", "level": 12},
            {"causal": "never", **PADDED, "max_length": None, **L_LOG_L},
        ),
        (
            {"scale_weights": "fixed", "include_approx": True},
            {"causal": "always", **BOUND, **L_LOG_L},
        ),
    ],
    further=[
        {"wavelet": "db4", "level": 3, "include_approx": True, "norm": "paper"},
        {"frequencies": "learned", "terms": 22, "norm": "ortho"},
        {"period": 80, "norm": "causal_rms", "gate": "sigmoid"},
        {"scale_weights": "fixed", "norm_output": False},
        {"branches": "fourier", "norm": "ortho"},
        {"scale_weights": "fixed", "include_approx": True},
        {"form": "re_2d", "wavelet": "bior2.2", "mode": "symmetric", "level": 2},
    ],
    oracles={
        "": Oracle(
            _defined,
            [
                {},
                {"form": "hartley", "include_approx": True},
                {"form": "re_2d", "wavelet": "bior2.2", "mode": "symmetric", "level": 2},
                {**EXACT, "norm": "paper"},
                {**EXACT, "form": "hartley", "gate": "sigmoid"},
                {"gate": "sigmoid", "wavelet": "haar", "level": 3},
                {"norm": "paper", "scale_weights": "fixed"},
                {"branches": "fourier"},
                {"branches": "wavelet", "norm_output": False},
            ],
            [
                {},
                {"wavelet": "db4", "level": 3, "include_approx": True, "norm": "paper"},
                {**EXACT, "norm": "ortho"},
                {"period": 50, "norm": "causal_rms", "gate": "sigmoid"},
                {"scale_weights": "fixed", "norm_output": False},
                {"branches": "fourier", "norm": "ortho"},
                {"branches": "wavelet"},
                {"scale_weights": "fixed", "include_approx": True},
            ],
            tolerance=1e-10,
            of_gradients=1e-10,
        ),
    },
    needs_length=True,
    refused_settings=[
        Refused("there is no discrete wavelet 'gaus1'", {"wavelet": "gaus1"}),
        Refused(ONE_BAND, {"level": 1}),
        Refused("mode smooth with level 5 is not accurate in fp32", {"mode": "smooth", "level": 5}),
        Refused(
            "mode works only where the mixer is not causal, and period only where it is",
            {"mode": "zero", "period": 9},
        ),
        Refused(
            "form works only where the mixer is not causal, and norm causal_rms",
            {"form": "hartley", "norm": "causal_rms"},
        ),
    ],
    refused_places=[
        Refused(
            "form works only where the mixer is not causal: leave it at its default",
            {"form": "hartley"},
            CAUSAL,
        ),
        Refused(
            "mode works only where the mixer is not causal: leave it at its default",
            {"mode": "zero"},
            CAUSAL,
        ),
        Refused(
            "period works only where the mixer is causal: leave it at its default", {"period": 9}
        ),
        Refused("norm causal_rms works only where the mixer is causal", {"norm": "causal_rms"}),
        Refused(
            "period is 9, and the longest sequence has 12 positions: set period to 0 or to 12",
            {"period": 9},
            {**CAUSAL, "max_len": 12},
        ),
        Refused(
            "scale_weights fixed with include_approx true weighs all bands alike",
            {"scale_weights": "fixed", "include_approx": True},
        ),
        Refused("wavelet db38 with level 12 looks back 307125 tokens where one-sided", FAR, CAUSAL),
    ],
    refused_builds=[
        Refused(f"mdfwa: set period, as {UNKNOWN}", {}, CAUSAL),
        Refused(
            "mdfwa: the number of learned frequencies needs the length of the longest",
            {"frequencies": "learned"},
        ),
        Refused(
            "^mdfwa: role cross needs the lengths of both longest sequences",
            {},
            {"role": "cross", "max_len": 8},
        ),
    ],
    multiplies=False,
    casts=True,
    kernels=[
        Kernel(
            operation=_FUSION,
            given={
                "spectral": drawn(2, 5, 4),
                "banded": drawn(2, 5, 4),
                "gate": drawn(2, 5, 4),
                "bias": drawn(4),
            },
            beyond=[
                {"banded": drawn(1, 5, 4), "gate": None},
                {"bias": drawn(1)},
                {"bias": drawn(4, dtype=torch.float64)},
                dict.fromkeys(("spectral", "banded", "gate"), drawn(0, 5, 4)),
            ],
            refused=[
                ({"banded": drawn(2, 4, 4)}, "size"),
                ({"gate": drawn(2, 5, 4, dtype=torch.bfloat16)}, "dtype"),
                ({"bias": drawn(3)}, "size"),
            ],
            start=_start,
            compiled={"fusion": ({}, 2), "fusion, gated": ({"gated": True}, 2)},
            moved={
                "fusion": Moved(
                    given={**BRANCHES, "gate": None, "bias": drawn(64)},
                    forward=(2, 1),
                    backward=(3, 1),
                ),
                "fusion, gated": Moved(
                    given={**BRANCHES, "gate": drawn(2, 64, 64), "bias": drawn(64)},
                    forward=(3, 1),
                    backward=(4, 3),
                ),
            },
        ),
    ],
    compared=LENGTHS,
    first={"mdfwa.fusion": "triton"},
)
