"""A plugin's file that is read and not run: what stands in its place where somebody's experiment is only looked at."""

from __future__ import annotations

from subquad.plugin import BackbonePlugin, Config, DatasetPlugin, Metric, MixerPlugin, Plugin, TaskPlugin
from subquad.registry.found import Kind
from subquad.registry.loaded import Resolved
from subquad.registry.source import SourceFile


class AsWritten(Config, extra="allow"):
    """Parameters whose schema is in a file that does not run: any, kept as they are written."""


def _stand_in(kind: Kind) -> Plugin:
    about = {"config": AsWritten, "build": "", "summary": "not run"}
    if kind == "backbone":
        return BackbonePlugin(**about, inputs=(), targets=())
    if kind == "task":
        return TaskPlugin(**about, targets=(), reports={"score": Metric()})
    if kind == "dataset":
        return DatasetPlugin(**about, inputs="", targets=())
    return MixerPlugin(**about)


def unrun(source: SourceFile) -> Resolved:
    """A plugin in a file of which nothing runs: its parameters are kept, and nothing can be built of it."""
    return Resolved(_stand_in(source.kind), source.found, source, runs=False)
