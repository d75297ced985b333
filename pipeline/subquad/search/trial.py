"""What is known of a trial."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from subquad.space import Point

State = Literal["waiting", "running", "finished", "pruned", "failed", "infeasible"]

ENDED: tuple[State, ...] = ("finished", "pruned", "failed", "infeasible")


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One evaluation of a trial on the validation split.

    Attributes:
        step: optimiser steps done.
        value: the task's metric; NaN where it could not be computed.
        loss: validation loss, for ties; NaN where there is none.
    """

    step: int
    value: float
    loss: float = math.nan


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One trial of a search, as its folder has it.

    Attributes:
        subject: what is searched for, a cell of the study without its seed; "" for a single experiment.
        number: 0, 1, 2, ... within the subject, in the order of suggestion.
        point: the point of the space.
        state: "waiting" before its first step; "infeasible": the plugin or the data refuse the point.
        curve: its evaluations so far, by step.
        total_steps: steps of the whole trial.
        steps: steps done.
        flops: consumed, by the model's counted cost; 0 where not known.
        seconds: training time consumed.
        reason: why it was pruned, failed or is infeasible.
    """

    subject: str
    number: int
    point: Point
    state: State
    curve: tuple[Evaluation, ...] = ()
    total_steps: int = 0
    steps: int = 0
    flops: float = 0.0
    seconds: float = 0.0
    reason: str = ""

    @property
    def ended(self) -> bool:
        return self.state in ENDED


def better(one: Evaluation, other: Evaluation, mode: Literal["max", "min"]) -> bool:
    """Whether `one` is the better evaluation: by value, of equal ones by loss; NaN is worse than anything."""
    if math.isnan(one.value) or math.isnan(other.value):
        return math.isnan(other.value) and not math.isnan(one.value)
    if one.value != other.value:
        return one.value > other.value if mode == "max" else one.value < other.value
    return one.loss < other.loss


def best_of(curve: tuple[Evaluation, ...], mode: Literal["max", "min"]) -> Evaluation | None:
    """The best evaluation of a curve, the earlier one of equals; None where none has a value."""
    best: Evaluation | None = None
    for one in curve:
        if not math.isnan(one.value) and (best is None or better(one, best, mode)):
            best = one
    return best
