"""Settings that are never searched, and why."""

from __future__ import annotations

from subquad.experiment.checked import Checked
from subquad.experiment.settings import COMPONENTS, KeyPath, path_fields

_NO_EFFECT = "it does not change what a run learns"
_SECTIONS = {
    "name": _NO_EFFECT,
    "format": _NO_EFFECT,
    "protocol": "it says how a run is measured",
    "tracking": _NO_EFFECT,
    "resources": "it says where a run is computed",
}


def never_searched(path: KeyPath, experiment: Checked) -> str | None:
    """Why a setting may not be searched; None where it may, or where there is no such setting."""
    kind, last = str(path[0]), str(path[-1])
    if kind in _SECTIONS:
        return _SECTIONS[kind]
    if last == "seed":
        return "seeds are repeated, not chosen; list them in the study's matrix"
    if path == ("train",) or (kind in COMPONENTS and path[1:] == ("params",)):
        return "it holds several settings; name one of them"
    if kind in COMPONENTS and path[1:] in ((), ("name",)):
        return "plugins are compared, not searched; list them in the study's matrix"
    if kind in COMPONENTS and path[1] == "params" and _is_place(kind, last, experiment):
        return "it says where files are"
    return None


def _is_place(kind: str, name: str, experiment: Checked) -> bool:
    return (kind, name) == ("dataset", "path") or name in path_fields(type(getattr(experiment, f"{kind}_config")))
