"""Combinations of settings and plugins that cannot work, or where one has no effect. Each names both and what works.

A default never makes a rule fire: only what the user chose does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

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
from subquad.registry.foreign import blamed

_MANY_LAYERS = 10_000
"""Stands for a number of layers that the backbone does not say."""

Conflict = tuple[KeyPath, str]
"""The setting to change, and why."""


def conflicts(experiment: Experiment) -> Iterator[Conflict]:
    """Every conflict among an experiment's own settings; those with plugins are in `misfits`."""
    train, resources = experiment.train, experiment.resources
    yield from _batches(train, resources)
    yield from _lengths(train)
    yield from _evaluations(experiment)
    yield from _numbers(train, resources)
    yield from _resources(resources)


def _batches(train: Train, resources: Resources) -> Iterator[Conflict]:
    size, workers = train.batch_size, resources.most
    share = -(-size // workers)
    if size < workers:
        message = f"got {size}, must be >= resources.workers ({workers}), as each worker needs a sample"
        yield ("train", "batch_size"), f"{message}; use train.batch_size {workers}"
    elif train.micro_batch is not None and train.micro_batch > share:
        yield (
            ("train", "micro_batch"),
            f"got {train.micro_batch}, has no effect above one worker's share of train.batch_size "
            f"({size} over {workers}); use null or at most {share}",
        )


_PERIODS = (("eval_every_steps", "steps"), ("checkpoint_every_steps", "steps"), ("eval_every_epochs", "epochs"))


def _lengths(train: Train) -> Iterator[Conflict]:
    """Periods that are longer than the run."""
    if train.steps is not None and train.warmup_steps >= train.steps:
        message = f"got {train.warmup_steps}, must be < train.steps ({train.steps}); use at most {train.steps - 1}"
        yield ("train", "warmup_steps"), message
    for key, length in _PERIODS:
        every, most = getattr(train, key), getattr(train, length)
        if every is not None and most is not None and every > most:
            yield ("train", key), f"got {every}, must be <= train.{length} ({most}); use null or at most {most}"


def _evaluations(experiment: Experiment) -> Iterator[Conflict]:
    train = experiment.train
    never = train.eval_every_epochs is None and train.eval_every_steps is None
    if experiment.protocol == "paper" and never:
        yield (
            ("protocol",),
            "got 'paper', which takes the best of several evaluations, but train.eval_every_epochs and "
            "train.eval_every_steps are null; use train.eval_every_epochs 1",
        )
    if train.patience is not None and (why := _idle_patience(train.patience, experiment)):
        yield ("train", "patience"), f"got {train.patience}, {why}"


def _idle_patience(patience: int, experiment: Experiment) -> str:
    """Why early stopping cannot work; "" where it can, or where that depends on the size of the data set."""
    if experiment.protocol == "fixed":
        without = "has no effect with protocol 'fixed', which has no validation split"
        return f"{without}; use null, or protocol 'honest'"
    for every, length in (("eval_every_epochs", "epochs"), ("eval_every_steps", "steps")):
        total, period = getattr(experiment.train, length), getattr(experiment.train, every)
        if total is not None and period is not None and patience > (number := -(-total // period)) - 2:
            why = f"train.{length} {total}, train.{every} {period}"
            most = f" or at most {number - 2}" if number > 2 else ""
            return f"cannot stop a run of {number} evaluations early ({why}); use null{most}"
    return ""


def _numbers(train: Train, resources: Resources) -> Iterator[Conflict]:
    if train.tf32 and resources.gpus_per_worker == 0:
        message = "got true, has no effect with resources.gpus_per_worker 0, on the CPU"
        yield ("train", "tf32"), f"{message}; use false, or resources.gpus_per_worker 1"
    if train.sync_every > 1 and resources.strategy == "fsdp2":
        message = f"got {train.sync_every}, needs a fused optimiser, which resources.strategy 'fsdp2' has not"
        yield ("train", "sync_every"), f"{message}; use 1, or resources.strategy 'ddp'"


def _resources(resources: Resources) -> Iterator[Conflict]:
    workers, gpus = resources.most, resources.gpus_per_worker
    for key in ("cpus_per_worker", "gpus_per_worker"):
        amount = getattr(resources, key)
        if amount > 1 and amount != int(amount):
            yield (
                ("resources", key),
                f"got {amount:g}, must be a whole number where it is above 1, for each of resources.workers "
                f"({workers}); use {int(amount)} or {int(amount) + 1}",
            )
    if 0 < gpus < 1 < workers:
        yield (
            ("resources", "gpus_per_worker"),
            f"got {gpus:g}, must be whole with resources.workers {workers}, as two workers cannot share a GPU in one "
            "collective call; use 1, or resources.workers 1",
        )


Parts = Mapping[KeyPath, tuple[Resolved, Config]]
"""Plugin and parameters by place: `("dataset",)`, `("task",)`, `("backbone",)`, `("mixer",)`, `("mixers", 0)`."""


def misfits(experiment: Experiment, parts: Parts) -> Iterator[Conflict]:
    """Every reason why these plugins cannot work together."""
    dataset, task, backbone = (parts[(kind,)][0].plugin for kind in ("dataset", "task", "backbone"))
    assert isinstance(dataset, DatasetPlugin)
    assert isinstance(task, TaskPlugin)
    assert isinstance(backbone, BackbonePlugin)
    names = {kind: parts[(kind,)][0].found.name for kind in ("dataset", "task", "backbone")}
    common = tuple(target for target in dataset.targets if target in task.targets)
    if not common:
        yield (
            ("task", "name"),
            f"got {names['task']!r}, which takes targets {_listed(task.targets)}, does not fit dataset "
            f"{names['dataset']!r}, which gives {_listed(dataset.targets)}",
        )
    elif not set(common) & set(backbone.targets):
        yield (
            ("backbone", "name"),
            f"got {names['backbone']!r}, which serves targets {_listed(backbone.targets)}, does not fit task "
            f"{names['task']!r} on dataset {names['dataset']!r}, of {_listed(common)}",
        )
    if dataset.inputs not in backbone.inputs:
        yield (
            ("backbone", "name"),
            f"got {names['backbone']!r}, which takes {_listed(backbone.inputs)}, does not fit dataset "
            f"{names['dataset']!r}, of {dataset.inputs!r}",
        )
    entries: dict[KeyPath, MixerEntry] = {("mixers", number): one for number, one in enumerate(experiment.mixers)}
    for path in (("mixer",), *entries):
        yield from _mixer(path, entries.get(path), parts, backbone, names["backbone"])
        if experiment.train.activation_checkpointing and _facts(*parts[path]).stateful:
            message = (
                f"got true, computes blocks twice, and mixer {parts[path][0].found.name!r} keeps state between calls"
            )
            yield ("train", "activation_checkpointing"), f"{message}; use false"
    depths = [_size(parts[("backbone",)][1], key) or 0 for key in ("num_layers", "decoder_layers")]
    yield from _entries(experiment.mixers, max(depths) or None)
    yield from _untrimmable(experiment.train, parts)


def _facts(resolved: Resolved, config: Config) -> Facts:
    return resolved.plugin.facts_of(config) if isinstance(resolved.plugin, MixerPlugin) else Facts()


def _mixer(
    path: KeyPath, entry: MixerEntry | None, parts: Parts, backbone: BackbonePlugin, backbone_name: str
) -> Iterator[Conflict]:
    resolved, config = parts[path]
    facts, name = _facts(resolved, config), resolved.found.name
    if backbone.causal and facts.causal == "never" and (entry is None or entry.role != "cross"):
        yield (
            (*path, "name"),
            f"got {name!r}, which sees later positions, does not fit backbone {backbone_name!r}, a "
            "decoder, which must not; use a mixer that is causal (`subquad list mixers`)",
        )
    if entry and entry.role == "cross" and not facts.cross:
        without = f"got {name!r}, which cannot let one sequence see another"
        yield (*path, "name"), f"{without}; use one with the fact cross, or another role"
    yield from _width(path, parts[("backbone",)][1], config)


def _entries(entries: Sequence[MixerEntry], num_layers: int | None) -> Iterator[Conflict]:
    """Entries of `mixers` that mean every site, none, one that is not there, or another's."""
    count = num_layers or _MANY_LAYERS
    numbers = [entry.numbers(count) for entry in entries]
    for place, entry in enumerate(entries):
        path: KeyPath = ("mixers", place)
        if entry.layers is None and entry.role is None:
            yield path, "says neither layers nor role, and would stand everywhere; write it as mixer"
        elif not numbers[place]:
            yield (*path, "layers"), "means no layer, as a range begins after its end"
        elif num_layers and not set(numbers[place]) <= set(range(num_layers)):
            yield (
                (*path, "layers"),
                f"names a layer that is not there, as the backbone has {num_layers}; use 0 to {num_layers - 1}, or "
                f"-{num_layers} to -1",
            )
        for other in range(place):
            roles = {entry.role, entries[other].role}
            if (len(roles) == 1 or None in roles) and set(numbers[place]) & set(numbers[other]):
                yield path, f"means sites that mixers[{other}] means too; each may have one entry"
    everywhere = {number for entry in entries if entry.role is None for number in entry.numbers(count)}
    if num_layers and everywhere >= set(range(num_layers)):
        yield ("mixer",), "stands nowhere, as the entries of mixers take every layer; leave one layer to it"


def _width(path: KeyPath, backbone: Config, mixer: Config) -> Iterator[Conflict]:
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
            yield (*path, "params"), str(error)


def _size(config: Config, field: str) -> int | None:
    """A width or count of a backbone that has one."""
    value = getattr(config, field, None)
    return value if isinstance(value, int) and value >= 1 else None


def _listed(names: tuple[str, ...]) -> str:
    return " or ".join(map(repr, names)) if names else "none"


_TRIMMING: KeyPath = ("train", "bucket_batches")


def _untrimmable(train: Train, parts: Parts) -> Iterator[Conflict]:
    """Every reason why `train.bucket_batches` would change what a model computes. Extra losses are known later."""
    if not train.bucket_batches:
        return
    start = f"got {train.bucket_batches}, trims padding, and "
    for path, (resolved, config) in parts.items():
        if path[0] in ("mixer", "mixers") and not _facts(resolved, config).padding_invariant:
            yield (
                _TRIMMING,
                f"{start}mixer {resolved.found.name!r} with these parameters does not claim to be padding "
                "invariant; use 0, or a mixer that does (`subquad show mixer NAME` lists its facts)",
            )
    name = parts[("backbone",)][0].found.name
    if (reason := _reason(parts)) is None:
        unsaid = "does not say whether it minds (BackboneConfig.padding_reason)"
        yield _TRIMMING, f"{start}backbone {name!r} {unsaid}; use 0"
    elif reason:
        yield _TRIMMING, f"{start}backbone {name!r} depends on padding: {reason}, or train.bucket_batches 0"


def _reason(parts: Parts) -> str | None:
    resolved, config = parts[("backbone",)]
    if not isinstance(config, BackboneConfig):
        return None
    with blamed(f"{resolved.found} cannot say what padding does to it"):
        return config.padding_reason()
