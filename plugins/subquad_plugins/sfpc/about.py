"""What tests and pages know of sfpc."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import subquad_plugins.sfpc.naive as sfpc
from subquad_plugins.about import (
    L_LOG_L,
    LENGTHS,
    LOSSES,
    PADDED,
    PADDING,
    About,
    Kernel,
    Moved,
    Oracle,
    Refused,
    Result,
    causal,
    drawn,
    mask,
    unordered,
    zeros,
)
from subquad_plugins.sfpc import MOST_TAPS, PLUGIN
from subquad_plugins.sfpc.fir import _FIR

CIRCULANT = {"operator": "circulant"}
MONOMIAL = {"basis": "monomial"}
SHORT = {"max_len": 8}


def _defined(mixer: Any, config: Any, x: Tensor, keep: Tensor | None) -> Result:
    return sfpc.mixer(x, dict(mixer.named_parameters()), config, keep), {}


def _start(dtype: Any, shape: Any, matrix="neumann", order=8):
    from subquad_plugins.sfpc.fir import _Fir

    keep = torch.ones(shape[:2], dtype=torch.bool)
    a = zeros(torch.float32, shape[2], order + 1)
    return _Fir.apply(zeros(dtype, *shape), a, matrix, keep, "triton", False)


def _moved(taps: int, met: int) -> Moved:
    """Tiles of 16 tokens, whose taps are met by the dozen; the sums' tokens in one run."""
    tile = (15 + met) / 16 + met / 16
    return Moved(
        given={
            "x": drawn(1, 512, 64),
            "a": drawn(64, taps),
            "matrix": "shift",
            "keep": None,
            "fft": False,
        },
        forward=(tile, 1),
        backward=(tile + 2 + (taps - 1) / 512, 1 + taps / 512),
        patched={"subquad_plugins.sfpc.kernel.MOST_PARTS": 1},
    )


ABOUT = About(
    ways={
        **unordered(
            "default", "dirichlet", "periodic", "jacobi, gated", "cyclic", "recurrence", **PADDED
        ),
        **unordered("transform", **PADDED, **L_LOG_L),
        **unordered("circulant", without=LOSSES | PADDING, max_length="site", **L_LOG_L),
        **unordered("decay", without=LOSSES | PADDING, **L_LOG_L),
        **causal("shift", causal="always", **PADDED),
        **causal("shift by FFT", causal="always", **PADDED, **L_LOG_L),
    },
    operations={
        "default",
        "dirichlet",
        "periodic",
        "jacobi, gated",
        "cyclic",
        "transform",
        "shift, causal",
    },
    follows=[
        ({}, {"causal": "never", **PADDED, "max_length": None, "complexity": "L", "leak": 0.0}),
        (
            {"order": 64},
            {"causal": "never", **PADDED, "max_length": None, "complexity": "L", "leak": 0.0},
        ),
        ({"order": 129}, {"causal": "never", **PADDED, "max_length": None, **L_LOG_L}),
        ({"evaluation": "fft"}, {"causal": "never", **PADDED, "max_length": None, **L_LOG_L}),
        (
            {"order": 1024, "evaluation": "reference"},
            {"causal": "never", **PADDED, "max_length": None, "complexity": "L", "leak": 0.0},
        ),
        (
            {"basis": "monomial", "order": 12},
            {"causal": "never", **PADDED, "max_length": None, "complexity": "L", "leak": 0.0},
        ),
        (
            {"operator": "shift", "order": 256},
            {"causal": "always", **PADDED, "max_length": None, "complexity": "L", "leak": 0.0},
        ),
        (
            {"operator": "shift", "order": 257},
            {"causal": "always", **PADDED, "max_length": None, **L_LOG_L},
        ),
        (
            {"operator": "cyclic"},
            {"causal": "never", **PADDED, "max_length": None, "complexity": "L", "leak": 0.0},
        ),
        (
            {"operator": "circulant"},
            {"causal": "never", "padding_invariant": False, "max_length": "site", **L_LOG_L},
        ),
        (
            {"operator": "circulant", "evaluation": "reference"},
            {"causal": "never", "padding_invariant": False, "max_length": "site", **L_LOG_L},
        ),
        (
            {"operator": "circulant", "first_column": "decay"},
            {"causal": "never", "padding_invariant": False, "max_length": None, **L_LOG_L},
        ),
        (
            {"operator": "circulant", "first_column": (1.0, 0.0)},
            {"causal": "never", "padding_invariant": False, "max_length": "site", **L_LOG_L},
        ),
    ],
    further=[
        {"operator": "shift", "order": 3},
        {"operator": "shift", "order": 12, "gate": "silu", "evaluation": "fft"},
        {"operator": "shift", "coefficients": "head", "order": 20},
    ],
    oracles={
        "": Oracle(
            _defined,
            [
                *(
                    params
                    for params in ({}, *PLUGIN.variants.values())
                    if params.get("operator") != "shift"
                ),
                {"projections": False, "coefficients": "shared"},
                {"order": 140},
                {"basis": "monomial_rescaled", "gate": "sigmoid"},
                {
                    "operator": "circulant",
                    "first_column": (0.5, 0.25, -0.25, 0.1, 0.0, 0.0, 0.3),
                    "order": 2,
                },
                {"operator": "circulant", "evaluation": "reference", "order": 3},
            ],
            [
                *(
                    params
                    for params in PLUGIN.variants.values()
                    if params.get("operator") == "shift"
                ),
                {"operator": "shift", "coefficients": "head", "order": 20},
            ],
            max_len=7,
            lengths=(1, 2, 7),
        ),
    },
    refused_settings=[
        Refused(
            "evaluation conv with operator circulant: its kernel is as long as the sequence; "
            "use auto, fft or reference",
            {**CIRCULANT, "evaluation": "conv"},
        ),
        Refused(
            r"order 13 with basis monomial: powers of T reach 4\^13, so that on smooth tokens fp32 "
            "loses every digit; use order 12 or less, or basis chebyshev",
            {**MONOMIAL, "order": 13},
        ),
        Refused(
            r"evaluation conv with basis monomial: the taps of T\^k add up to 0 from parts as "
            r"large as 4\^k, which fp32 loses; use auto or reference, or basis chebyshev",
            {**MONOMIAL, "evaluation": "conv"},
        ),
        Refused("evaluation fft with basis monomial", {**MONOMIAL, "evaluation": "fft"}),
        Refused("order 64 with basis monomial", {**MONOMIAL, "boundary": "periodic", "order": 64}),
        Refused(
            "order 65 with basis jacobi: use order 64 or less, or basis chebyshev of a laplacian, "
            "or a shift, which go to 1024",
            {"basis": "jacobi", "order": 65},
        ),
        Refused(
            "order 65 with basis monomial_rescaled", {"basis": "monomial_rescaled", "order": 65}
        ),
        Refused("order 65 with operator circulant", {**CIRCULANT, "order": 65}),
        Refused(
            "first_column has magnitudes that add up to 100001: give a sum above 0 and at most "
            r"5\.62e\+03, whose power 8 fp32 can hold",
            {**CIRCULANT, "first_column": (1e5, 1.0)},
        ),
        Refused("first_column has magnitudes that add up to 0", {**CIRCULANT, "first_column": ()}),
    ],
    refused_places=[
        Refused(
            "first_column has 3 values and the longest sequence 8 tokens: give 8 values",
            {**CIRCULANT, "first_column": (0.5, 0.25, 0.25)},
            SHORT,
        ),
    ],
    refused_builds=[
        Refused("a learned first_column needs the longest sequence's length", CIRCULANT),
    ],
    accepted=[
        ({**CIRCULANT, "first_column": (0.5, 0.25, 0.25)}, {"max_len": 3}),
        ({**CIRCULANT, "first_column": (0.5, 0.25, 0.25)}, {}),
    ],
    multiplies=False,
    kernels=[
        Kernel(
            operation=_FIR,
            given={
                "x": drawn(2, 5, 4),
                "a": drawn(4, 3),
                "matrix": "neumann",
                "keep": None,
                "fft": False,
            },
            masked={"keep": mask(2, 5)},
            beyond=[
                {"a": drawn(4, MOST_TAPS // 2 + 2)},
                {"fft": True},
                {"x": drawn(0, 5, 4)},
            ],
            instead="closed-form",
            refused=[
                ({"keep": mask(1, 5)}, r"keep has the shape \(1, 5\), must be \(2, 5\)"),
                ({"keep": mask(2, 4)}, "keep has the shape"),
                ({"keep": mask(2, 4), "matrix": "shift"}, "size"),
                ({"keep": mask(2, 5, dtype=torch.int64)}, "bool"),
                ({"a": drawn(3, 3)}, "3 channels"),
                ({"a": drawn(4, 3, dtype=torch.float64)}, "type"),
            ],
            start=_start,
            compiled={
                "sfpc": ({}, 4),
                "sfpc of 257 taps": ({"matrix": "shift", "order": 256}, 4),
                "sfpc, other sign": ({"matrix": "dirichlet"}, 4),
            },
            moved={f"{taps} taps": _moved(taps, met) for taps, met in ((9, 9), (17, 18))},
        ),
    ],
    compared=LENGTHS,
    first={"sfpc.fir": "triton"},
)
