"""What tests and pages know of local."""

from __future__ import annotations

from subquad_plugins.about import PADDED, About, Refused, sliding

WINDOW = "a window of 9 tokens is more than the longest sequence has: use 8 or less"
SHORT = {"max_len": 8}

WAYS = sliding("default", "blocks", "one-block", **PADDED)

ABOUT = About(
    ways=WAYS,
    operations=WAYS,
    refused_places=[
        Refused(WINDOW, {"window": 9}, SHORT),
        Refused(WINDOW, {"window": 3, "block": 3}, SHORT),
        Refused(WINDOW, {"window": 0, "block": 9}, SHORT),
    ],
)
