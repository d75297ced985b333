"""What is known of a trial, what is after in a search, and which trial is better."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Any, Literal

from subquad.plugin.metric import Metric, Mode, metric_of
from subquad.space import Point

Values = dict[str, Any]
"""Plain values by name; of settings by dotted key."""

State = Literal["running", "finished", "pruned", "failed", "infeasible"]

CostBy = Literal["none", "seconds", "flops"]


@dataclass(frozen=True)
class Goal:
    """What a search is after.

    Attributes:
        metric: of the task, on the validation split.
        mode: whether more or less of it is better.
        shown: how the metric is called and printed.
        cost: a second objective, less of it is better: training seconds or counted FLOPs of a
            trial.
    """

    metric: str
    mode: Mode
    cost: CostBy = "none"
    shown: Metric = field(default_factory=Metric, compare=False)

    @property
    def printed(self) -> Metric:
        """The metric as texts and pictures have it, by its name where it has no label."""
        return metric_of({self.metric: self.shown}, self.metric)

    @property
    def directions(self) -> list[Literal["maximize", "minimize"]]:
        """Of its objectives, in Optuna's words."""
        of_metric = "maximize" if self.mode == "max" else "minimize"
        return [of_metric] if self.cost == "none" else [of_metric, "minimize"]


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


Curve = Sequence[Evaluation]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One trial of a search, as its journal has it.

    Attributes:
        candidate: what is searched for, a cell of the study without its seed; of a single
            experiment its name.
        number: 0, 1, 2, ... within the candidate, in the order of suggestion.
        point: the point of the space.
        state: "running": it has not ended, whether anything works on it or not; "infeasible": the
            plugin or the data refuse the point.
        seeds: of its runs, where there are several.
        total_steps: steps of a whole run.
        flops_per_step: counted; None where not known.
        best: its best evaluation, of several seeds the mean of each one's; None where one has no
            value.
        steps: steps done, of all seeds.
        flops: consumed, by the model's counted cost; None where not known. Of one that runs what it
            is expected to use.
        seconds: training time consumed, or expected.
        reason: why it was pruned, failed or is infeasible.
    """

    candidate: str
    number: int
    point: Point
    state: State
    seeds: Sequence[int] = ()
    total_steps: int = 0
    flops_per_step: int | None = None
    best: Evaluation | None = None
    steps: int = 0
    flops: float | None = 0.0
    seconds: float = 0.0
    reason: str = ""

    @property
    def ended(self) -> bool:
        return self.state != "running"

    @cached_property
    def identity(self) -> str:
        """That of its point."""
        return identity(self.point)

    def cost(self, goal: Goal) -> float | None:
        """What it took, in the units of the goal's second objective; None where it is not known
        or there is none.
        """
        return {"none": None, "seconds": self.seconds, "flops": self.flops}[goal.cost]


def best_of(curves: Iterable[Curve], mode: Mode) -> Evaluation | None:
    """The best evaluation of a curve, the earlier one of equals; of several curves the mean of each
    one's. None where one has no value.
    """
    found: list[Evaluation] = []
    for curve in curves:
        valued = [point for point in curve if not math.isnan(point.value)]
        if not valued:
            return None
        found.append(min(valued, key=lambda point: merit(point, mode)))
    if len(found) < 2:
        return next(iter(found), None)
    return Evaluation(
        step=round(fmean(best.step for best in found)),
        value=fmean(best.value for best in found),
        loss=fmean(best.loss for best in found),
    )


def merit(point: Evaluation, mode: Mode) -> tuple[float, float]:
    """What sorts evaluations that have a value, the better one first: by value, of equal ones by
    loss.
    """
    value = -point.value if mode == "max" else point.value
    return value, math.inf if math.isnan(point.loss) else point.loss


def winner_of(trials: Iterable[Trial], goal: Goal) -> tuple[Trial, Evaluation] | None:
    """The finished trial with the best evaluation: of equal values the lower loss, then the lower
    number.

    Trials that were pruned do not win: nobody knows what they would have become.
    """
    finished = [(trial, trial.best) for trial in trials if trial.state == "finished" and trial.best]
    return min(finished, key=lambda pair: merit(pair[1], goal.mode), default=None)


def objectives(trial: Trial, goal: Goal) -> list[float] | None:
    """The values of a finished trial's objectives; None where one is not known."""
    best = trial.best
    if trial.state != "finished" or best is None or not math.isfinite(best.value):
        return None
    if goal.cost == "none":
        return [best.value]
    cost = trial.cost(goal)
    if cost and math.isfinite(cost):
        return [best.value, cost]
    return None


def pareto(trials: Iterable[Trial], goal: Goal) -> list[tuple[Trial, Evaluation]]:
    """The finished trials of which none other is better in one objective and as good in the other,
    with what each scored; the cheapest first.

    Of equal trials the first one stays. Without a metric or a cost a trial is not compared.
    """
    rows: list[tuple[float, float, int, Trial, Evaluation]] = []
    for trial in trials:
        cost = trial.cost(goal)
        if trial.state == "finished" and cost and trial.best:
            rows.append((cost, merit(trial.best, goal.mode)[0], trial.number, trial, trial.best))
    front: list[tuple[Trial, Evaluation]] = []
    least = math.inf
    for _, value, _, trial, best in sorted(rows):
        if value < least:
            front.append((trial, best))
            least = value
    return front


def identity(point: Values) -> str:
    """A text that two points share where they set the same things: 1 and 1.0 do, 1 and true do
    not.
    """
    return json.dumps(json.loads(json.dumps(point), parse_float=_number), sort_keys=True)


def _number(text: str) -> float:
    number = float(text)
    return int(number) if number.is_integer() else number
