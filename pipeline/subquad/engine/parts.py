"""The objects of one training process, built from a checked experiment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from subquad.cost import Cost, step_cost
from subquad.data import Dataset, DataSpec
from subquad.engine.buckets import check_extra_losses
from subquad.engine.feed import to_device
from subquad.engine.group import Group, bare, wrap
from subquad.engine.optim import build_optimizer, parameter_rules
from subquad.engine.precision import LossScaler, parameter_dtype
from subquad.engine.rng import seed_everything
from subquad.experiment import Checked
from subquad.experiment.schema import Train
from subquad.nn import Backbone, BackboneContext, Batch, Task, TokenMixer
from subquad.plugin import Site
from subquad.registry import build_class, make_mixer


@dataclass(frozen=True)
class Parts:
    """What one rank trains with.

    Attributes:
        train: the experiment's training settings.
        group: the ranks.
        task: loss and metrics.
        model: the model as it is called in training (wrapped for several ranks).
        optimizer: over the model's parameters.
        scaler: fp16 loss scaling.
        parameters: those the optimiser trains, listed once because walking the modules costs more than a small step.
    """

    train: Train
    group: Group
    task: Task
    model: nn.Module
    optimizer: Optimizer
    scaler: LossScaler
    parameters: Sequence[nn.Parameter]

    @property
    def bare_model(self) -> nn.Module:
        return bare(self.model)


def build_dataset(checked: Checked, root: Path) -> Dataset:
    """The data set, prepared."""
    dataset: Dataset = build_class(checked.dataset)(checked.dataset_config, root)
    dataset.prepare()
    return dataset


def build_model(checked: Checked, spec: DataSpec, task: Task) -> Backbone:
    """The backbone with its mixers; the same seed draws the same weights on every rank.

    Raises:
        ConfigError, PluginError: the mixer cannot stand where the backbone puts it, or has losses that forbid trimming.
    """
    seed = checked.experiment.train.seed
    seed_everything(seed)

    def make(site: Site) -> TokenMixer:
        return make_mixer(checked.mixer, checked.mixer_config, site)

    context = BackboneContext(spec=spec, num_outputs=task.num_outputs, make_mixer=make, seed=seed)
    model = build_class(checked.backbone)(checked.backbone_config, context)
    if pool := checked.experiment.train.bucket_batches:
        check_extra_losses(model, pool)
    return model.to(parameter_dtype(checked.experiment.train))


def build_task(checked: Checked, spec: DataSpec) -> Task:
    return build_class(checked.task)(checked.task_config, spec)


def build_parts(checked: Checked, task: Task, model: Backbone, group: Group) -> Parts:
    """Place and wrap a model on this rank, add its optimiser, and seed dropout's randomness per rank."""
    train, resources = checked.experiment.train, checked.experiment.resources
    torch.backends.cuda.matmul.allow_tf32 = train.tf32
    torch.backends.cudnn.allow_tf32 = train.tf32
    wrapped = wrap(model.to(group.device), group, resources.strategy, train.compile)
    sharded = resources.strategy == "fsdp2" and group.world_size > 1
    plain = bare(wrapped)
    optimizer = build_optimizer(train, plain.parameters(), rules=parameter_rules(plain), sharded=sharded)
    seed_everything(train.seed, 1, group.rank)
    return Parts(train, group, task, wrapped, optimizer, LossScaler.of(train), trained(optimizer))


def trained(optimizer: Optimizer) -> list[nn.Parameter]:
    """The parameters an optimiser updates."""
    return [one for group in optimizer.param_groups for one in group["params"]]


def training_cost(checked: Checked, spec: DataSpec) -> Cost:
    """What a step costs, counted on a model of its own, on the CPU, at the data's longest length.

    It seeds the global generators, so count before training.
    """
    train, device = checked.experiment.train, torch.device("cpu")
    task = build_task(checked, spec)
    model = build_model(checked, spec, task)
    half = train.precision in ("bf16", "fp16")  # of one width; the CPU has more kernels for the first

    def objective(batch: Batch) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            output = model(batch)
            loss, _ = task.loss(output.outputs, batch)
        return loss if output.penalty is None else loss + output.penalty.sum()

    def example(samples: int) -> Batch:
        return to_device(spec.example(samples), device, parameter_dtype(train))

    return step_cost(model, objective, example, train.batch_size)
