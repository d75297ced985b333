"""Labels: what a study, its folders and tables call a value of an axis."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from subquad.errors import UserError
from subquad.experiment.components import Resolve, parameters
from subquad.experiment.refusals import Given, shown
from subquad.experiment.settings import shown_key
from subquad.plugin import DatasetPlugin
from subquad.registry.faults import blamed
from subquad.suggest import did_you_mean

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LABEL_WORDS = "text of letters, digits, '.', '_' and '-', beginning with a letter or digit"


def safe_label(text: str) -> str:
    """A label made of any text: only what every file system takes."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", text)
    return safe.strip("._-") or "value"


def plugin_label(name: str) -> str:
    """What tables call a component that neither the user nor its plugin gave a label."""
    _, _, last = name.rpartition(":")
    return safe_label(last)


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
    named_by = [name for name in resolved.plugin.named_by if name in params]
    return safe_label(own) if own else default, tuple(named_by)


def plain_label(key: str, value: Any) -> str:
    """The label of a value that is no component: `lr0.001`, `cosine`."""
    if isinstance(value, str):
        return safe_label(value)
    _, _, name = key.rpartition(".")
    if value is None:
        return safe_label(f"{name}-null")
    return safe_label(f"{name}{json.dumps(value)}")


def checked_label(label: Any, place: Given) -> str:
    """The label of the value that is given at a place.

    Raises:
        ConfigError: it cannot be one.
    """
    is_label = False
    if isinstance(label, str):
        is_label = _LABEL.fullmatch(label) is not None
    Given(label, (*place.path, "label"), place.marks).expect(is_label, _LABEL_WORDS)
    return label


def unknown_label(label: Any, known: Sequence[str]) -> str:
    """What is said of a label that no value of an axis has."""
    hint = did_you_mean(str(label), known)
    if not hint:
        hint = f"; there is {listed(known)}"
    return f"no value of the axis has the label {shown(label)}{hint}"


def listed(labels: Sequence[str]) -> str:
    """The first labels, as messages show them."""
    return ", ".join(map(shown_key, labels[:10]))
