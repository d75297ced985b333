"""What trials of all candidates are given alike: the FLOPs of a trial, its time, or the parameters of the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from subquad.errors import ConfigError
from subquad.experiment.schema import Train

Values = dict[str, Any]
"""Settings by dotted key."""

TOLERANCE = 0.05
"""Largest difference in parameters or FLOPs that still counts as equal."""

LENGTH_KEYS = ("train.epochs", "train.steps", "train.eval_every_epochs", "train.eval_every_steps")
"""Settings that a number of steps decides."""


def evaluated_every(train: Train, steps_per_epoch: int) -> int | None:
    """Steps between evaluations; None where there is one at the end only."""
    return train.eval_every_steps if train.eval_every_epochs is None else train.eval_every_epochs * steps_per_epoch


def evaluations(train: Train, steps: int, steps_per_epoch: int) -> int:
    """How often a run of `steps` steps is evaluated; there is always one at its end."""
    every = evaluated_every(train, steps_per_epoch)
    return 1 if every is None else -(-steps // every)


def of_length(train: Train, own_steps: int, steps_per_epoch: int, steps: int) -> Values:
    """Settings for a run of `steps` steps that evaluates as often, and warms up for as large a part of it, as before.

    Args:
        train: the run's settings, for `own_steps` steps.
        steps: wanted, at least 1.
    """
    if steps == own_steps:
        return {}
    values: Values = {"train.epochs": None, "train.steps": steps}
    every = evaluated_every(train, steps_per_epoch)
    values["train.eval_every_epochs"] = None
    values["train.eval_every_steps"] = None if every is None else min(steps, max(1, every * steps // own_steps))
    if train.warmup_steps:
        values["train.warmup_steps"] = min(steps - 1, round(train.warmup_steps * steps / own_steps))
    if train.checkpoint_every_steps is not None:
        values["train.checkpoint_every_steps"] = min(steps, train.checkpoint_every_steps)
    return values


def steps_for(whole: float, of_one_step: float) -> int:
    """How many steps use up `whole`, at least one."""
    return max(1, round(whole / of_one_step))


def steps_of_flops(whole: float, of_one_step: int) -> int:
    """How many steps use up `whole` FLOPs.

    Raises:
        ConfigError: no whole number of them comes within `TOLERANCE`.
    """
    steps = steps_for(whole, of_one_step)
    if (off := abs(steps * of_one_step - whole) / whole) > TOLERANCE:
        raise ConfigError(
            f"no number of steps has {whole:.3g} FLOPs within {TOLERANCE:.0%}: the nearest, {steps}, is {off:.0%} off; "
            "longer trials come nearer (train.steps, train.epochs)"
        )
    return steps


def width_for(target: int, count: Callable[[int], int], start: int, *, step: int = 1) -> int:
    """The width with which a model comes nearest to `target` parameters.

    Args:
        count: parameters at a width; it grows with the width.
        start: a width that works.
        step: widths are multiples of it.

    Raises:
        ConfigError: no width comes within `TOLERANCE`.
    """
    low, high = 1, max(1, start // step)
    while count(high * step) < target and high * step < 2**20:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle * step) < target else (low, middle)
    width = min((low * step, high * step), key=lambda one: abs(count(one) - target))
    if (off := abs(count(width) - target) / target) > TOLERANCE:
        raise ConfigError(
            f"no width gives {target:,} parameters within {TOLERANCE:.0%}: the nearest, {width}, has "
            f"{count(width):,}, which is {off:.0%} off"
        )
    return width
