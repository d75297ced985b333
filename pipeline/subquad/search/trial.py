"""What is known of a trial, what is after in a search, and which trial is better."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Literal

from subquad.metric import Metric, Mode, metric_of
from subquad.space import Point

State = Literal["waiting", "running", "finished", "pruned", "failed", "infeasible"]
ENDED: tuple[State, ...] = ("finished", "pruned", "failed", "infeasible")

CostBy = Literal["none", "seconds", "flops"]


@dataclass(frozen=True)
class Goal:
    """What a search is after.

    Attributes:
        metric: of the task, on the validation split.
        mode: whether more or less of it is better.
        shown: how the metric is called and printed.
        cost: a second objective, less of it is better: training seconds or counted FLOPs of a trial.
    """

    metric: str
    mode: Mode
    cost: CostBy = "none"
    shown: Metric = field(default_factory=Metric, compare=False)

    def text(self, value: float) -> str:
        """`accuracy 91.23 %`."""
        return metric_of({self.metric: self.shown}, self.metric).text(value)

    @property
    def label(self) -> str:
        """`accuracy (%)`."""
        return metric_of({self.metric: self.shown}, self.metric).with_unit

    def scaled(self, value: float) -> float:
        """A value in the unit of print."""
        return self.shown.scaled(value)

    @property
    def directions(self) -> list[Literal["maximize", "minimize"]]:
        """Of its objectives, in Optuna's words."""
        return ["maximize" if self.mode == "max" else "minimize", *(["minimize"] if self.cost != "none" else [])]


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


Curve = tuple[Evaluation, ...]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One trial of a search, as its folder has it.

    Attributes:
        candidate: what is searched for, a cell of the study without its seed; "" for a single experiment.
        number: 0, 1, 2, ... within the candidate, in the order of suggestion.
        point: the point of the space.
        settings: all that is laid over the candidate's experiment, by dotted key.
        seeds: of its runs, where there are several.
        state: "waiting" before its first step; "infeasible": the plugin or the data refuse the point.
        curves: evaluations by step, one curve for each seed that has begun.
        total_steps: steps of a whole run.
        flops_per_step: counted; None where not known.
        steps: steps done, of all seeds.
        flops: consumed, by the model's counted cost; None where not known.
        seconds: training time consumed.
        reason: why it was pruned, failed or is infeasible.
    """

    candidate: str
    number: int
    point: Point
    state: State
    settings: Mapping[str, Any] = field(default_factory=dict)
    seeds: Sequence[int] = ()
    curves: tuple[Curve, ...] = ()
    total_steps: int = 0
    flops_per_step: int | None = None
    steps: int = 0
    flops: float | None = 0.0
    seconds: float = 0.0
    reason: str = ""

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def curve(self) -> Curve:
        """Of the newest seed."""
        return self.curves[-1] if self.curves else ()

    def best(self, mode: Mode) -> Evaluation | None:
        """The best evaluation, of several seeds the mean of each one's; None where one has no value."""
        found = [best for curve in self.curves if (best := _best_of(curve, mode))]
        if not found or len(found) < len(self.curves):
            return None
        if len(found) == 1:
            return found[0]
        step, value, loss = (fmean(getattr(one, name) for one in found) for name in ("step", "value", "loss"))
        return Evaluation(step=round(step), value=value, loss=loss)

    def cost(self, goal: Goal) -> float | None:
        """What it took, in the units of the goal's second objective; None where it is not known or there is none."""
        return {"none": None, "seconds": self.seconds, "flops": self.flops}[goal.cost]


def _best_of(curve: Curve, mode: Mode) -> Evaluation | None:
    """The best evaluation of a curve, the earlier one of equals."""
    valued = [one for one in curve if not math.isnan(one.value)]
    return min(valued, key=lambda one: merit(one, mode), default=None)


def merit(one: Evaluation, mode: Mode) -> tuple[float, float]:
    """What sorts evaluations that have a value, the better one first: by value, of equal ones by loss."""
    return (-one.value if mode == "max" else one.value, math.inf if math.isnan(one.loss) else one.loss)


def winner_of(trials: Sequence[Trial], goal: Goal) -> tuple[Trial, Evaluation] | None:
    """The finished trial with the best evaluation: of equal values the lower loss, then the lower number.

    Trials that were pruned do not win: nobody knows what they would have become.
    """
    finished = [(one, best) for one in trials if one.state == "finished" and (best := one.best(goal.mode))]
    return min(finished, key=lambda pair: merit(pair[1], goal.mode), default=None)


def pareto(trials: Iterable[Trial], goal: Goal) -> list[Trial]:
    """The finished trials of which none other is better in one objective and as good in the other; the cheapest first.

    Of equal trials the first one stays. Without a metric or a cost a trial is not compared.

    Raises:
        ValueError: the goal has no second objective.
    """
    if goal.cost == "none":
        raise ValueError("a front needs a goal with a cost, seconds or flops")
    rows = sorted(
        (cost, merit(best, goal.mode)[0], trial.number, trial)
        for trial in trials
        if trial.state == "finished" and (cost := trial.cost(goal)) and (best := trial.best(goal.mode))
    )
    front: list[Trial] = []
    least = math.inf
    for _, value, _, trial in rows:
        if value < least:
            front.append(trial)
            least = value
    return front


def identity(point: Mapping[str, Any]) -> str:
    """A text that two points share where they set the same things: 1 and 1.0 do, 1 and true do not."""
    whole = {
        key: int(value) if isinstance(value, float) and value.is_integer() else value for key, value in point.items()
    }
    return json.dumps(whole, sort_keys=True)
