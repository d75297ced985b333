"""MLflow tracking. Training writes metrics.jsonl and never talks to MLflow; a process beside the driver sends it.

Importing this package imports neither mlflow nor matplotlib nor torch: the names below load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from subquad.tracking.contracts import Summary, TrackedRun
    from subquad.tracking.publisher import NullPublisher, Publisher, open_publisher
    from subquad.tracking.resend import sync
    from subquad.tracking.system import SystemSampler

__all__ = ["NullPublisher", "Publisher", "Summary", "SystemSampler", "TrackedRun", "open_publisher", "sync"]

_HOME = {
    "NullPublisher": "publisher",
    "Publisher": "publisher",
    "Summary": "contracts",
    "SystemSampler": "system",
    "TrackedRun": "contracts",
    "open_publisher": "publisher",
    "sync": "resend",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
