"""What the engine and Ray add to a training step, in CPU milliseconds.

    python benchmarks/overhead.py [engine] [ray] [--rounds 15] [--steps 2048] [--json]

The engine's loop is timed in turn with a bare torch loop. Steps with and without Ray's hooks are
timed in turn, in one Ray Train worker.

The model is so small that what surrounds it shows: one hidden layer on 64 features, 10 classes.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from subquad.data import ArraySplit, DataSpec
from subquad.engine.group import Group
from subquad.engine.log import MetricsLog, Usage
from subquad.engine.loop import Signals, train_loop
from subquad.engine.optim import LossScaler, build_optimizer
from subquad.engine.parts import Parts
from subquad.engine.state import Progress
from subquad.experiment import Run
from subquad.experiment.schema import Component, Experiment, Resources, Train
from subquad.nn import Backbone, Batch, ModelOutput, Task
from subquad.plan import Permutation, PlanSettings
from subquad.plugin import Config, Metric, TaskPlugin
from subquad.registry import Found, Resolved
from subquad_tools.bench.clock import in_turn

_FEATURES, _CLASSES, _SAMPLES, _BATCH = 64, 10, 4096, 32


def measure_engine(
    rounds: int, steps: int, asked_to_stop: Callable[[], int] | None = None
) -> dict[str, float]:
    """The engine's loop in turn with a bare torch loop, or with itself without a look at
    `asked_to_stop` in each step.

    Blocks are long, so that the one checkpoint of each is small. The whole process's CPU time
    counts, and so all that other threads of a worker do meanwhile; of the loop without a look that
    of its thread alone.

    Returns:
        milliseconds per step, medians over rounds after a warm-up: `with_it`, `without_it`, and
        `added`, of the differences round by round; `rounds` and `steps` as given.
    """
    torch.set_num_threads(1)
    parts = _parts(steps)
    with_it = partial(_engine_steps, parts, steps, asked_to_stop or (lambda: 0))
    without_it = partial(_engine_steps if asked_to_stop else _bare_steps, parts, steps)
    clocks = time.process_time, time.thread_time if asked_to_stop else time.process_time
    blocks = [partial(_timed, *block) for block in zip((with_it, without_it), clocks, strict=True)]
    pairs = [[1e3 * taken / steps for taken in pair] for pair in in_turn(blocks, rounds + 1)[1:]]
    one, other = (median(times) for times in zip(*pairs, strict=True))
    added = median(one - other for one, other in pairs)
    return {"with_it": one, "without_it": other, "added": added, "rounds": rounds, "steps": steps}


def _timed(action: Callable[[], None], clock: Callable[[], float]) -> float:
    start = clock()
    action()
    return clock() - start


class _Task(Task):
    """Cross entropy of whole batches."""

    whole = torch.tensor(float(_BATCH))

    @property
    def num_outputs(self) -> int:
        return _CLASSES

    def loss(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        return functional.cross_entropy(outputs, batch["labels"], reduction="sum"), self.whole

    def sums(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        return {
            "hits": (outputs.argmax(-1) == batch["labels"]).sum(),
            "count": torch.tensor(len(outputs)),
        }

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
    settings = Train(
        epochs=None, steps=steps, eval_every_epochs=None, clip_norm=1.0, batch_size=_BATCH
    )
    model = _TinyModel()
    generator = np.random.default_rng(0)
    inputs = generator.standard_normal((_SAMPLES, _FEATURES), dtype=np.float32)
    return Parts(
        run=_run(settings),
        group=Group(),
        plan=Permutation(_SAMPLES, PlanSettings(_BATCH, 0, steps=steps)),
        task=_Task(Config(), DataSpec(arrays={}, num_classes=_CLASSES)),
        model=model,
        bare_model=model,
        optimizer=build_optimizer(settings, model),
        scaler=LossScaler.of(settings),
        training=ArraySplit(
            {"inputs": inputs, "labels": generator.integers(0, _CLASSES, _SAMPLES)}
        ),
    )


def _run(settings: Train) -> Run:
    """A run without a folder, whose plugins only have names."""
    kinds = ("dataset", "task", "backbone", "mixer")
    task = TaskPlugin(
        config=Config, build=_Task, summary="", targets=(), reports={"accuracy": Metric(unit="%")}
    )
    plugin = Resolved(task, Found("task", "small", "subquad", "", ""))
    plugins: dict[str, Any] = dict.fromkeys(kinds, plugin) | {
        f"{kind}_config": Config() for kind in kinds
    }
    return Run(
        experiment=Experiment(**dict.fromkeys(kinds, Component(name="small")), train=settings),
        label="small",
        **plugins,
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
        log = MetricsLog(Path(scratch), 1, parts.plan)
        placed = replace(parts, run=replace(parts.run, place=Path(scratch)))
        train_loop(placed, Signals(asked_to_stop), Progress(), log, Usage(parts.group))
        log.close()


def _ray(rounds: int, steps: int) -> dict[str, float]:
    from subquad.ray.cluster import OwnCluster
    from subquad.ray.driver import driver_here
    from subquad.ray.machines import node_here
    from subquad.ray.train import fit_workers

    cluster = OwnCluster()
    config = {"rounds": rounds, "steps": steps}

    def work() -> dict[str, float]:
        with driver_here(lambda question: None, lambda: 0, print):
            return fit_workers(_hooks, config, Resources(), node_here())

    try:
        outcome = cluster.do(work)
    finally:
        cluster.stop()
    if "raised" in outcome:
        raise outcome["raised"]
    return outcome["returned"]


def _hooks(config: dict[str, Any]) -> dict[str, float]:
    """What it costs to ask in each step whether to stop; runs in a Ray Train worker."""
    from subquad.execution.signals import stop_watch
    from subquad.ray.driver import driver_signum

    return measure_engine(config["rounds"], config["steps"], stop_watch(driver_signum))


_OVERHEADS = {"engine": measure_engine, "ray": _ray}
_OVER = {"engine": "a bare torch loop", "ray": "the engine without Ray's hooks"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("of", nargs="*", choices=[*_OVERHEADS, []], metavar="engine|ray")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=2048)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    found = {what: _OVERHEADS[what](given.rounds, given.steps) for what in given.of or _OVERHEADS}
    if given.json:
        print(json.dumps({"what": "overhead", **found}))
        return
    for what, figures in found.items():
        told = "  ".join(
            f"{key.removesuffix('_it')} {figures[key]:.4f}"
            for key in ("with_it", "without_it", "added")
        )
        print(f"{what} over {_OVER[what]}: {told} ms per step")
    print(f"CPU time, medians of {given.rounds} blocks of {given.steps} steps")


if __name__ == "__main__":
    main()
