"""Combinations of settings and plugins that cannot work, or where one has no effect. Each names
both and what works.

A default never makes a rule fire: only what the user chose does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from subquad.experiment.refusals import Fault, fields_of
from subquad.experiment.schema import Experiment, MixerEntry, Resources, Train
from subquad.experiment.settings import KeyPath
from subquad.plugin import (
    BackboneConfig,
    BackbonePlugin,
    Config,
    DatasetPlugin,
    Facts,
    MixerConfig,
    MixerPlugin,
    Site,
    TaskPlugin,
)
from subquad.registry import Resolved
from subquad.registry.faults import blamed

_MANY_LAYERS = 10_000
"""Stands for a number of layers that the backbone does not say."""


def conflicts(experiment: Experiment) -> Iterator[Fault]:
    """Every conflict among an experiment's own settings; those with plugins are in `misfits`."""
    train = experiment.train
    resources = experiment.resources
    yield from _batches(train, resources)
    yield from _lengths(train)
    yield from _evaluations(experiment)
    yield from _resources(train, resources)


def _batches(train: Train, resources: Resources) -> Iterator[Fault]:
    size = train.batch_size
    workers = resources.most
    share = -(-size // workers)
    if size < workers:
        yield Fault(
            ("train", "batch_size"),
            f"got {size}, must be >= resources.workers ({workers}), as each worker needs a "
            f"sample; use train.batch_size {workers}",
        )
    elif train.micro_batch is not None and train.micro_batch > share:
        yield Fault(
            ("train", "micro_batch"),
            f"got {train.micro_batch}, has no effect above one worker's share of train.batch_size "
            f"({size} over {workers}); use null or at most {share}",
        )


_PERIODS = (
    ("eval_every_steps", "steps"),
    ("checkpoint_every_steps", "steps"),
    ("eval_every_epochs", "epochs"),
)


def _lengths(train: Train) -> Iterator[Fault]:
    """Periods that are longer than the run."""
    if train.steps is not None and train.warmup_steps >= train.steps:
        yield Fault(
            ("train", "warmup_steps"),
            f"got {train.warmup_steps}, must be < train.steps ({train.steps}); use at "
            f"most {train.steps - 1}",
        )
    for key, length in _PERIODS:
        every = getattr(train, key)
        most = getattr(train, length)
        if every is not None and most is not None and every > most:
            yield Fault(
                ("train", key),
                f"got {every}, must be <= train.{length} ({most}); use null or at most {most}",
            )


def _evaluations(experiment: Experiment) -> Iterator[Fault]:
    train = experiment.train
    never = train.eval_every_epochs is None and train.eval_every_steps is None
    if experiment.protocol == "paper" and never:
        yield Fault(
            ("protocol",),
            "got 'paper', which takes the best of several evaluations, but "
            "train.eval_every_epochs and "
            "train.eval_every_steps are null; use train.eval_every_epochs 1",
        )
    if train.patience is None:
        return
    if why := _idle_patience(train.patience, experiment):
        yield Fault(("train", "patience"), f"got {train.patience}, {why}")


_EVALUATED = (("eval_every_epochs", "epochs"), ("eval_every_steps", "steps"))


def _idle_patience(patience: int, experiment: Experiment) -> str:
    """Why early stopping cannot work; "" where it can, or where that depends on the size of the
    data set.
    """
    if experiment.protocol == "fixed":
        without = "has no effect with protocol 'fixed', which has no validation split"
        return f"{without}; use null, or protocol 'honest'"
    for every, length in _EVALUATED:
        total = getattr(experiment.train, length)
        period = getattr(experiment.train, every)
        if total is None or period is None:
            continue
        number = -(-total // period)
        if patience > number - 2:
            why = f"train.{length} {total}, train.{every} {period}"
            most = f" or at most {number - 2}" if number > 2 else ""
            return f"cannot stop a run of {number} evaluations early ({why}); use null{most}"
    return ""


def _resources(train: Train, resources: Resources) -> Iterator[Fault]:
    workers = resources.most
    gpus = resources.gpus_per_worker
    if train.tf32 and gpus == 0:
        yield Fault(
            ("train", "tf32"),
            "got true, has no effect with resources.gpus_per_worker 0, on the CPU; "
            "use false, or resources.gpus_per_worker 1",
        )
    for key in ("cpus_per_worker", "gpus_per_worker"):
        amount = getattr(resources, key)
        whole = int(amount)
        if amount > 1 and amount != whole:
            yield Fault(
                ("resources", key),
                f"got {amount:g}, must be a whole number where it is above 1, for each of "
                f"resources.workers ({workers}); use {whole} or {whole + 1}",
            )
    if 0 < gpus < 1 < workers:
        yield Fault(
            ("resources", "gpus_per_worker"),
            f"got {gpus:g}, must be whole with resources.workers {workers}, as two workers "
            "cannot share a GPU in one collective call; use 1, or resources.workers 1",
        )


Part = tuple[Resolved, Config]
"""A plugin and its parameters."""
Parts = Mapping[KeyPath, Part]
"""Plugin and parameters by place: `("dataset",)`, `("task",)`, `("backbone",)`, `("mixer",)`,
`("mixers", 0)`.
"""


def misfits(experiment: Experiment, parts: Parts) -> Iterator[Fault]:
    """Every reason why these plugins cannot work together."""
    names = {path[0]: part.found.name for path, (part, _) in parts.items()}
    dataset = parts[("dataset",)][0].plugin
    task = parts[("task",)][0].plugin
    backbone = parts[("backbone",)][0].plugin
    assert isinstance(dataset, DatasetPlugin)
    assert isinstance(task, TaskPlugin)
    assert isinstance(backbone, BackbonePlugin)
    yield from _targets(dataset, task, backbone, names)
    if dataset.inputs not in backbone.inputs:
        yield Fault(
            ("backbone", "name"),
            f"got {names['backbone']!r}, which takes {_listed(backbone.inputs)}, does not fit "
            f"dataset {names['dataset']!r}, of {dataset.inputs!r}",
        )
    yield from _mixer(("mixer",), "", parts)
    for number, entry in enumerate(experiment.mixers):
        yield from _mixer(("mixers", number), entry.role or "", parts)
    for part in parts.values():
        yield from _computed(experiment, *part)
    _, backbone_config = parts[("backbone",)]
    num_layers = _size(backbone_config, "num_layers") or 0
    yield from _entries(
        experiment.mixers, max(num_layers, _size(backbone_config, "decoder_layers") or 0)
    )
    yield from _untrimmable(experiment.train, parts)


def _computed(experiment: Experiment, resolved: Resolved, config: Config) -> Iterator[Fault]:
    """Conflicts where blocks are computed twice and a mixer remembers the first time, or in
    portions that may change and a mixer couples the samples of each.
    """
    facts = facts_of(resolved, config)
    resources = experiment.resources
    if facts.couples_samples and resources.fewest < resources.most:
        yield Fault(
            ("resources", "workers"),
            f"got {resources.workers!r}, and mixer {resolved.found.name!r} with these parameters "
            "lets samples of a worker's batch change each other, so their number decides the "
            f"results; use {resources.most}",
        )
    if experiment.train.activation_checkpointing and facts.stateful:
        yield Fault(
            ("train", "activation_checkpointing"),
            f"got true, computes blocks twice, and mixer {resolved.found.name!r} keeps state "
            "between calls; use false",
        )


def _targets(
    dataset: DatasetPlugin, task: TaskPlugin, backbone: BackbonePlugin, names: Mapping[Any, str]
) -> Iterator[Fault]:
    """A conflict where the three have no target in common."""
    common = tuple(target for target in dataset.targets if target in task.targets)
    if not common:
        yield Fault(
            ("task", "name"),
            f"got {names['task']!r}, which takes targets {_listed(task.targets)}, does not fit "
            f"dataset {names['dataset']!r}, which gives {_listed(dataset.targets)}",
        )
    elif not set(common) & set(backbone.targets):
        yield Fault(
            ("backbone", "name"),
            f"got {names['backbone']!r}, which serves targets {_listed(backbone.targets)}, does "
            f"not fit task {names['task']!r} on dataset {names['dataset']!r}, of {_listed(common)}",
        )


def facts_of(resolved: Resolved, config: Config) -> Facts:
    """What a plugin claims as a mixer with these parameters; another one claims nothing."""
    plugin = resolved.plugin
    return plugin.facts_of(config) if isinstance(plugin, MixerPlugin) else Facts()


def _mixer(path: KeyPath, role: str, parts: Parts) -> Iterator[Fault]:
    """What is wrong with a mixer in this backbone; the main one has no role of its own."""
    resolved, config = parts[path]
    backbone, backbone_config = parts[("backbone",)]
    assert isinstance(backbone.plugin, BackbonePlugin)
    facts = facts_of(resolved, config)
    name = resolved.found.name
    if backbone.plugin.causal and facts.causal == "never" and role != "cross":
        yield Fault(
            (*path, "name"),
            f"got {name!r}, which sees later positions, does not fit backbone "
            f"{backbone.found.name!r}, a decoder, which must not; use a mixer that is causal "
            "(`subquad list mixers`)",
        )
    if role == "cross" and not facts.cross:
        yield Fault(
            (*path, "name"),
            f"got {name!r}, which cannot let one sequence see another; use one with the fact "
            "cross, or another role",
        )
    yield from _width(path, backbone_config, config)


def _entries(entries: Sequence[MixerEntry], num_layers: int) -> Iterator[Fault]:
    """Entries of `mixers` that mean every site, none, one that is not there, or another's.

    `num_layers` is 0 where the backbone does not say it.
    """
    layers = [set(entry.numbers(num_layers or _MANY_LAYERS)) for entry in entries]
    every = set(range(num_layers))
    left = set(every)
    for place, entry in enumerate(entries):
        path: KeyPath = ("mixers", place)
        if entry.layers is None and entry.role is None:
            message = "says neither layers nor role, and would stand everywhere; write it as mixer"
            yield Fault(path, message)
        elif not layers[place]:
            yield Fault((*path, "layers"), "means no layer, as a range begins after its end")
        elif num_layers and not layers[place] <= every:
            yield Fault(
                (*path, "layers"),
                f"names a layer that is not there, as the backbone has {num_layers}; use 0 to "
                f"{num_layers - 1}, or -{num_layers} to -1",
            )
        for number, other in enumerate(entries[:place]):
            share_roles = entry.role == other.role or None in (entry.role, other.role)
            if share_roles and layers[place] & layers[number]:
                message = f"means sites that mixers[{number}] means too; each may have one entry"
                yield Fault(path, message)
        if entry.role is None:
            left -= layers[place]
    if num_layers and not left:
        message = "stands nowhere, as the entries of mixers take every layer"
        yield Fault(("mixer",), f"{message}; leave one layer to it")


def _width(path: KeyPath, backbone: Config, mixer: Config) -> Iterator[Fault]:
    """What depends on the backbone's width: heads, and the mixer's own limits."""
    dim = _size(backbone, "dim")
    heads = _size(backbone, "num_heads") or 1
    if dim is None:
        return
    if dim % heads:
        fitting = (dim // heads) * heads or heads
        yield Fault(
            ("backbone", "params", "dim"),
            f"got {dim}, must be divisible by backbone.params.num_heads ({heads}); "
            f"use {fitting} or {fitting + heads}",
        )
    elif isinstance(mixer, MixerConfig):
        label = f"mixer {type(mixer).__module__} cannot check where it stands"
        try:
            with blamed(label, passing=(ValueError,)):
                mixer.check(Site(dim=dim, num_heads=heads))
        except ValueError as error:
            below = (*path, "params")
            yield Fault(below, str(error), fields_of(error, below))


def _size(config: Config, field: str) -> int | None:
    """A width or count of a backbone that has one."""
    value = getattr(config, field, None)
    return value if isinstance(value, int) and value >= 1 else None


def _listed(names: tuple[str, ...]) -> str:
    return " or ".join(map(repr, names)) or "none"


_TRIMMING: KeyPath = ("train", "bucket_batches")


def _untrimmable(train: Train, parts: Parts) -> Iterator[Fault]:
    """Every reason why `train.bucket_batches` would change what a model computes. Extra losses
    are known later.
    """
    if not train.bucket_batches:
        return
    start = f"got {train.bucket_batches}, trims padding, and "
    for path, (resolved, config) in parts.items():
        if path[0] in ("mixer", "mixers") and not facts_of(resolved, config).padding_invariant:
            yield Fault(
                _TRIMMING,
                f"{start}mixer {resolved.found.name!r} with these parameters does not claim to be "
                "padding invariant; use 0, or a mixer that does (`subquad show mixer NAME` lists "
                "its facts)",
            )
    resolved, config = parts[("backbone",)]
    start += f"backbone {resolved.found.name!r}"
    reason = None
    if isinstance(config, BackboneConfig):
        with blamed(f"{resolved.found} cannot say what padding does to it"):
            reason = config.padding_reason()
    if reason is None:
        detail = "does not say whether it minds (BackboneConfig.padding_reason)"
        yield Fault(_TRIMMING, f"{start} {detail}; use 0")
    elif reason:
        yield Fault(_TRIMMING, f"{start} depends on padding: {reason}, or train.bucket_batches 0")
