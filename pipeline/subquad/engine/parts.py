"""The objects of one training process, built from a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from subquad.cost import Cost, step_cost
from subquad.data import Dataset, DataSpec, Split, SplitName
from subquad.engine.feed import to_device
from subquad.engine.group import Group, bare, wrap
from subquad.engine.optim import build_optimizer, parameter_rules
from subquad.engine.precision import LossScaler, parameter_dtype
from subquad.engine.rng import seed_everything
from subquad.engine.schedule import Schedule, build_schedule
from subquad.engine.seal import Seal
from subquad.engine.start import start_from
from subquad.engine.trimming import check_extra_losses, check_lengths
from subquad.errors import ConfigError
from subquad.experiment import Run
from subquad.experiment.schema import Experiment, Train
from subquad.nn import Backbone, BackboneContext, Batch, Task, TokenMixer
from subquad.plan import Plan, PlanSettings
from subquad.plugin import Site
from subquad.registry import build_class, make_mixer


@dataclass(frozen=True)
class Parts:
    """What one rank trains with.

    Attributes:
        run: what is trained.
        group: the ranks.
        plan: which samples each step uses.
        schedule: learning rate over updates.
        task: loss and metrics.
        model: the model as it is called in training (wrapped for several ranks).
        optimizer: over the model's parameters.
        scaler: fp16 loss scaling.
        parameters: those the optimiser trains, listed once because walking the modules costs more than a small step.
        training: the split that is trained on.
        selection: the split that is evaluated while training; None for a fixed number of epochs.
        start: what became of the weights it started from; None where there were none.
    """

    run: Run
    group: Group
    plan: Plan
    schedule: Schedule
    task: Task
    model: nn.Module
    optimizer: Optimizer
    scaler: LossScaler
    parameters: Sequence[nn.Parameter]
    training: Split
    selection: Split | None = None
    start: dict[str, Any] | None = None

    @property
    def train(self) -> Train:
        """The experiment's training settings."""
        return self.run.experiment.train

    @property
    def bare_model(self) -> nn.Module:
        return bare(self.model)

    @property
    def selection_name(self) -> str:
        """What records call the split that is evaluated while training."""
        return "validation" if self.run.experiment.protocol == "honest" else "test"

    def with_selection(self, dataset: Dataset, seal: Seal) -> Parts:
        """The parts with the split that the protocol selects by; of the paper's protocol that is the test split."""
        protocol = self.run.experiment.protocol
        if protocol == "honest":
            return replace(self, selection=dataset.split("validation"))
        if protocol == "paper":
            reason = "evaluation while training, the published convention (protocol: paper)"
            return replace(self, selection=seal.open(reason))
        return self


def build_dataset(run: Run) -> Dataset:
    """The data set, prepared."""
    dataset: Dataset = build_class(run.dataset)(run.dataset_config, run.data_root)
    dataset.prepare()
    return dataset


def training_split(experiment: Experiment) -> SplitName:
    """The split that is trained on: the training part under the honest protocol, else all of TRAIN."""
    return "train" if experiment.protocol == "honest" else "trainval"


def make_plan(experiment: Experiment, dataset: Dataset, split: Split | None = None) -> Plan:
    """The order of samples, which the training split chooses.

    Args:
        split: the training split, where it is open already.

    Raises:
        DataError: no validation part can be cut from TRAIN.
        ConfigError: `train.bucket_batches` cannot work with the data, or has no effect, or has to be set.
    """
    train, split = experiment.train, split or dataset.split(training_split(experiment))
    pool = train.bucket_batches
    if pool:
        check_lengths(pool, dataset.describe(), split)
    plan = split.plan(PlanSettings(train.batch_size, train.seed, train.steps, train.epochs, pool))
    if not pool and plan.total_steps and plan.length(plan.batch(0)[1]) is not None:
        raise ConfigError("train.bucket_batches: got 0, and this data set's plan trims batches; use 1 or more")
    return plan


def build_model(run: Run, spec: DataSpec, task: Task) -> Backbone:
    """The backbone with its mixers; the same seed draws the same weights on every rank.

    Raises:
        ConfigError, PluginError: the mixer cannot stand where the backbone puts it, or has losses that forbid trimming.
    """
    seed = run.experiment.train.seed
    seed_everything(seed)

    built: list[Site] = []

    def make(site: Site) -> TokenMixer:
        built.append(site)
        return make_mixer(*run.mixer_at(site), site)

    context = BackboneContext(spec=spec, num_outputs=task.num_outputs, make_mixer=make, seed=seed)
    model = build_class(run.backbone)(run.backbone_config, context)
    for number, entry in enumerate(run.experiment.mixers):
        if not any(map(entry.takes, built)):
            raise ConfigError(f"mixers[{number}]: no mixer of this model has its layers and role; leave it out")
    if pool := run.experiment.train.bucket_batches:
        check_extra_losses(model, pool)
    return model.to(parameter_dtype(run.experiment.train))


def build_task(run: Run, spec: DataSpec) -> Task:
    return build_class(run.task)(run.task_config, spec)


def build_parts(run: Run, group: Group, dataset: Dataset | None = None) -> Parts:
    """Build everything on this rank, wrap the model, add its optimiser, and seed dropout's randomness per rank.

    Args:
        run: what is trained.
        group: the ranks; every one calls this.
        dataset: the run's, where it is there already.

    Raises:
        SubquadError: on every rank alike: the run cannot be done as it is.
    """

    def build() -> tuple[Plan, Split, Task, Backbone, dict[str, Any] | None]:
        data = dataset or build_dataset(run)
        spec = data.describe()
        split, task = data.split(training_split(run.experiment)), build_task(run, spec)
        plan = make_plan(run.experiment, data, split)
        model = build_model(run, spec, task)
        return plan, split, task, model, start_from(model, run.experiment)

    train, strategy = run.experiment.train, run.experiment.resources.strategy
    plan, training, task, model, start = group.together(build)
    torch.backends.cuda.matmul.allow_tf32 = train.tf32
    torch.backends.cudnn.allow_tf32 = train.tf32
    wrapped = wrap(model.to(group.device), group, strategy, train.compile)
    plain = bare(wrapped)
    sharded = strategy == "fsdp2" and group.world_size > 1
    optimizer = build_optimizer(train, plain.parameters(), rules=parameter_rules(plain), sharded=sharded)
    seed_everything(train.seed, 1, group.rank)
    return Parts(
        run=run,
        group=group,
        plan=plan,
        schedule=build_schedule(train, plan.total_steps),
        task=task,
        model=wrapped,
        optimizer=optimizer,
        scaler=LossScaler.of(train),
        parameters=trained(optimizer),
        training=training,
        start=start,
    )


def trained(optimizer: Optimizer) -> list[nn.Parameter]:
    """The parameters an optimiser updates."""
    return [one for group in optimizer.param_groups for one in group["params"]]


def training_cost(run: Run, spec: DataSpec) -> Cost:
    """What a step costs, counted on a model of its own, on the CPU, at the data's longest length.

    It seeds the global generators, so count before training.
    """
    train, device = run.experiment.train, torch.device("cpu")
    task = build_task(run, spec)
    model = build_model(run, spec, task)
    half = train.precision in ("bf16", "fp16")  # of one width; the CPU has more kernels for the first

    def objective(batch: Batch) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            output = model(batch)
            loss, _ = task.loss(output.outputs, batch)
        return loss if output.penalty is None else loss + output.penalty.sum()

    def example(samples: int) -> Batch:
        return to_device(spec.example(samples), device, parameter_dtype(train))

    return step_cost(model, objective, example, train.batch_size)
