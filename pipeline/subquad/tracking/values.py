"""Metrics, parameters and tags as MLflow takes them: which names, how long, and which values are
sent at all.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from subquad.record.metrics import Record

Values = dict[str, Any]
"""Plain values by name, as JSON has them."""

NAME_LIMIT, PARAM_LIMIT, TAG_LIMIT = 250, 6000, 5000
_REFUSED = re.compile(r"[^\w.\- /]")
_UPWARDS = re.compile(r"^\.\.")
"""MLflow takes whatever begins so for a path that leads out of its folder."""


class Point(NamedTuple):
    """One value of one metric; `time_ms` is milliseconds since 1970."""

    key: str
    value: float
    time_ms: int
    step: int


def clean(values: Mapping[str, Any]) -> Values:
    """The same values by names MLflow takes: other characters become `_`, path segments that mean
    something (`..`) go. Two names never become one.
    """
    found: Values = {}
    for name, value in values.items():
        parts = _REFUSED.sub("_", name).split("/")
        short = "/".join(part for part in parts if part not in ("", ".", ".."))
        short = _UPWARDS.sub("__", short) or "unnamed"
        if len(short) > NAME_LIMIT or short in found:
            mark = hashlib.sha256(name.encode()).hexdigest()[:8]
            short = f"{short[: NAME_LIMIT - 9]}-{mark}"
        found[short] = value
    return found


def texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Parameters or tags as YAML would write each on one line, by clean names."""
    found = {}
    for name, value in clean(values).items():
        is_text = isinstance(value, str)
        found[name] = value if is_text else json.dumps(value, default=str, ensure_ascii=False)
    return found


def points_of(record: Record) -> list[Point]:
    """A record's metrics under `train/`, `<split>/` or `system/`; an event has none."""
    if record.kind == "event":
        return []
    prefix: str = record.kind
    if record.kind == "eval":
        prefix = record.split or "eval"
    return points_under(prefix, record.metrics, record.time, record.step)


def points_under(
    prefix: str, metrics: Mapping[str, Any], time: float, step: int | None
) -> list[Point]:
    """Values as metrics `<prefix>/<name>`; None is no value. The time is seconds since 1970."""
    values = clean({f"{prefix}/{name}": value for name, value in metrics.items()})
    return [
        Point(name, float(value), int(time * 1000), step or 0)
        for name, value in values.items()
        if value is not None
    ]


def unsent(points: Iterable[Point], steps: dict[str, int]) -> list[Point]:
    """Values above the last step of their metric: after a resume some steps are trained again.

    Args:
        steps: the last step of each metric, which is kept up to date.
    """
    new = []
    for point in points:
        if point.step > steps.get(point.key, -1):
            steps[point.key] = point.step
            new.append(point)
    return new


def nonfinite_tags(points: Sequence[Point]) -> dict[str, str]:
    """A tag `nonfinite.<metric>` for each metric that was not finite, with the first such step
    and value.
    """
    tags: dict[str, str] = {}
    for point in points:
        if not math.isfinite(point.value):
            first = f"first at step {point.step}: {point.value}"
            tags.setdefault(f"nonfinite.{point.key}", first)
    return tags
