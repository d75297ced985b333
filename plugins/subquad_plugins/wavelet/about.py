"""What tests and pages know of wavelet."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import subquad_plugins.wavelet.naive as wavelet
from subquad_plugins.about import (
    LENGTHS,
    PADDED,
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
from subquad_plugins.wavelet import PLUGIN
from subquad_plugins.wavelet.dwt import _MIX
from subquad_plugins.wavelet.filters import filter_bank

ONE_BAND = "level 1 with include_approx false leaves one band, and nothing to learn"


def _defined(mixer: Any, config: Any, x: Tensor, keep: Tensor | None) -> Result:
    bands = mixer.bands
    given: dict[str, Any] = {"mode": bands.mode, "atrous": bands.atrous}
    given |= {"wavelet": bands.bank.name, "include_approx": bands.include_approx, "keep": keep}
    return wavelet.wavelet_branch(x, bands.weights(x), mixer.project.weight, **given), {}


def _start(dtype: Any, shape: Any, name="db4", mode="periodization", bands=4, lengths=None):
    from subquad_plugins.wavelet.kernel import Mix

    weights = zeros(torch.float32, bands)
    return Mix.apply(zeros(dtype, *shape), weights, filter_bank(name), mode, bands < 3, lengths)


ABOUT = About(
    ways={
        **both("default", "biorthogonal", "atrous", "details", **PADDED),
        **unordered("haar-symmetric", **PADDED),
    },
    operations={"default", "haar-symmetric", "biorthogonal", "details"},
    further=[
        {"wavelet": "db4", "level": 3, "include_approx": False},
        {"scale_weights": "fixed", "wavelet": "db2", "transform": "atrous"},
        {"mode": "antireflect", "wavelet": "db2", "level": 2},
    ],
    oracles={
        "": Oracle(
            _defined,
            [
                {},
                *PLUGIN.variants.values(),
                {"mode": "antireflect", "wavelet": "db2", "level": 2},
                {"mode": "zero", "include_approx": False},
            ],
            [
                {},
                {"wavelet": "db4", "level": 3, "include_approx": False},
                {"wavelet": "sym4", "level": 2, "include_approx": False, "scale_weights": "fixed"},
                {"scale_weights": "fixed", "wavelet": "db2"},
            ],
            tolerance=1e-11,
        ),
    },
    refused_settings=[
        Refused(
            r"there is no discrete wavelet 'db40'; did you mean 'db4'\?; there is haar",
            {"wavelet": "db40"},
        ),
        Refused("there is no discrete wavelet 'mexh'", {"wavelet": "mexh"}),
        Refused(
            "mode works only where the mixer is not causal, and scale_weights fixed with "
            "include_approx true only where",
            {"scale_weights": "fixed", "mode": "zero"},
        ),
        Refused(ONE_BAND, {"level": 1, "include_approx": False}),
        Refused(
            "wavelet db38 with level 6 looks back 4725 tokens where",
            {"transform": "atrous", "wavelet": "db38", "level": 6},
        ),
        Refused(
            "mode smooth with level 5 is not accurate in fp32: use level 4 at most",
            {"mode": "smooth", "level": 5},
        ),
        Refused(
            "mode antireflect with level 12 is not accurate in fp32: use level 4",
            {"mode": "antireflect", "level": 12},
        ),
    ],
    multiplies=False,
    casts=True,
    kernels=[
        Kernel(
            operation=_MIX,
            given={
                "x": drawn(2, 5, 4),
                "weights": drawn(2),
                "bank": filter_bank("db2"),
                "mode": "smooth",
                "include_approx": True,
                "lengths": None,
            },
            masked={"lengths": torch.tensor([5, 5])},
            beyond=[
                {"weights": drawn(2, dtype=torch.float64)},
                {"x": drawn(0, 5, 4)},
                {"bank": filter_bank("db17")},
            ],
            refused=[
                ({"lengths": torch.tensor([5, 5, 5])}, "size"),
            ],
            start=_start,
            compiled={
                "wavelet": ({}, 12),
                "wavelet, own lengths": (
                    {
                        "name": "bior2.2",
                        "mode": "smooth",
                        "bands": 2,
                        "lengths": torch.ones(2).long(),
                    },
                    4,
                ),
                "wavelet, long": ({"name": "sym16", "bands": 2}, 4),
            },
            moved={
                f"a level, {mode}": Moved(
                    given={
                        "x": drawn(1, 768, 8),
                        "weights": drawn(2),
                        "bank": filter_bank("db2"),
                        "mode": mode,
                        "include_approx": True,
                        "lengths": None,
                    },
                    forward=((18 + back) / 16, 2),
                    # With the details, for the gradient of their weight.
                    backward=((18 + back + 8) / 16, 2),
                )
                for mode, back in (("periodization", 20), ("zero", 18))
            },
        ),
    ],
    compared=LENGTHS,
    first={"wavelet.mix": "triton"},
)
