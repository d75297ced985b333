"""The objects of one training process, built from a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from subquad.cost import Cost, step_cost
from subquad.data import Dataset, DataSpec, Split, sample_lengths
from subquad.engine.group import Background, Group, Shard
from subquad.engine.model import build_model, parameter_dtype
from subquad.engine.optim import Average, LossScaler, Schedule, build_optimizer, build_schedule
from subquad.engine.start import start_from
from subquad.engine.tensors import seed_everything
from subquad.errors import ConfigError
from subquad.experiment import Run
from subquad.experiment.schema import Experiment, Train
from subquad.experiment.settings import path_fields
from subquad.nn import Backbone, Batch, Task
from subquad.nn.numbers import own_kind
from subquad.plan import Plan, PlanSettings
from subquad.plugin import Config
from subquad.record.storage import data_root, fetched
from subquad.registry import Resolved, build_class

_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, kw_only=True)
class ModelParts:
    """What one rank evaluates with.

    Attributes:
        run: what is trained, or was.
        group: the ranks.
        task: loss and metrics.
        model: as it is called in training (wrapped for several ranks).
        bare_model: the same without DDP's wrapper: evaluation then makes no collective call.
        loaders: of the splits that were evaluated, by `id`, so that their processes start once.
    """

    run: Run
    group: Group
    task: Task
    model: nn.Module
    bare_model: Backbone
    loaders: dict[int, Any] = field(default_factory=dict)

    @cached_property
    def train(self) -> Train:
        """The experiment's training settings."""
        return self.run.experiment.train

    def on_device(self, arrays: Mapping[str, Any]) -> Batch:
        """A batch where this rank computes."""
        return _to_device(arrays, self.group.device, parameter_dtype(self.train))

    def autocast(self) -> AbstractContextManager[object]:
        """The context of a forward pass."""
        dtype = _AUTOCAST.get(self.train.precision)
        if dtype is None:
            return nullcontext()
        return torch.autocast(self.group.device.type, dtype)


@dataclass(frozen=True, kw_only=True)
class Parts(ModelParts):
    """What one rank trains with.

    Attributes:
        plan: which samples each step uses.
        optimizer: over the model's parameters.
        scaler: fp16 loss scaling.
        training: the split that is trained on.
        selection: the split that is evaluated while training; None for a fixed number of epochs.
        average: of the parameters over updates, evaluated and kept in their place; None where none
            is wanted.
        start: what became of the weights it started from; None where there were none.
        updated: names of the parameters that the optimiser has had a gradient of, before a resume
            too: of these it must have state.
        background: writes the checkpoints of a sharded model; None where none is.
    """

    plan: Plan
    optimizer: Optimizer
    scaler: LossScaler
    training: Split
    selection: Split | None = None
    average: Average | None = None
    start: dict[str, Any] | None = None
    updated: set[str] = field(default_factory=set)
    background: Background | None = None

    def averaged(self) -> AbstractContextManager[object]:
        """The model as it is evaluated and kept: with the average of its weights, where there is
        one.
        """
        if self.average is None:
            return nullcontext()
        return self.average.in_place()

    @cached_property
    def schedule(self) -> Schedule:
        """Learning rate over steps."""
        return build_schedule(self.train, self.plan.total_steps)

    @cached_property
    def parameters(self) -> Sequence[nn.Parameter]:
        """What the optimiser updates, listed once because walking the modules costs more than a
        small step.
        """
        return [weight for group in self.optimizer.param_groups for weight in group["params"]]

    @property
    def selection_name(self) -> str:
        """What records call the split that is evaluated while training."""
        return "validation" if self.run.experiment.protocol == "honest" else "test"


def _to_device(arrays: Mapping[str, Any], device: torch.device, dtype: torch.dtype) -> Batch:
    """Arrays or tensors as tensors on a device; real numbers in `dtype`."""
    found = {}
    for name, values in arrays.items():
        tensor = torch.as_tensor(values)
        found[name] = tensor.to(device, own_kind(tensor, dtype), non_blocking=True)
    return found


def build_dataset(run: Run) -> Dataset:
    """The data set, prepared."""
    return open_dataset(run.dataset, run.dataset_config, run.data_root)


def open_dataset(found: Resolved, config: Config, root: Path | None = None) -> Dataset:
    """A data set, prepared; what its parameters give as addresses is brought to this machine first,
    unless it reads those itself.

    Args:
        root: the folder for prepared data; `data_root()` where None.
    """
    root = root or data_root()
    kind: type[Dataset] = build_class(found)
    local = {}
    for name in () if kind.reads_addresses else path_fields(type(config)):
        address = getattr(config, name)
        if address and "://" in address:
            local[name] = str(fetched(address, root))
    dataset = kind(config.model_copy(update=local), root)
    dataset.prepare()
    return dataset


def _training_split(experiment: Experiment, dataset: Dataset) -> Split:
    """The training part under the honest protocol, else all of TRAIN."""
    return dataset.split("train" if experiment.protocol == "honest" else "trainval")


def make_plan(experiment: Experiment, dataset: Dataset, split: Split | None = None) -> Plan:
    """The order of samples, which the training split chooses.

    Args:
        split: the training split, where it is open already.

    Raises:
        DataError: no validation part can be cut from TRAIN.
        ConfigError: `train.bucket_batches` cannot work with the data, or has no effect, or has to
            be set.
    """
    train = experiment.train
    split = split or _training_split(experiment, dataset)
    pool = train.bucket_batches
    together = split.together
    micro_batch = train.micro_batch
    if micro_batch is not None and micro_batch % together:
        nearest = max(together, micro_batch - micro_batch % together)
        raise ConfigError(
            f"train.micro_batch: got {micro_batch}, this data set needs a multiple of {together}; "
            f"use {nearest}"
        )
    if pool:
        reason = _untrimmable(dataset.describe(), split)
        if reason:
            raise ConfigError(f"train.bucket_batches: got {pool}, {reason}; use 0")
    plan = split.plan(PlanSettings(train.batch_size, train.seed, train.steps, train.epochs, pool))
    if not pool and plan.total_steps and plan.length(plan.batch(0)[1]) is not None:
        raise ConfigError(
            "train.bucket_batches: got 0, and this data set's plan trims batches; use 1 or more"
        )
    return plan


def _untrimmable(spec: DataSpec, split: Split) -> str:
    """Why a training split cannot be trimmed, or why that has no effect; "" where it can."""
    if spec.equal_length:
        return "has no effect with this data set, whose sequences are equally long"
    if "labels" in spec.arrays and "length" in spec.arrays["labels"].axes:
        return "trims positions, and this data set labels them"
    lengths = sample_lengths(split)
    if lengths is None:
        return "needs the samples' lengths, which this data set does not give"
    if (lengths >= spec.max_len).all():
        return (
            "has no effect with this data set, whose training sequences all have "
            f"{spec.max_len} tokens"
        )
    return ""


def build_task(run: Run, spec: DataSpec) -> Task:
    return build_class(run.task)(run.task_config, spec)


def build_parts(
    run: Run, group: Group, dataset: Dataset | None = None, *, fresh: bool = True
) -> Parts:
    """Build everything on this rank, wrap the model, add its optimiser, and seed dropout's
    randomness per rank.

    Args:
        run: what is trained.
        group: the ranks; every one calls this.
        dataset: the run's, where it is there already.
        fresh: it begins with the weights that `init` says; else it goes on from a checkpoint.

    Raises:
        SubquadError: on every rank alike: the run cannot be done as it is.
    """
    experiment = run.experiment
    train = experiment.train
    shard = group.sharder(experiment.resources.strategy)

    def build() -> tuple[Plan, Split, Task, Backbone, dict[str, Any] | None]:
        data = dataset or build_dataset(run)
        spec = data.describe()
        split = _training_split(experiment, data)
        task = build_task(run, spec)
        plan = make_plan(experiment, data, split)
        # weights from elsewhere are put into whole blocks
        model = build_model(run, spec, task.num_outputs, None if experiment.init else shard)
        return plan, split, task, model, start_from(model, experiment) if fresh else None

    plan, training, task, model, start = group.together(build)
    if shard is None:
        model.to(group.device)
    wrapped = _wrapped(
        ModelParts(run=run, group=group, task=task, model=model, bare_model=model), shard
    )
    optimizer = build_optimizer(train, model, sharded=shard is not None)
    seed_everything(train.seed, 1, group.rank)
    average = None if train.ema_decay is None else Average(model, train.ema_decay)
    return Parts(
        run=run,
        group=group,
        task=task,
        model=wrapped,
        bare_model=model,
        plan=plan,
        optimizer=optimizer,
        scaler=LossScaler.of(train),
        training=training,
        average=average,
        start=start,
        background=Background(group) if shard else None,
    )


def _wrapped(parts: ModelParts, shard: Shard | None) -> nn.Module:
    """The model as it is called in training; every rank calls this."""
    train = parts.train
    group = parts.group
    is_replicated = shard is None and group.world_size > 1
    has_unused = False
    if is_replicated:
        has_unused = any(group.gather(not _tried(parts, parts.bare_model)))
    wrapped = group.wrap(
        parts.bare_model, shard, train.compile, train.activation_checkpointing, search=has_unused
    )
    if is_replicated and not has_unused:
        _tried(parts, wrapped)
    return wrapped


def _tried(parts: ModelParts, model: nn.Module) -> bool:
    """Whether each parameter gets a gradient from a batch of ones as large as a rank's; the
    model stays as it was.
    """
    share = math.ceil(parts.train.batch_size / parts.group.world_size)
    batch = parts.on_device(parts.task.spec.example(min(parts.train.micro_batch or share, share)))
    before = [buffer.clone() for buffer in model.buffers()]
    with parts.autocast():
        objective = _objective(model, parts.task, batch)
    objective.backward()
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    is_whole = all(weight.grad is not None for weight in trained)
    model.zero_grad(set_to_none=True)
    with torch.no_grad():
        for buffer, value in zip(model.buffers(), before, strict=True):
            buffer.copy_(value)
    return is_whole


def _objective(model: nn.Module, task: Task, batch: Batch) -> Tensor:
    output = model(batch)
    loss, _ = task.loss(output.outputs, batch)
    if output.penalty is None:
        return loss
    return loss + output.penalty.sum()


def training_cost(run: Run, spec: DataSpec) -> Cost:
    """What a step costs, counted on a model of its own, on the CPU, at the data's longest length.

    It seeds the global generators, so count before training.
    """
    train = run.experiment.train
    device = torch.device("cpu")
    task = build_task(run, spec)
    half = train.precision in _AUTOCAST  # of one width; the CPU has more kernels for the first

    def objective(batch: Batch) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            return _objective(model, task, batch)

    def example(samples: int) -> Batch:
        return _to_device(spec.example(samples), device, parameter_dtype(train))

    model = build_model(run, spec, task.num_outputs)
    return step_cost(model, objective, example, train.batch_size)
