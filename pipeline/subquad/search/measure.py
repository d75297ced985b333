"""How long a step takes, from a few real ones on the real data; and that what is to be maximised is reported at all."""

from __future__ import annotations

import time
from statistics import median

import numpy as np
import torch

from subquad.data import ArrayBatch, Split
from subquad.drivers.local import device_of
from subquad.engine.evaluate import evaluate
from subquad.engine.feed import training_batches
from subquad.engine.group import Group
from subquad.engine.parts import Parts, build_model, build_parts, build_task
from subquad.engine.plan import Plan
from subquad.engine.precision import parameter_dtype
from subquad.engine.run import make_plan
from subquad.engine.schedule import build_schedule
from subquad.engine.step import train_step
from subquad.errors import PluginError
from subquad.experiment import Checked
from subquad.plugin import TaskPlugin
from subquad.search.materials import Materials

WARM_UP, TIMED = 2, 5
MAX_SECONDS = 10.0
"""Of timed steps; slow models get fewer of them."""


def step_seconds(checked: Checked, materials: Materials) -> float:
    """Median seconds of a training step with one worker, its batch's fetching included.

    Nothing is written, and nothing of it stays: a trial seeds the generators itself.
    """
    parts, plan = _parts(checked, materials)
    train = checked.experiment.train
    dataset, _ = materials.data(checked)
    feed = training_batches(dataset.split("train"), plan, 0, parts.group, train.micro_batch, 0, parameter_dtype(train))
    schedule = build_schedule(train, plan.total_steps)
    seconds: list[float] = []
    before = start = time.perf_counter()
    for step, micros in enumerate(feed):
        train_step(parts, micros, len(plan.batch(step)[1]), schedule(step))
        _wait(parts.group.device)
        now = time.perf_counter()
        seconds.append(now - before)
        before = now
        if len(seconds) == WARM_UP + TIMED or now - start > MAX_SECONDS:
            break
    return median(seconds[WARM_UP:] or seconds)


def check_metric(checked: Checked, materials: Materials) -> None:
    """Refuse a task that does not report its own metric, on a model that was not trained.

    Raises:
        PluginError: what it reports instead.
    """
    task = checked.task.plugin
    assert isinstance(task, TaskPlugin)
    parts, _ = _parts(checked, materials)
    dataset, _ = materials.data(checked)
    metrics = evaluate(parts, _First(dataset.split("validation"))).metrics
    if task.metric not in metrics:
        raise PluginError(
            f"task {checked.task.found.name!r}: its metric {task.metric!r} is never reported, so nothing can be "
            f"selected; it reports {', '.join(metrics) or 'nothing'}"
        )


class _First(Split):
    """The first two samples of a split."""

    def __init__(self, split: Split):
        self._split = split

    def __len__(self) -> int:
        return min(2, len(self._split))

    def fetch(self, indices: np.ndarray, *, epoch: int, seed: int) -> ArrayBatch:
        return self._split.fetch(indices, epoch=epoch, seed=seed)


def _parts(checked: Checked, materials: Materials) -> tuple[Parts, Plan]:
    dataset, spec = materials.data(checked)
    task = build_task(checked, spec)
    group = Group(device=device_of(0, checked.experiment.scale))
    parts = build_parts(checked, task, build_model(checked, spec, task), group)
    return parts, make_plan(checked.experiment, dataset)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
