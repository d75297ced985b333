"""What tests and pages know of nystrom."""

from __future__ import annotations

from subquad_plugins.about import CAUSAL, CROSS, LENGTHS, PADDED, PADDING, About, Refused, core

LARGEST = "num_landmarks 9 is more than the longest sequence has: use 8 or less"
SHORT = {"max_len": 8}

ABOUT = About(
    ways={
        **core("default", "few", without=CROSS, **PADDED),
        **core("landmarks-alone", without={"cross-cache"}, **PADDED, cross=True),
        **core(
            "as-published",
            without=CROSS | PADDING | {"batch-outputs", "batch-gradients"},
            couples_samples=True,
        ),
    },
    refused_settings=[
        Refused(
            "conv_kernel 4 has no middle: use an odd number, or 0 for none", {"conv_kernel": 4}
        ),
    ],
    refused_places=[
        Refused(LARGEST, {"num_landmarks": 9}, SHORT),
        Refused("landmarks cannot be causal", {}, CAUSAL),
    ],
    compared=LENGTHS,
    first={"landmarks.attention": "triton"},
)
