"""Whether the four plugins of an experiment fit each other."""

from __future__ import annotations

from collections.abc import Iterator

from subquad.experiment.rules import Conflict
from subquad.plugin import BackbonePlugin, Config, DatasetPlugin, Facts, MixerConfig, MixerPlugin, Site, TaskPlugin
from subquad.registry import Resolved
from subquad.registry.guard import blamed

Parts = dict[str, tuple[Resolved, Config]]
"""Plugin and parameters by kind: dataset, task, backbone, mixer."""


def misfits(parts: Parts) -> Iterator[Conflict]:
    """Every reason why these plugins cannot work together."""
    dataset, task, backbone = (parts[kind][0].plugin for kind in ("dataset", "task", "backbone"))
    assert isinstance(dataset, DatasetPlugin)
    assert isinstance(task, TaskPlugin)
    assert isinstance(backbone, BackbonePlugin)
    names = {kind: resolved.found.name for kind, (resolved, _) in parts.items()}
    if names["task"] not in dataset.tasks:
        yield (
            ("task", "name"),
            f"got {names['task']!r}, does not fit dataset {names['dataset']!r}, which takes {_listed(dataset.tasks)}",
        )
    if backbone.kind not in task.backbones:
        yield (
            ("backbone", "name"),
            f"got {names['backbone']!r}, of kind {backbone.kind!r}, does not fit task {names['task']!r}, which takes "
            f"{_listed(task.backbones)}",
        )
    if dataset.modality not in backbone.inputs:
        yield (
            ("backbone", "name"),
            f"got {names['backbone']!r}, which takes {_listed(backbone.inputs)}, does not fit dataset "
            f"{names['dataset']!r}, of {dataset.modality!r}",
        )
    yield from _mixer(parts, backbone, names["backbone"])


def _mixer(parts: Parts, backbone: BackbonePlugin, backbone_name: str) -> Iterator[Conflict]:
    resolved, config = parts["mixer"]
    facts = resolved.plugin.facts_of(config) if isinstance(resolved.plugin, MixerPlugin) else Facts()
    if backbone.kind == "decoder" and facts.causal == "never":
        yield (
            ("mixer", "name"),
            f"got {resolved.found.name!r}, which sees later positions, does not fit backbone {backbone_name!r}, a "
            "decoder, which must not; use a mixer that is causal (`subquad list mixers`)",
        )
    yield from _width(parts["backbone"][1], config)


def _width(backbone: Config, mixer: Config) -> Iterator[Conflict]:
    """What depends on the backbone's width: heads, and the mixer's own limits."""
    dim, heads = _size(backbone, "dim"), _size(backbone, "num_heads") or 1
    if dim is None:
        return
    if dim % heads:
        fitting = (dim // heads) * heads or heads
        yield (
            ("backbone", "params", "dim"),
            f"got {dim}, must be divisible by backbone.params.num_heads ({heads}); use {fitting} or {fitting + heads}",
        )
    elif isinstance(mixer, MixerConfig):
        try:
            with blamed(f"mixer {type(mixer).__module__} cannot check where it stands", passing=(ValueError,)):
                mixer.check(Site(dim=dim, num_heads=heads))
        except ValueError as error:
            yield ("mixer", "params"), str(error)


def _size(config: Config, field: str) -> int | None:
    """A width or count of a backbone that has one."""
    value = getattr(config, field, None)
    return value if isinstance(value, int) and value >= 1 else None


def _listed(names: tuple[str, ...]) -> str:
    return " or ".join(map(repr, names)) if names else "none"
