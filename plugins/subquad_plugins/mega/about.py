"""What tests and pages know of mega."""

from __future__ import annotations

from typing import Any

from torch import Tensor

import subquad_plugins.mega.naive as mega
from subquad_plugins.about import (
    BOUND,
    CACHE,
    CAUSAL,
    L_LOG_L,
    LENGTHS,
    LOSSES,
    PADDED,
    About,
    Oracle,
    Params,
    Refused,
    Result,
    both,
    causal,
)

ROTARY = "bias rotary needs an even attention_dim, got 7"


def _defined(mixer: Any, config: Any, x: Tensor, keep: Tensor | None) -> Result:
    weights = dict(mixer.named_parameters())
    return mega.mega(x, weights, config, causal=mixer.causal, keep=keep), {}


MEGA: list[Params] = [
    {"ema_dim": 3},
    {"ema_dim": 3, "attention": "laplace", "norm": "layer"},
    {"ema_dim": 3, "chunk_size": 4, "norm": "scale"},
    {"ema_dim": 3, "attention": "laplace", "chunk_size": 3, "truncation": 2},
    {"bias": "rotary", "norm": "rms", "attention_dim": 6, "value_dim": 5, "ema_dim": 1},
    {"ema_dim": 3, "attention": "laplace", "bias": "rotary", "chunk_size": 50},
    {"max_positions": 32, "ema_dim": 4},
]

WAYS = {
    **both("default", "laplace", **BOUND, complexity="L^2", leak=1e-12),
    **both("chunk", "laplace-chunk", **PADDED, **L_LOG_L),
    **both("rotary", **PADDED, complexity="L^2", leak=1e-12),
    **causal("laplace-chunk", without=LOSSES | CACHE, causal="optional", **PADDED, **L_LOG_L),
}

ABOUT = About(
    ways=WAYS,
    operations=WAYS,
    follows=[
        ({}, {"causal": "optional", **BOUND, "complexity": "L^2", "leak": 1e-12}),
        (
            {"max_positions": 99},
            {"causal": "optional", **PADDED, "max_length": 99, "complexity": "L^2", "leak": 1e-12},
        ),
        (
            {"bias": "rotary"},
            {
                "causal": "optional",
                **PADDED,
                "max_length": None,
                "complexity": "L^2",
                "leak": 1e-12,
            },
        ),
        ({"chunk_size": 64}, {"causal": "optional", **PADDED, "max_length": None, **L_LOG_L}),
    ],
    further=[
        {"ema_dim": 3, "chunk_size": 4, "norm": "scale"},
        {"bias": "rotary", "norm": "rms", "attention_dim": 6, "value_dim": 5, "ema_dim": 1},
        {"ema_dim": 3, "attention": "laplace", "bias": "rotary", "chunk_size": 50},
        {"max_positions": 70, "ema_dim": 4},
    ],
    oracles={
        "": Oracle(_defined, MEGA, MEGA, lengths=(1, 2, 11), gaps=False),
    },
    needs_length=True,
    refused_settings=[
        Refused(ROTARY, {"bias": "rotary", "attention_dim": 7}),
    ],
    refused_places=[
        Refused(
            "bidirectional false has no effect with a causal mixer: leave it at true",
            {"bidirectional": False},
            CAUSAL,
        ),
        Refused(
            "max_positions 9 is less than the longest sequence, 10",
            {"max_positions": 9},
            {"max_len": 10},
        ),
        Refused(
            "truncation 10 has no effect with sequences of at most 10 tokens: leave it at 0",
            {"truncation": 10},
            {"max_len": 10},
        ),
    ],
    refused_builds=[
        Refused("the longest sequence is not known: set max_positions, or bias rotary"),
    ],
    accepted=[
        ({"max_positions": 9}, {}),
        ({"truncation": 9}, {"max_len": 10}),
        ({"truncation": 10}, {}),
    ],
    compared=LENGTHS,
)
