"""What MLflow accepts: names of metrics, parameters and tags, and how long their values may be."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from subquad.tracking.secrets import HIDDEN, is_secret, mask

NAME_LIMIT = 250
PARAM_LIMIT = 6000
TAG_LIMIT = 5000
_REFUSED = re.compile(r"[^\w.\- /]")
_UPWARDS = re.compile(r"^\.\.")
"""MLflow takes whatever begins so for a path that leads out of its folder."""


def clean(name: str) -> str:
    """A name MLflow takes: other characters become `_`, path segments that mean something (`..`) go."""
    segments = [part for part in _REFUSED.sub("_", name).split("/") if part not in ("", ".", "..")]
    joined = _UPWARDS.sub("__", "/".join(segments)) or "unnamed"
    return joined if len(joined) <= NAME_LIMIT else f"{joined[: NAME_LIMIT - 9]}-{_short_hash(name)}"


def clean_all(names: Iterable[str]) -> dict[str, str]:
    """Each name's clean form; two names never share one."""
    taken: dict[str, str] = {}
    for name in names:
        short = clean(name)
        taken[short if short not in taken else f"{short[: NAME_LIMIT - 9]}-{_short_hash(name)}"] = name
    return {name: short for short, name in taken.items()}


def params(values: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Parameters as MLflow takes them, and a tag for each one that had to be cut."""
    short = clean_all(values)
    ready, cut = {}, {}
    for name, value in values.items():
        text = _text(name, value)
        ready[short[name]] = text[:PARAM_LIMIT]
        if len(text) > PARAM_LIMIT:
            cut[clean(f"param_cut.{name}")] = f"{len(text)} characters; all of them in the artefact experiment.yaml"
    return ready, cut


def tags(values: Mapping[str, Any]) -> dict[str, str]:
    """Tags as MLflow takes them."""
    short = clean_all(values)
    return {short[name]: _text(name, value)[:TAG_LIMIT] for name, value in values.items()}


def _text(name: str, value: Any) -> str:
    """A value as YAML would write it on one line, without secrets."""
    if is_secret(name) and isinstance(value, str) and value:
        return HIDDEN
    return mask(value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False))


def _short_hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:8]
