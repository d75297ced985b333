"""What tests and pages know of megacur."""

from __future__ import annotations

from subquad_plugins.about import BOUND, L_LOG_L, PADDED, About, Refused, unordered

ROTARY = "bias rotary needs an even attention_dim, got 7"

WAYS = {
    **unordered("default", "laplace", "different", "random", **BOUND, **L_LOG_L),
    **unordered("chunk", "rotary", **PADDED, **L_LOG_L),
}

ABOUT = About(
    ways=WAYS,
    operations=WAYS,
    follows=[
        ({}, {"causal": "never", **BOUND, **L_LOG_L}),
        ({"max_positions": 99}, {"causal": "never", **PADDED, "max_length": 99, **L_LOG_L}),
        ({"bias": "rotary"}, {"causal": "never", **PADDED, "max_length": None, **L_LOG_L}),
        ({"chunk_size": 64}, {"causal": "never", **PADDED, "max_length": None, **L_LOG_L}),
    ],
    further=[
        {"num_indices": 4},
        {"num_indices": 3, "attention": "laplace", "iterations": 4},
        {"num_indices": 2, "chunk_size": 4, "selection": "linspace"},
        {"num_indices": 4, "mode": "different", "pinv": "ridge", "copy_rows": True},
        {"num_indices": 4, "selection": "random", "renormalise": True, "bias": "rotary"},
        {
            "num_indices": 4,
            "selection": "embed",
            "column": 1,
            "force_class": "always",
            "pinv": "exact",
        },
        {"num_indices": 64, "start_gradient": False},
    ],
    small={"num_indices": 4},
    needs_length=True,
    refused_settings=[
        Refused(ROTARY, {"bias": "rotary", "attention_dim": 7}),
        Refused(
            "num_indices 64 is more than a chunk has: use 32 or less, or a larger chunk_size",
            {"chunk_size": 32, "num_indices": 64},
        ),
    ],
    refused_places=[
        Refused(
            "column 5 is outside queries of width 4: use 0 to 3",
            {"selection": "embed", "column": 5},
        ),
    ],
)
