"""How good trials are: by one objective, or by two and the front between them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

from subquad.search.searcher import Goal
from subquad.search.trial import Evaluation, Trial, best_of

Mode = Literal["max", "min"]


def falling(value: float, mode: Mode) -> float:
    """A value of the metric such that less is better."""
    return -value if mode == "max" else value


def merit(evaluation: Evaluation, mode: Mode) -> tuple[float, float]:
    """What sorts evaluations, the better one first: by value, of equal ones by loss."""
    value, loss = falling(evaluation.value, mode), evaluation.loss
    return (math.inf if math.isnan(value) else value, math.inf if math.isnan(loss) else loss)


def cost_of(trial: Trial, goal: Goal) -> float:
    """What a trial took, in the units of the goal's second objective; 0 where it is not known or there is none."""
    return {"none": 0.0, "seconds": trial.seconds, "flops": trial.flops}[goal.cost]


def pareto(trials: Iterable[Trial], goal: Goal) -> list[Trial]:
    """The finished trials of which none other is better in one objective and as good in the other; the cheapest first.

    Of equal trials the first one stays. Without a metric or a cost a trial is not compared.

    Raises:
        ValueError: the goal has no second objective.
    """
    if goal.cost == "none":
        raise ValueError("a front needs a goal with a cost, seconds or flops")
    rows = sorted(
        (cost_of(trial, goal), falling(best.value, goal.mode), trial.number, trial)
        for trial in trials
        if trial.state == "finished" and cost_of(trial, goal) > 0 and (best := best_of(trial.curve, goal.mode))
    )
    front: list[Trial] = []
    least = math.inf
    for _, value, _, trial in rows:
        if value < least:
            front.append(trial)
            least = value
    return front
