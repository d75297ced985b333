"""A study as canonical YAML: what all its runs have alike, and the list of its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from subquad.errors import ConfigError
from subquad.experiment.run import Run, by_key
from subquad.experiment.settings import NO_MARKS, SECTIONS, Tree, overlay
from subquad.experiment.strict_yaml import MAX_BYTES, MAX_NODES, parse_yaml, to_yaml

_SURELY_READABLE = 4 * MAX_NODES
"""Characters; each key and value takes at least four in the canonical form."""


def study_text(runs: Sequence[Run], baseline: str, match: str) -> str:
    """Checked runs, with defaults filled in and paths absolute; files that were extended, axes and
    overrides are part of them.

    Raises:
        ConfigError: with its defaults it is larger than what `load_study` reads.
    """
    top = _listed([(run, _settings(run)) for run in runs], [*runs[0].labels])
    data: dict[str, Any] = overlay(Tree({}, NO_MARKS), by_key(top["set"])).data
    if baseline:
        data["baseline"] = baseline
    if match:
        data["match"] = match
    data["runs"] = top["runs"]
    text = to_yaml(data)
    if len(text) >= _SURELY_READABLE:  # a study that could not be resumed must not start
        try:
            read_back = parse_yaml(text, "study.yaml")
        except ConfigError:
            read_back = None
        if read_back is None or len(text.encode()) > MAX_BYTES:
            size = f"with every default written out the study has {len(text):,} characters"
            raise ConfigError(f"{size}, more than can be read back; use less")
    return text


def _listed(runs: Sequence[tuple[Run, Mapping[str, Any]]], keys: Sequence[str]) -> dict[str, Any]:
    """What some runs have alike, and below it these runs by their values of the axes `keys`."""
    _, first = runs[0]
    alike = {
        key: value
        for key, value in first.items()
        if all(key in settings and settings[key] == value for _, settings in runs)
    }
    listed: dict[str, Any] = {"set": alike}
    if not keys:
        return listed
    key, *below = keys
    groups: dict[str, list[tuple[Run, Mapping[str, Any]]]] = {}
    for run, settings in runs:
        own = {name: value for name, value in settings.items() if name not in alike}
        groups.setdefault(repr((run.labels[key], run.axes[key])), []).append((run, own))
    listed["runs"] = []
    for group in groups.values():
        run, _ = group[0]
        entry: dict[str, Any] = {"labels": {key: run.labels[key]}}
        if run.axes[key] != run.labels[key]:
            entry["axes"] = {key: run.axes[key]}
        listed["runs"].append(entry | _listed(group, below))
    return listed


def _settings(run: Run) -> dict[str, Any]:
    """A run's experiment by the keys that a study may vary: sections key by key."""
    settings: dict[str, Any] = {}
    for key, value in run.experiment.model_dump(mode="json").items():
        if key in SECTIONS:
            settings |= {f"{key}.{name}": inner for name, inner in value.items()}
        else:
            settings[key] = value
    return settings
