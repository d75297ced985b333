"""A model so small that what surrounds it shows: one linear layer on 64 features, 10 classes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from subquad.data import ArraySplit, DataSpec
from subquad.engine.group import Group, bare, wrap
from subquad.engine.log import MetricsLog
from subquad.engine.loop import Signals, train
from subquad.engine.optim import build_optimizer
from subquad.engine.parts import Parts, trained
from subquad.engine.plan import Plan
from subquad.engine.precision import LossScaler
from subquad.engine.progress import Progress
from subquad.engine.schedule import build_schedule
from subquad.experiment import Run
from subquad.experiment.schema import Component, Experiment, Train
from subquad.nn import Backbone, Batch, ModelOutput, Task
from subquad.plugin import Config, TaskPlugin
from subquad.registry import Found, Resolved

FEATURES, CLASSES, SAMPLES, BATCH = 64, 10, 4096, 32


class ToyTask(Task):
    """Cross entropy."""

    @property
    def num_outputs(self) -> int:
        return CLASSES

    def loss(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        return functional.cross_entropy(outputs, batch["labels"], reduction="sum"), torch.tensor(float(BATCH))

    def sums(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        return {"hits": (outputs.argmax(-1) == batch["labels"]).sum(), "count": torch.tensor(len(outputs))}

    def metrics(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        return {"accuracy": float(sums["hits"]) / float(sums["count"])}


class ToyModel(Backbone):
    """Two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(FEATURES, FEATURES)])
        self.head = nn.Linear(FEATURES, CLASSES)

    def forward(self, batch: Batch) -> ModelOutput:
        return ModelOutput(self.head(self.blocks[0](batch["inputs"]).relu()))


@dataclass(frozen=True)
class Toy:
    """Parts of the toy problem, and what a bare loop needs of them."""

    parts: Parts
    inputs: Tensor
    labels: Tensor


def _run(train: Train) -> Run:
    """A run without a folder, whose plugins only have names."""
    name = Component(name="toy")
    task = TaskPlugin(config=Config, build=ToyTask, summary="", targets=(), metric="accuracy")
    plugin = Resolved(task, Found("task", "toy", "subquad", "", ""))
    return Run(
        experiment=Experiment(dataset=name, task=name, backbone=name, mixer=name, train=train),
        mixer=plugin,
        backbone=plugin,
        task=plugin,
        dataset=plugin,
        mixer_config=Config(),
        backbone_config=Config(),
        task_config=Config(),
        dataset_config=Config(),
        label="toy",
    )


def build(group: Group | None = None, steps: int = 1000) -> Toy:
    """The toy problem on this rank."""
    group = group or Group()
    torch.manual_seed(0)
    train_settings = Train(epochs=None, steps=steps, eval_every_epochs=None, clip_norm=1.0, batch_size=BATCH)
    model = wrap(ToyModel(), group, "ddp", compile_blocks=False)
    optimizer = build_optimizer(train_settings, bare(model).parameters())
    task = ToyTask(Config(), DataSpec(arrays={}, num_classes=CLASSES))
    generator = np.random.default_rng(0)
    inputs = generator.standard_normal((SAMPLES, FEATURES), dtype=np.float32)
    labels = generator.integers(0, CLASSES, SAMPLES)
    split = ArraySplit({"inputs": inputs, "labels": labels})
    parts = Parts(
        run=_run(train_settings),
        group=group,
        plan=Plan(SAMPLES, BATCH, 0, steps),
        schedule=build_schedule(train_settings, steps),
        task=task,
        model=model,
        optimizer=optimizer,
        scaler=LossScaler.of(train_settings),
        parameters=trained(optimizer),
        training=split,
    )
    return Toy(parts, torch.from_numpy(inputs), torch.from_numpy(labels))


def bare_steps(toy: Toy, steps: int) -> None:
    """The same updates as the engine makes, written as anyone would write them in plain torch."""
    model, optimizer = toy.parts.model, toy.parts.optimizer
    parameters = list(model.parameters())
    for epoch in range(-(-steps * BATCH // SAMPLES)):
        order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(epoch))
        for start in range(0, min(SAMPLES, (steps * BATCH) - epoch * SAMPLES), BATCH):
            indices = order[start : start + BATCH]
            optimizer.zero_grad(set_to_none=True)
            outputs = model({"inputs": toy.inputs[indices]}).outputs
            loss = functional.cross_entropy(outputs, toy.labels[indices])
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()


def engine_steps(toy: Toy, steps: int, asked_to_stop: Callable[[], int] = lambda: 0) -> None:
    """The engine's loop, with its logging and the checkpoint at its end."""
    with tempfile.TemporaryDirectory(prefix="subquad-bench-") as scratch:
        parts = replace(
            toy.parts,
            run=replace(toy.parts.run, place=Path(scratch)),
            plan=replace(toy.parts.plan, total_steps=steps),
            schedule=build_schedule(toy.parts.train, steps),
        )
        log = MetricsLog(Path(scratch), 0, 1)
        train(parts, Signals(asked_to_stop), Progress(), log)
        log.close()
