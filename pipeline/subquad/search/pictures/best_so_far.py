"""Best value so far of each subject, over its trials and over what they consumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from subquad.search.pictures import NotDrawn, Pictured
from subquad.search.pictures.names import cut
from subquad.search.pictures.study import value_of
from subquad.search.trial import Trial

_DPI = 120
_STYLES = ("-", "--", ":", "-.")
_LEGEND_ROWS = 10


def draw_best_so_far(subjects: Sequence[Pictured], path: Path) -> None:
    """Two curves for each subject, trials in the order of their numbers; all trials cost, only finished ones can win.

    Args:
        subjects: with one metric.

    Raises:
        NotDrawn: no trial has a value.
    """
    if not any(value_of(trial, one) is not None for one in subjects for trial in one.trials):
        raise NotDrawn("no finished trial has a value")
    figure = Figure(figsize=(10.5, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    unit = _unit(subjects)
    for number, one in enumerate(subjects):
        trials = [trial for trial in one.trials if trial.ended]
        colour, style = f"C{number % 10}", _STYLES[number // 10 % len(_STYLES)]
        look = {"color": colour, "linestyle": style, "linewidth": _width(number, len(subjects))}
        look["label"] = cut(one.label or "trials", 32)
        _curve(left, one, trials, [float(count) for count in range(1, len(trials) + 1)], look)
        used = list(accumulate(float(getattr(trial, unit)) for trial in trials))
        _curve(right, one, trials, used, look)
    _finish(left, right, subjects, unit)
    figure.savefig(path, dpi=_DPI)


def _unit(subjects: Sequence[Pictured]) -> str:
    """FLOPs where every trial that trained has them counted, else steps."""
    trained = [trial for one in subjects for trial in one.trials if trial.steps]
    return "flops" if trained and all(trial.flops > 0 for trial in trained) else "steps"


def _width(number: int, count: int) -> float:
    """Later curves are thinner, so that those below them are seen where several have one value."""
    return 1.5 + 2.5 * (count - 1 - number) / max(count - 1, 1)


def _curve(
    axes: Axes, subject: Pictured, trials: Sequence[Trial], xs: Sequence[float], look: Mapping[str, Any]
) -> None:
    found = [(x, value) for x, trial in zip(xs, trials, strict=True) if (value := value_of(trial, subject)) is not None]
    if not found:
        return
    best = list(accumulate((value for _, value in found), max if subject.goal.mode == "max" else min))
    axes.step([x for x, _ in found] + [xs[-1]], [*best, best[-1]], where="post", **look)
    axes.plot(*zip(*found, strict=True), "o", color=look["color"], markersize=3.5, alpha=0.45)


def _finish(left: Axes, right: Axes, subjects: Sequence[Pictured], unit: str) -> None:
    left.set_xlabel("trials that ended")
    left.set_ylabel(f"best validation {cut(subjects[0].goal.metric)}")
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    right.set_xlabel("FLOPs consumed" if unit == "flops" else "training steps consumed")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    shown = len(left.get_legend_handles_labels()[1])
    if shown > _LEGEND_ROWS:
        right.legend(fontsize=6, ncols=1 + shown // 28, loc="center left", bbox_to_anchor=(1.01, 0.5))
    elif shown > 1:
        right.legend(fontsize=8, loc="lower right" if subjects[0].goal.mode == "max" else "upper right")
    else:
        left.set_title(cut(subjects[0].label, 60), fontsize=10)
    right.set_title("dots: finished trials; lines: the best of them so far", fontsize=9, loc="right")
