"""What tests and pages know of fourier."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

import subquad_plugins.fourier.naive as fourier
from subquad_plugins.about import (
    BOUND,
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
    drawn,
    mask,
    unordered,
    zeros,
)
from subquad_plugins.fourier import PLUGIN
from subquad_plugins.fourier.chirp import _CHIRP
from subquad_plugins.fourier.transform import _MIX


def _defined(mixer: Any, config: Any, x: Tensor, keep: Tensor | None) -> Result:
    value = x if mixer.value is None else mixer.value(x)
    omega = None if mixer.offset is None else mixer.omega(x.shape[1])
    mixed = fourier.fourier(value, config.form, config.norm, omega, keep, config.length)
    return (mixed if mixer.out is None else mixer.out(mixed)), {}


def start_chirp(dtype: Any, shape: Any, real=False):
    from subquad_plugins.fourier.kernel import Chirped

    wave = torch.zeros(shape[1], dtype=torch.complex64)
    return Chirped.apply(zeros(dtype, *shape), wave, shape[1] if real else 2 * shape[1], real)


def _start_pairs(dtype: Any, shape: Any, form="re_seq"):
    from subquad_plugins.fourier.kernel import mixed

    return mixed(zeros(dtype, *shape).detach(), form, "ortho", None)


def interpolated(terms: int) -> float:
    """What interpolation between whole frequencies may miss of 32 tokens: 2 (pi / 4)^P / P! of
    each.
    """
    return 1e-12 + 32 * 2 * (math.pi / 4) ** terms / math.factorial(terms)


ABOUT = About(
    ways={
        **unordered("default", "re_2d", "hartley", **PADDED, **L_LOG_L),
        **unordered("fnet", without=LOSSES | PADDING, complexity="L log L"),
        **unordered("learned", without=LOSSES | PADDING, max_length="site", complexity="L log L"),
        **unordered("learned-sample", **BOUND, **L_LOG_L),
    },
    operations={"default", "fnet", "re_2d", "hartley"},
    oracles={
        "": Oracle(
            _defined,
            [
                params
                for params in ({}, *PLUGIN.variants.values())
                if params.get("frequencies") != "learned"
            ],
        ),
        "learned": Oracle(
            _defined,
            [
                params
                for params in PLUGIN.variants.values()
                if params.get("frequencies") == "learned"
            ],
            tolerance=interpolated(8),
            of_gradients=1e-4,
        ),
        "14 terms": Oracle(
            _defined,
            [{"form": "hartley", "frequencies": "learned", "terms": 14}],
            tolerance=interpolated(14),
            of_gradients=1e-10,
        ),
    },
    refused_builds=[
        Refused(
            "learned frequencies need the length of the longest sequence",
            {"frequencies": "learned"},
        ),
    ],
    multiplies=False,
    kernels=[
        Kernel(
            operation=_CHIRP,
            given={
                "z": drawn(2, 5, 3),
                "wave": drawn(5, dtype=torch.complex64),
                "size": 9,
                "real": False,
            },
            beyond=[
                {"wave": drawn(1, 5, dtype=torch.complex64)},
                {"wave": drawn(5, dtype=torch.complex128)},
                {"z": drawn(0, 5, 3)},
            ],
            refused=[
                ({"wave": drawn(4, dtype=torch.complex64)}, "size"),
            ],
            start=start_chirp,
            moved={
                "a real sequence into an FFT of twice its length": Moved(
                    given={
                        "z": drawn(2, 64, 64),
                        "wave": drawn(64, dtype=torch.complex64),
                        "size": 128,
                        "real": False,
                    },
                    forward=(1 + 2 / 32, 4),
                ),
                "the real part out of it": Moved(
                    given={
                        "z": drawn(2, 128, 64, dtype=torch.complex64),
                        "wave": drawn(64, dtype=torch.complex64),
                        "size": 64,
                        "real": True,
                    },
                    forward=(1 + 1 / 32, 1 / 2),
                ),
            },
        ),
        Kernel(
            operation=_MIX,
            given={"x": drawn(2, 5, 4), "form": "hartley", "norm": "paper", "keep": None},
            beyond=[
                {"keep": mask(2, 5)},
                {"form": "re_2d"},
                {"x": drawn(2, 5, 3)},
                {"x": drawn(0, 5, 4)},
            ],
            instead="symmetric",
            start=_start_pairs,
            compiled={"pairs": ({}, 2), "pairs, hartley": ({"form": "hartley"}, 2)},
            smallest=(1, 1, 2),
            moved={
                "pairs, twice before the FFT and once behind it": Moved(
                    given={
                        "x": drawn(1, 64, 128),
                        "form": "hartley",
                        "norm": "ortho",
                        "keep": None,
                    },
                    forward=(3, 2),
                    backward=(3, 2),
                ),
            },
        ),
    ],
    compared=LENGTHS,
    first={"fourier.chirp": "triton"},
)
