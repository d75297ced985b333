"""What the engine adds to a training step: its loop against a bare torch loop, and with hooks against without.

The model is so small that what surrounds it shows: one hidden layer on 64 features, 10 classes.
"""

from __future__ import annotations

import statistics
import tempfile
import time
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
from subquad.engine.loop import Signals, train_loop
from subquad.engine.optim import build_optimizer
from subquad.engine.parts import Parts, trained
from subquad.engine.precision import LossScaler
from subquad.engine.progress import Progress
from subquad.engine.schedule import build_schedule
from subquad.engine.usage import Usage
from subquad.experiment import Run
from subquad.experiment.schema import Component, Experiment, Train
from subquad.nn import Backbone, Batch, ModelOutput, Task
from subquad.plan import Permutation, PlanSettings
from subquad.plugin import Config, TaskPlugin
from subquad.registry import Found, Resolved

_FEATURES, _CLASSES, _SAMPLES, _BATCH = 64, 10, 4096, 32


@dataclass(frozen=True)
class Overhead:
    """Milliseconds per step, medians over rounds of CPU time.

    Attributes:
        with_it, without_it: the two loops.
        added: median of the differences, round by round.
        rounds, steps: how often, and steps a round.
    """

    with_it: float
    without_it: float
    added: float
    rounds: int
    steps: int


def measure_engine(rounds: int, steps: int) -> Overhead:
    """The engine's loop against a bare torch loop, on this process's CPU time.

    Blocks are long, so that the one checkpoint of each is small.
    """
    torch.set_num_threads(1)
    parts = _parts(steps)
    clock = time.process_time
    return _overhead(
        lambda: _engine_steps(parts, steps), clock, lambda: _bare_steps(parts, steps), clock, rounds, steps
    )


def measure_hooks(asked_to_stop: Callable[[], int], rounds: int, steps: int) -> Overhead:
    """The engine's loop with a look at `asked_to_stop` in each step against none.

    With it the whole process's CPU time counts, and so all that other threads of a worker do meanwhile; without it
    that of this thread alone.
    """
    torch.set_num_threads(1)
    parts = _parts(steps)
    return _overhead(
        lambda: _engine_steps(parts, steps, asked_to_stop),
        time.process_time,
        lambda: _engine_steps(parts, steps),
        time.thread_time,
        rounds,
        steps,
    )


def _overhead(
    one: Callable[[], None],
    its_clock: Callable[[], float],
    other: Callable[[], None],
    other_clock: Callable[[], float],
    rounds: int,
    steps: int,
) -> Overhead:
    """Both in turn, after a warm-up round."""
    pairs = [(_timed(one, its_clock, steps), _timed(other, other_clock, steps)) for _ in range(rounds + 1)][1:]
    with_it, without_it = (statistics.median(times) for times in zip(*pairs, strict=True))
    added = statistics.median(with_it - without_it for with_it, without_it in pairs)
    return Overhead(with_it, without_it, added, rounds=rounds, steps=steps)


def _timed(action: Callable[[], None], clock: Callable[[], float], steps: int) -> float:
    """Milliseconds per step."""
    start = clock()
    action()
    return 1e3 * (clock() - start) / steps


class _Task(Task):
    """Cross entropy."""

    @property
    def num_outputs(self) -> int:
        return _CLASSES

    def loss(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        return functional.cross_entropy(outputs, batch["labels"], reduction="sum"), torch.tensor(float(_BATCH))

    def sums(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        return {"hits": (outputs.argmax(-1) == batch["labels"]).sum(), "count": torch.tensor(len(outputs))}

    def metrics(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        return {"accuracy": float(sums["hits"]) / float(sums["count"])}


class _TinyModel(Backbone):
    """Two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(_FEATURES, _FEATURES)])
        self.head = nn.Linear(_FEATURES, _CLASSES)

    def forward(self, batch: Batch) -> ModelOutput:
        return ModelOutput(self.head(self.blocks[0](batch["inputs"]).relu()))


def _parts(steps: int) -> Parts:
    """The small problem."""
    torch.manual_seed(0)
    settings = Train(epochs=None, steps=steps, eval_every_epochs=None, clip_norm=1.0, batch_size=_BATCH)
    model = wrap(_TinyModel(), Group(), "ddp", compile_blocks=False)
    optimizer = build_optimizer(settings, bare(model).parameters())
    generator = np.random.default_rng(0)
    inputs = generator.standard_normal((_SAMPLES, _FEATURES), dtype=np.float32)
    return Parts(
        run=_run(settings),
        group=Group(),
        plan=Permutation(_SAMPLES, PlanSettings(_BATCH, 0, steps=steps)),
        schedule=build_schedule(settings, steps),
        task=_Task(Config(), DataSpec(arrays={}, num_classes=_CLASSES)),
        model=model,
        optimizer=optimizer,
        scaler=LossScaler.of(settings),
        parameters=trained(optimizer),
        training=ArraySplit({"inputs": inputs, "labels": generator.integers(0, _CLASSES, _SAMPLES)}),
    )


def _run(settings: Train) -> Run:
    """A run without a folder, whose plugins only have names."""
    name = Component(name="small")
    task = TaskPlugin(config=Config, build=_Task, summary="", targets=(), metric="accuracy")
    plugin = Resolved(task, Found("task", "small", "subquad", "", ""))
    return Run(
        experiment=Experiment(dataset=name, task=name, backbone=name, mixer=name, train=settings),
        mixer=plugin,
        backbone=plugin,
        task=plugin,
        dataset=plugin,
        mixer_config=Config(),
        backbone_config=Config(),
        task_config=Config(),
        dataset_config=Config(),
        label="small",
    )


def _bare_steps(parts: Parts, steps: int) -> None:
    """The same updates as the engine makes, written as anyone would write them in plain torch."""
    model, optimizer = parts.model, parts.optimizer
    parameters = list(model.parameters())
    arrays = parts.training.fetch(np.arange(_SAMPLES), epoch=0, seed=0)
    inputs, labels = (torch.from_numpy(arrays[name]) for name in ("inputs", "labels"))
    for epoch in range(-(-steps * _BATCH // _SAMPLES)):
        order = torch.randperm(_SAMPLES, generator=torch.Generator().manual_seed(epoch))
        for start in range(0, min(_SAMPLES, (steps * _BATCH) - epoch * _SAMPLES), _BATCH):
            indices = order[start : start + _BATCH]
            optimizer.zero_grad(set_to_none=True)
            outputs = model({"inputs": inputs[indices]}).outputs
            loss = functional.cross_entropy(outputs, labels[indices])
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()


def _engine_steps(parts: Parts, steps: int, asked_to_stop: Callable[[], int] = lambda: 0) -> None:
    """The engine's loop, with its logging and the checkpoint at its end."""
    with tempfile.TemporaryDirectory(prefix="subquad-bench-") as scratch:
        log = MetricsLog(Path(scratch), 0, 1)
        placed = replace(parts, run=replace(parts.run, place=Path(scratch)))
        train_loop(placed, Signals(asked_to_stop), Progress(), log, Usage(parts.group))
        log.close()
