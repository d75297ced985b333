"""What tests and pages know of cur."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from subquad_plugins.about import (
    CAUSAL,
    CROSS,
    LENGTHS,
    PADDED,
    SET,
    About,
    Kernel,
    Params,
    Refused,
    core,
    drawn,
    mask,
)
from subquad_plugins.numerics.landmarks import _ATTENTION, MOST_LANDMARKS, Given
from subquad_plugins.numerics.pinv import exact_inverse, pseudo_inverse


def _call(given: Params) -> tuple[Any, ...]:
    rest = {name: value for name, value in given.items() if name not in ("q", "k", "v")}
    return given["q"], given["k"], given["v"], Given(**rest)


FACTS = {"causal": "never", **PADDED, "complexity": "L"}

ABOUT = About(
    ways={
        **core("default", "few", "laplace", "exact", "ridge", without=CROSS, **SET),
        **core("step", "linspace", "embed", without=CROSS, **PADDED),
        **core("random", without={"cross-cache"}, **PADDED, cross=True),
    },
    follows=[
        ({"mode": "different"}, {**FACTS, "permutation_equivariant": True, "cross": True}),
        ({"force_class": "always"}, {**FACTS, "permutation_equivariant": None, "cross": False}),
        ({"rotary": True}, {**FACTS, "permutation_equivariant": None, "cross": False}),
        (
            {"selection": "random", "mode": "different"},
            {**FACTS, "permutation_equivariant": None, "cross": True},
        ),
    ],
    small={"num_indices": 4},
    needs_length=True,
    refused_places=[
        Refused(
            "num_indices 64 is more than the longest sequence has: use 29 or less",
            {"num_indices": 64},
            {"max_len": 29},
        ),
        Refused(
            "column 8 is outside a head of width 8: use 0 to 7",
            {"selection": "embed", "column": 8},
            {"dim": 16},
        ),
        Refused("CUR attention cannot be causal: the inverse mixes all selected rows", {}, CAUSAL),
        Refused("rotary needs an even head width", {"rotary": True}, {"dim": 6}),
    ],
    accepted=[
        ({"num_indices": 64}, {"max_len": 64}),
        ({"num_indices": 64}, {}),
    ],
    kernels=[
        Kernel(
            operation=_ATTENTION,
            given={
                "q": drawn(2, 2, 3, 4),
                "k": drawn(2, 2, 5, 4),
                "v": drawn(2, 2, 5, 4),
                "q_hat": torch.tensor([2, 0]).expand(2, 2, 2),
                "k_hat": torch.tensor([1, 4]).expand(2, 2, 2),
                "invert": partial(pseudo_inverse, iterations=2),
                "scale": 0.7,
            },
            masked={
                "key_keep": mask(2, 5),
                "q_hat_keep": mask(2, 2, 2),
                "k_hat_keep": mask(2, 1, 2),
            },
            taken=[{"q_hat": drawn(2, 2, 3, 4), "k_hat": drawn(2, 2, 6, 4)}],
            beyond=[
                {"key_keep": mask(1, 5)},
                {"renormalise": True},
                {"function": "laplace"},
                {"scale": drawn(2, 1, 1, 1)},
                {"invert": partial(pseudo_inverse, iterations=2, start="batch")},
                {"invert": exact_inverse},
                {"precise": True},
                {"v": drawn(2, 2, 5, 129)},
                dict.fromkeys(("q_hat", "k_hat"), drawn(2, 2, MOST_LANDMARKS // 2 + 1, 4)),
            ],
            refused=[
                ({"key_keep": mask(2, 4)}, "size"),
                ({"key_keep": mask(3, 5)}, "size"),
                ({"k_hat": drawn(2, 2, 6, 5)}, "size"),
            ],
            call=_call,
        ),
    ],
    compared=[*LENGTHS, (520, {"num_indices": 200})],
    first={"landmarks.attention": "triton"},
)
