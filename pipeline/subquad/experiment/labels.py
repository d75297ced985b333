"""Labels: what a study, its folders and tables call a value of an axis."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from subquad.errors import UserError
from subquad.experiment.components import Resolve, parameters
from subquad.plugin import DatasetPlugin
from subquad.registry.faults import blamed


def _safe_label(text: str) -> str:
    """A label made of any text: only what every file system takes."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip("._-") or "value"


def plugin_label(name: str) -> str:
    """What tables call a component that neither the user nor its plugin gave a label."""
    return _safe_label(name.rpartition(":")[2])


def dataset_label(
    component: Mapping[str, Any], default: str, resolve: Resolve
) -> tuple[str, tuple[str, ...]]:
    """What tables call a data set that the user gave no label, and the parameters given that this
    is made of.

    One whose parameters cannot be used is refused later, when a run of it is checked.
    """
    params = component.get("params", {})
    try:
        resolved = resolve("dataset", component["name"])
        with blamed(f"{resolved.found} cannot check its parameters", passing=(UserError,)):
            config = parameters(resolved, params)
    except UserError:
        return default, ()
    assert isinstance(resolved.plugin, DatasetPlugin)
    with blamed(f"{resolved.found} cannot say its label"):
        own = resolved.plugin.label(config)
    named_by = (name for name in resolved.plugin.named_by if name in params)
    return _safe_label(own) if own else default, tuple(named_by)


def plain_label(key: str, value: Any) -> str:
    """The label of a value that is no component: `lr0.001`, `cosine`."""
    if isinstance(value, str):
        return _safe_label(value)
    _, _, name = key.rpartition(".")
    if value is None:
        return _safe_label(f"{name}-null")
    return _safe_label(f"{name}{json.dumps(value)}")
