"""From a record of metrics.jsonl, or a result, to MLflow metric points."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from subquad.runs import Record
from subquad.tracking.names import clean, clean_all


@dataclass(frozen=True)
class Point:
    """One value of one metric; `time_ms` is milliseconds since 1970."""

    key: str
    value: float
    time_ms: int
    step: int


def points(record: Record) -> list[Point]:
    """A record's metrics under `train/`, `<split>/` or `system/`; an event has none."""
    if record.kind == "event":
        return []
    prefix = (record.split or "eval") if record.kind == "eval" else record.kind
    return _under(prefix, record.metrics, int(record.time * 1000), record.step)


def final_points(result: Mapping[str, Any], time_ms: int) -> list[Point]:
    """A result's test metrics under `final/`."""
    test = result.get("test") or {}
    metrics = {name: float(value) for name, value in (test.get("metrics") or {}).items() if value is not None}
    return _under("final", metrics, time_ms, int(test.get("step") or result.get("steps") or 0))


def storable(found: list[Point]) -> list[Point]:
    """Points MLflow stores as they are. It would turn an infinity into 1.8e308, so none is sent."""
    return [point for point in found if not math.isinf(point.value)]


def nonfinite_tags(found: list[Point]) -> dict[str, str]:
    """A tag `nonfinite.<metric>` for each metric that was not finite, with the first such step and value."""
    tags: dict[str, str] = {}
    for point in found:
        if not math.isfinite(point.value):
            tags.setdefault(clean(f"nonfinite.{point.key}"), f"first at step {point.step}: {point.value}")
    return tags


def _under(prefix: str, metrics: Mapping[str, float], time_ms: int, step: int) -> list[Point]:
    short = clean_all(f"{prefix}/{name}" for name in metrics)
    return [Point(short[f"{prefix}/{name}"], float(value), time_ms, step) for name, value in metrics.items()]
