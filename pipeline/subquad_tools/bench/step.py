"""What a training step costs: forward, backward, optimiser and the whole, of several runs in
turn in one process.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Any

import torch

from subquad.data import Dataset
from subquad.engine.feed import Micro, training_batches
from subquad.engine.group import Group
from subquad.engine.optim import Rates
from subquad.engine.parts import Parts, build_dataset, build_parts, training_cost
from subquad.engine.step import train_step
from subquad.experiment import Run
from subquad_tools.bench.clock import in_turn, one_thread
from subquad_tools.bench.memory import added_memory
from subquad_tools.bench.rows import Measured, torch_device

_BLOCK_SECONDS = 0.25
"""Steps are repeated for so long, at least once."""

_ENDLESS = 1 << 40
_PHASES: tuple[str, ...] = ("forward", "backward", "optimizer")
"""Of a step: the model; loss, gradients, their norm and clipping; the update. The whole has a
little besides.
"""


def feed(parts: Parts, workers: int) -> Generator[tuple[list[Micro], int]]:
    """The training data, endlessly, as a run has it that starts anew."""
    plan = parts.plan
    yield from training_batches(
        replace(parts, plan=replace(plan, settings=replace(plan.settings, steps=_ENDLESS))),
        0,
        workers,
    )


class Steps:
    """Training steps of one run on batches that are there already.

    Args:
        parts: of the run.
        mark: called when a phase begins, with its name, and with "" when one ends.
    """

    def __init__(self, parts: Parts, mark: Callable[[str], None] = lambda phase: None):
        self.parts = parts
        model = parts.model
        model.register_forward_pre_hook(lambda *_: mark("forward"))
        model.register_forward_hook(lambda *_: mark("backward"))
        optimizer = parts.optimizer
        optimizer.register_step_pre_hook(lambda *_: mark("optimizer"))
        optimizer.register_step_post_hook(lambda *_: mark(""))
        self._mark = mark
        self._feed = feed(parts, 0)
        self.advance()

    def advance(self) -> None:
        """Take the next batch."""
        self.micros, self.samples = next(self._feed)

    def make(self) -> None:
        """One step, of rate zero: it costs as much and leaves the weights, so that every round
        does the same work.
        """
        self._mark("")
        train_step(self.parts, self.micros, self.samples, Rates(0.0))
        self._mark("")


def measure_steps(runs: Sequence[Run], rounds: int = 5, device: str = "cpu") -> Measured:
    """Time the steps of several runs in turn; on the CPU in one thread, by CPU time. TRAIN only.

    Args:
        runs: of those that differ in their seed alone the first is measured.
        rounds: blocks of each.
        device: "cpu", "cuda", "cuda:1".

    Returns:
        JSON values. `steps`: see `_Row.found`, each over the first run of its data set; `rounds`;
        `device`.

    Raises:
        DataError: the data set cannot be read or generated.
        ConfigError, PluginError: a model cannot be built.
    """
    group = Group(device=torch_device(device))
    datasets: dict[str, Dataset] = {}
    with one_thread() if device == "cpu" else nullcontext():
        rows = [_Row(run, group, datasets) for run in _different(runs)]
        in_turn([row.block for row in rows], rounds + 1)
    firsts: dict[str, _Row] = {}
    steps = [row.found(firsts.setdefault(row.run.dataset_label, row)) for row in rows]
    return {"steps": steps, "rounds": rounds, "device": device}


def _different(runs: Iterable[Run]) -> list[Run]:
    """The first run of each seed's siblings."""
    found: dict[str, Run] = {}
    for run in runs:
        settings = run.experiment.model_dump(mode="json")
        settings["train"].pop("seed")
        found.setdefault(json.dumps(settings, sort_keys=True), run)
    return [*found.values()]


class _Row:
    """A run that is measured beside others."""

    def __init__(self, run: Run, group: Group, datasets: dict[str, Dataset]):
        """Build it, on a data set that is open where another run has the same; count, warm up."""
        self.run = run
        self._marks: list[tuple[str, Any]] = []
        self._blocks: list[dict[str, float]] = []
        key = f"{run.dataset.found} {run.dataset_config!r}"
        if key not in datasets:
            datasets[key] = build_dataset(run)
        parts = build_parts(run, group, datasets[key])
        self._cost = training_cost(run, datasets[key].describe())
        self._device = group.device
        self._steps = Steps(parts, self._mark)
        self._steps.make()
        # else the profiler warns of memory that it did not see
        parts.optimizer.zero_grad(set_to_none=True)
        self._memory = added_memory(self._steps.make, group.device)

    def block(self) -> None:
        """Note seconds of a step on the next batch, by phase and of the `whole`; `samples` and
        `tokens` in it.
        """
        steps = self._steps
        steps.advance()
        self._marks.clear()
        end_time = time.perf_counter() + _BLOCK_SECONDS
        count = 0
        while not count or time.perf_counter() < end_time:
            steps.make()
            count += 1
        found = dict.fromkeys((*_PHASES, "whole"), 0.0)
        for (phase, begin), (_, end) in pairwise(self._marks):
            taken = _between(begin, end) / count
            found["whole"] += taken
            if phase:
                found[phase] += taken
        self._blocks.append({**found, "samples": steps.samples, "tokens": _tokens(steps)})

    def found(self, first: _Row) -> Measured:
        """Medians over rounds, but for the first one, in which caches fill.

        Args:
            first: the first run on the same data.

        Returns:
            `run`, `dataset`, `mixer`; milliseconds of a step (`whole_ms`) and of its phases;
            `ratio`: of the whole over that of the first run on the same data; `samples_per_second`,
            `tokens_per_second` (real ones; None where samples have no length); `peak_mib`: what a
            step adds to memory at its peak, in MiB; `parameters`; `gflop`: of a step, counted, in
            1e9, None where not known.
        """
        blocks = self._blocks[1:]
        flops = self._cost.flops_per_step

        def over_whole(key: str) -> float:
            return median(times[key] / times["whole"] for times in blocks)

        milliseconds = {}
        for phase in (*_PHASES, "whole"):
            milliseconds[f"{phase}_ms"] = 1e3 * median(times[phase] for times in blocks)
        both = zip(blocks, first._blocks[1:], strict=True)
        return {
            "run": self.run.label,
            "dataset": self.run.dataset_label,
            "mixer": self.run.mixer.found.name,
            **milliseconds,
            "ratio": median(own["whole"] / other["whole"] for own, other in both),
            "samples_per_second": over_whole("samples"),
            "tokens_per_second": over_whole("tokens") or None,
            "peak_mib": self._memory / 2**20,
            "parameters": self._cost.parameters,
            "gflop": None if flops is None else flops / 1e9,
        }

    def _mark(self, phase: str) -> None:
        if self._device.type == "cuda":
            moment = torch.cuda.Event(enable_timing=True)
            moment.record()
        else:
            moment = time.process_time()
        self._marks.append((phase, moment))


def _between(begin: Any, end: Any) -> float:
    """Seconds between two marks."""
    if isinstance(end, float):
        return end - begin
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


def _tokens(steps: Steps) -> int:
    """Real tokens of a batch; 0 where samples have no length."""
    masks = {
        name for name, array in steps.parts.task.spec.arrays.items() if array.axes == ("length",)
    }
    total = 0
    for batch, *_ in steps.micros:
        for name, array in batch.items():
            if array.dtype == torch.bool and name in masks:
                total += int(array.sum())
                break
    return total
