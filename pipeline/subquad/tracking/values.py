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

from subquad.addresses import without_secrets
from subquad.records import Record

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


def _clean_name(name: str) -> str:
    """A name MLflow takes: other characters become `_`, path segments that mean something (`..`)
    go.
    """
    segments = [part for part in _REFUSED.sub("_", name).split("/") if part not in ("", ".", "..")]
    clean = _UPWARDS.sub("__", "/".join(segments)) or "unnamed"
    if len(clean) > NAME_LIMIT:
        return _marked(clean, name)
    return clean


def _clean_names(names: Iterable[str]) -> dict[str, str]:
    """Each name's clean form; two names never share one."""
    clean: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        short = _clean_name(name)
        if short in taken:
            short = _marked(short, name)
        taken.add(short)
        clean[name] = short
    return clean


def clean_params(values: Values) -> tuple[dict[str, str], dict[str, str]]:
    """Parameters as MLflow takes them, and a tag for each one that had to be cut."""
    params: dict[str, str] = {}
    cut: dict[str, str] = {}
    for name, short in _clean_names(values).items():
        text = _text(name, values[name])
        size = len(text)
        params[short] = text[:PARAM_LIMIT]
        if size > PARAM_LIMIT:
            tag = _clean_name(f"param_cut.{name}")
            cut[tag] = f"{size} characters; all of them in the artefact experiment.yaml"
    return params, cut


def clean_tags(values: Values) -> dict[str, str]:
    """Tags as MLflow takes them; None is no value."""
    tags: dict[str, str] = {}
    for name, short in _clean_names(values).items():
        value = values[name]
        if value is not None:
            tags[short] = _text(name, value)[:TAG_LIMIT]
    return tags


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
    time_ms = int(time * 1000)
    values = {f"{prefix}/{name}": value for name, value in metrics.items()}
    points = []
    for name, short in _clean_names(values).items():
        value = values[name]
        if value is None:
            continue
        points.append(Point(short, float(value), time_ms, step or 0))
    return points


def nonfinite_tags(points: Sequence[Point]) -> dict[str, str]:
    """A tag `nonfinite.<metric>` for each metric that was not finite, with the first such step
    and value.
    """
    tags: dict[str, str] = {}
    for point in points:
        if not math.isfinite(point.value):
            name = _clean_name(f"nonfinite.{point.key}")
            tags.setdefault(name, f"first at step {point.step}: {point.value}")
    return tags


def _text(name: str, value: Any) -> str:
    """A value as YAML would write it on one line, without secrets."""
    shown = without_secrets(value, name)
    if isinstance(shown, str):
        return shown
    return json.dumps(shown, default=str, ensure_ascii=False)


def _marked(short: str, name: str) -> str:
    """A shortened name with a hash that tells it from others."""
    mark = hashlib.sha256(name.encode()).hexdigest()[:8]
    start = short[: NAME_LIMIT - 9]
    return f"{start}-{mark}"
