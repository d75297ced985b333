"""Learning rate as a pure function of the updates done, so that a checkpoint needs no scheduler state."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from subquad.experiment.schema import Train

# torch.optim.lr_scheduler.OneCycleLR's defaults, which the LRA code base runs with.
ONE_CYCLE_START, ONE_CYCLE_END = 25.0, 1e4
ONE_CYCLE_MOMENTUM = (0.85, 0.95)


@dataclass(frozen=True)
class Rates:
    """What the next update uses.

    Attributes:
        lr: learning rate.
        momentum: beta1 (or SGD momentum) where the schedule cycles it, else None.
    """

    lr: float
    momentum: float | None = None


Schedule = Callable[[int], Rates]


def build_schedule(train: Train, total_steps: int) -> Schedule:
    """The schedule of an experiment over `total_steps` updates; called with the number of updates already done."""
    if train.schedule == "one-cycle":
        return lambda done: _one_cycle(train, total_steps, done)
    return lambda done: Rates(train.lr * _warmup(train, done) * _decay(train, total_steps, done))


def _warmup(train: Train, done: int) -> float:
    return min(1.0, (done + 1) / (train.warmup_steps + 1))


def _decay(train: Train, total_steps: int, done: int) -> float:
    if train.schedule == "constant":
        return 1.0
    span = max(1, total_steps - train.warmup_steps)
    progress = min(1.0, max(0.0, (done - train.warmup_steps) / span))
    left = 1.0 - progress if train.schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * progress))
    return train.min_lr_ratio + (1.0 - train.min_lr_ratio) * left


def _one_cycle(train: Train, total_steps: int, done: int) -> Rates:
    """Linear one-cycle with momentum cycling, equal to OneCycleLR(anneal_strategy="linear").

    Without warm-up steps the rise takes 30 % of the run, OneCycleLR's default.
    """
    rise = float(train.warmup_steps or 0.3 * total_steps) - 1.0
    last = float(total_steps - 1)
    low, high = ONE_CYCLE_MOMENTUM
    start, end = train.lr / ONE_CYCLE_START, train.lr / ONE_CYCLE_START / ONE_CYCLE_END
    if done <= rise or last <= rise:
        part = min(1.0, done / max(rise, 1e-9)) if rise > 0 else 1.0
        return Rates(start + part * (train.lr - start), high + part * (low - high))
    part = min(1.0, (done - rise) / (last - rise))
    return Rates(train.lr + part * (end - train.lr), low + part * (high - low))
