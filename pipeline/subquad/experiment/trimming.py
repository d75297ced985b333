"""Whether batches may be trimmed to their longest sample: only where nothing in the model depends on the padding."""

from __future__ import annotations

from collections.abc import Iterator

from subquad.experiment.fits import Parts
from subquad.experiment.rules import Conflict
from subquad.experiment.schema import Train
from subquad.plugin import BackboneConfig, Facts, MixerPlugin
from subquad.registry.guard import blamed

PATH = ("train", "bucket_batches")


def untrimmable(train: Train, parts: Parts) -> Iterator[Conflict]:
    """Every reason why `train.bucket_batches` would change what a model computes. Extra losses are known later."""
    if not train.bucket_batches:
        return
    start = f"got {train.bucket_batches}, trims padding, and "
    resolved, config = parts["mixer"]
    facts = resolved.plugin.facts_of(config) if isinstance(resolved.plugin, MixerPlugin) else Facts()
    if not facts.padding_invariant:
        yield (
            PATH,
            f"{start}mixer {resolved.found.name!r} with these parameters does not claim to be padding "
            "invariant; use 0, or a mixer that does (`subquad show mixer NAME` lists its facts)",
        )
    name = parts["backbone"][0].found.name
    if (reason := _reason(parts)) is None:
        yield (
            PATH,
            f"{start}backbone {name!r} does not say whether it minds (BackboneConfig.padding_reason); use 0",
        )
    elif reason:
        yield PATH, f"{start}backbone {name!r} depends on padding: {reason}, or train.bucket_batches 0"


def _reason(parts: Parts) -> str | None:
    resolved, config = parts["backbone"]
    if not isinstance(config, BackboneConfig):
        return None
    with blamed(f"{resolved.found} cannot say what padding does to it"):
        return config.padding_reason()
