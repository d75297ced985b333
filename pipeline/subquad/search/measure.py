"""How long steps and evaluations take, on the real data; and that what is to be maximised is reported at all."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypedDict

import numpy as np
import torch

from subquad.data import ArrayBatch, Split
from subquad.drivers.local import device_of
from subquad.engine.evaluate import evaluate
from subquad.engine.feed import training_batches
from subquad.engine.group import Group
from subquad.engine.parts import Parts, build_parts
from subquad.engine.precision import parameter_dtype
from subquad.engine.step import train_step
from subquad.errors import PluginError
from subquad.experiment import Run
from subquad.search.materials import Materials

ROUNDS, WARM_UP, TIMED = 3, 2, 5
EVALUATED = 2
"""Batches of a timed evaluation."""
MAX_SECONDS = 4.0
"""Of a round's steps; slow models get fewer of them."""


class Timing(TypedDict):
    """Of a candidate's own experiment, with one worker.

    Attributes:
        step: seconds of a training step.
        evaluation: seconds of an evaluation on the whole validation split.
        spread: largest difference of a step's time between rounds, relative to their median.
    """

    step: float
    evaluation: float
    spread: float


@dataclass(frozen=True)
class _Round:
    """Seconds of each step after the warm-up, and of an evaluation of the whole validation split."""

    steps: list[float]
    evaluation: float


def timings(candidates: Mapping[str, Run], materials: Materials) -> dict[str, Timing]:
    """What steps and evaluations take with one worker, a batch's fetching included: medians of several rounds.

    In each round every candidate has its turn, so that what else the machine does meets all of them alike. Nothing is
    written, and nothing of it stays: a trial seeds the generators itself.

    Args:
        candidates: their own experiments, by label.
    """
    rounds = [{label: _round(one, materials) for label, one in candidates.items()} for _ in range(ROUNDS)]
    return {label: _timing([one[label] for one in rounds]) for label in candidates}


def _timing(rounds: Sequence[_Round]) -> Timing:
    step = median(seconds for one in rounds for seconds in one.steps)
    medians = [median(one.steps) for one in rounds]
    return Timing(
        step=step,
        evaluation=median(one.evaluation for one in rounds),
        spread=(max(medians) - min(medians)) / median(medians),
    )


def _round(run: Run, materials: Materials) -> _Round:
    parts = _parts(run, materials)
    return _Round(_step_seconds(parts), _evaluation_seconds(parts, materials.data(run)[0].split("validation")))


def _step_seconds(parts: Parts) -> list[float]:
    train, plan = parts.train, parts.plan
    feed = training_batches(
        parts.training, parts.task.spec.arrays, plan, 0, parts.group, train.micro_batch, 0, parameter_dtype(train)
    )
    seconds: list[float] = []
    before = start = time.perf_counter()
    for step, micros in enumerate(feed):
        train_step(parts, micros, len(plan.batch(step)[1]), parts.schedule(step))
        _wait(parts.group.device)
        now = time.perf_counter()
        seconds.append(now - before)
        before = now
        if len(seconds) == WARM_UP + TIMED or now - start > MAX_SECONDS:
            break
    return seconds[WARM_UP:] or seconds[-1:]


def _evaluation_seconds(parts: Parts, split: Split) -> float:
    """Of the whole split, by a few batches of it."""
    train = parts.train
    few = _First(split, EVALUATED * (train.eval_batch_size or train.batch_size))
    start = time.perf_counter()
    evaluate(parts, few)
    _wait(parts.group.device)
    return (time.perf_counter() - start) * len(split) / len(few)


def check_metric(run: Run, materials: Materials) -> None:
    """Refuse a task that does not report its own metric, on a model that was not trained.

    Raises:
        PluginError: what it reports instead.
    """
    dataset, _ = materials.data(run)
    metric = run.goal.metric
    metrics = evaluate(_parts(run, materials), _First(dataset.split("validation"), 2)).metrics
    if metric not in metrics:
        raise PluginError(
            f"task {run.task.found.name!r}: its metric {metric!r} is never reported, so nothing can be "
            f"selected; it reports {', '.join(metrics) or 'nothing'}"
        )


class _First(Split):
    """The first samples of a split."""

    def __init__(self, split: Split, count: int):
        self._split = split
        self._count = count

    def __len__(self) -> int:
        return min(self._count, len(self._split))

    def lengths(self) -> np.ndarray | None:
        found = self._split.lengths()
        return None if found is None else found[: len(self)]

    def fetch(self, indices: np.ndarray, *, epoch: int, seed: int) -> ArrayBatch:
        return self._split.fetch(indices, epoch=epoch, seed=seed)


def _parts(run: Run, materials: Materials) -> Parts:
    return build_parts(run, Group(device=device_of(0, run.experiment.resources)), materials.data(run)[0])


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


NOISY = 0.1
"""Difference of a step's time between rounds from which on it is told, relative to their median."""


def timing_lines(measured: Mapping[str, Timing]) -> list[str]:
    """What was measured, and a warning where it may not hold."""
    lines = [
        f"{label}: timed at {one['step'] * 1e3:.3g} ms a step, {one['evaluation'] * 1e3:.3g} ms an evaluation"
        for label, one in measured.items()
    ]
    noisy = [f"{label} ({one['spread']:.0%})" for label, one in measured.items() if one["spread"] > NOISY]
    if noisy:
        lines.append(f"steps took unequally long between rounds: {', '.join(noisy)}; is something else running here?")
    return lines
