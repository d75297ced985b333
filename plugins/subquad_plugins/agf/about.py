"""What tests and pages know of agf."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import subquad_plugins.agf.naive as agf
from subquad_plugins.about import (
    LENGTHS,
    SET,
    About,
    Kernel,
    Oracle,
    Result,
    drawn,
    mask,
    unordered,
)
from subquad_plugins.agf.core import _CORE, Given
from subquad_plugins.numerics.jacobi import basis_steps, in_y

PUBLISHED = [
    (1.5, -1.5, 6),
    (2.0, 0.5, 9),
    (1.5, 2.0, 5),
    (2.0, 1.5, 10),
    (1.0, 0.0, 4),
    (2.0, -2.0, 5),
]
"""Best settings of the paper: a, b and the order."""


def _defined(mixer: Any, config: Any, x: Tensor, keep: Tensor | None) -> Result:
    out, loss = agf.agf(x, dict(mixer.named_parameters()), config, mixer.num_heads, keep)
    return out, {"ortho": loss}


ABOUT = About(
    ways={
        **unordered(
            "default",
            "order 8",
            "legendre, symmetric",
            "frobenius, no filter",
            without=set(),
            **SET,
        ),
        **unordered("svd_scalar, no loss", **SET),
    },
    operations={"default", "order 8", "legendre, symmetric"},
    oracles={
        "": Oracle(
            _defined,
            [
                {},
                {"order": 1, "jacobi_a": 2.0, "jacobi_b": -1.0},
                {"order": 12, "basis": "chebyshev", "coeff_activation": "none"},
                {"order": 5, "basis": "legendre", "sigma_map": "symmetric", "fix_identity": False},
                {"basis": "monomial", "ortho_norm": "frobenius"},
                {"order": 0},
                {"order": 0, "fix_identity": False},
                {"order": 0, "fix_identity": False, "coeff_activation": "none"},
                {"vector_activation": "none"},
                {"vector_activation": "sigmoid", "mask_padding": False},
                {"vector_activation": "tanh", "ortho_norm": "frobenius"},
                {"form": "uv"},
                {"form": "svd_scalar"},
            ],
            lengths=(1, 2, 7, 13),
        ),
    },
    small={"order": 3},
    accepted=[
        *(({"jacobi_a": a, "jacobi_b": b, "order": order}, {}) for a, b, order in PUBLISHED),
    ],
    kernels=[
        Kernel(
            operation=_CORE,
            given={
                "projected": drawn(2, 5, 16),
                "coefficients": drawn(4),
                "steps": in_y(basis_steps("jacobi", 3, 1.5, -0.5), "unit"),
                "keep": None,
                "num_heads": 2,
            },
            masked={"keep": mask(2, 5)},
            beyond=[
                {"coefficients": drawn(4, dtype=torch.float64)},
                {"keep": mask(1, 5)},
                {"projected": drawn(1, 2, 4 * 65), "num_heads": 1},
                {"projected": drawn(0, 5, 16)},
            ],
            refused=[
                ({"num_heads": 3}, "multiply up"),
                ({"keep": mask(2, 4)}, "must match"),
                ({"keep": mask(2, 5, dtype=torch.int64)}, "bool"),
            ],
            call=lambda given: (given["projected"], Given(**given)),
        ),
    ],
    compared=LENGTHS,
    first={"agf.core": "triton"},
)
