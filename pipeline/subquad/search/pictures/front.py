"""A subject's trials by both objectives, and the front: the trials that no other one beats in both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from subquad.search.objective import cost_of, pareto
from subquad.search.pictures import NotDrawn, Pictured
from subquad.search.pictures.axes import tidy_log
from subquad.search.pictures.names import cut
from subquad.search.pictures.study import value_of
from subquad.search.trial import Trial

_DPI = 120
_WIDE = 8
"""Times that the dearest trial costs the cheapest, from which on costs stand on a logarithmic axis."""
_NUMBERED = 30
"""Trials of a front that are numbered; more would hide each other."""
_AXES = {"seconds": "training time of a trial (s)", "flops": "FLOPs of a trial"}
_COSTS = {"seconds": "training time", "flops": "FLOPs"}


def draw_front(subject: Pictured, path: Path) -> None:
    """Finished trials as points, the front as a line with the trials' numbers.

    Raises:
        NotDrawn: no finished trial has a value and a cost.
    """
    rows = [
        (cost_of(one, subject.goal), value, one)
        for one in subject.trials
        if (value := value_of(one, subject)) is not None and cost_of(one, subject.goal) > 0
    ]
    if not rows:
        raise NotDrawn("no finished trial has a value and a cost")
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    costs, values = [cost for cost, _, _ in rows], [value for _, value, _ in rows]
    axes.plot(costs, values, "o", color="C0", alpha=0.5, markersize=5, label="finished trial")
    _front(axes, subject, [trial for _, _, trial in rows])
    if max(costs) > _WIDE * min(costs):
        axes.set_xscale("log")
        tidy_log(axes.xaxis, axes.get_xlim())
    axes.set_xlabel(_AXES[subject.goal.cost])
    axes.set_ylabel(cut(f"validation {subject.goal.metric}", 40))
    axes.set_title(
        cut(f"{subject.label}: {subject.goal.metric} against {_COSTS[subject.goal.cost]}".lstrip(": "), 70), fontsize=11
    )
    axes.margins(0.08)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=_DPI)


def _front(axes: Axes, subject: Pictured, trials: Sequence[Trial]) -> None:
    """A step is the best value to be had for a cost."""
    front = pareto(trials, subject.goal)
    costs = [cost_of(one, subject.goal) for one in front]
    values = [value for one in front if (value := value_of(one, subject)) is not None]
    axes.step(costs, values, "-o", where="post", color="C1", markersize=5, label="front, with the trials' numbers")
    for one, cost, value in zip(front[:_NUMBERED], costs, values, strict=False):
        axes.annotate(str(one.number), (cost, value), xytext=(4, 4), textcoords="offset points", fontsize=8)
