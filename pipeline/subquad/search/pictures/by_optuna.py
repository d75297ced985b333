"""Optuna's plots by its Matplotlib backend, made readable: sizes, rows, labels that do not overlap.

Reference: Optuna's documentation of `optuna.visualization.matplotlib`. Importances are by PED-ANOVA (Watanabe, Bansal,
Hutter, IJCAI 2023), which Optuna computes itself; its fANOVA would need scikit-learn and leaves conditional settings
out. Trials that were ended early are not drawn: their values are of a part of the training.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib import category

from subquad.search.pictures import NotDrawn, Pictured
from subquad.search.pictures.axes import numbered, tidy_log, visible
from subquad.search.pictures.names import cut
from subquad.search.pictures.study import numbers_of, study_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from optuna import Study

_DPI = 120
_NOT_SEARCHED = "None"
"""How Optuna says that a trial has no such setting; a null of the user's is `null` here."""
_COLUMNS = 4
"""Of slices beside each other."""
_ROTATED = 12
"""Letters of the categories of one axis together, from which on they are rotated."""


def draw_kind(kind: str, subject: Pictured, path: Path) -> None:
    """Draw one of `KINDS`.

    Raises:
        NotDrawn: the trials do not suffice.
    """
    with _apart():
        study = study_of(subject, numbers=kind == "parallel")  # its axes have numbers in order, and texts not
        figure = KINDS[kind](study, subject)
        figure.savefig(path, dpi=_DPI, bbox_inches="tight")


def _history(study: Study, subject: Pictured) -> Figure:
    from optuna.visualization.matplotlib import plot_optimization_history

    axes = plot_optimization_history(study, target_name=_axis(subject))
    axes.set_title(_title(subject, "finished trials"), fontsize=11)
    axes.set_xlabel("trial")
    numbered(axes.xaxis, numbers_of(study))
    for line in axes.lines:
        line.set_drawstyle("steps-post")
    axes.legend(["trial", "best so far"], loc="best", fontsize=8)
    return _of(axes, (7.2, 4.2))


def _parallel(study: Study, subject: Pictured) -> Figure:
    from optuna.visualization.matplotlib import plot_parallel_coordinate

    names = _searched(study)
    axes = plot_parallel_coordinate(study, params=names, target_name=_axis(subject))
    axes.set_title(_title(subject, "settings of finished trials"), fontsize=11)
    labels = [cut(subject.goal.metric), *(cut(label.get_text()) for label in axes.get_xticklabels()[1:])]
    axes.set_xticks(range(len(labels)), labels, rotation=20, ha="right", fontsize=8)
    for lines in axes.collections:
        lines.set_cmap(visible(lines.get_cmap()))
        lines.set_clip_on(False)  # the best and the worst value of a setting lie on the edge
    figure = _of(axes, (max(7.2, 1.5 * len(labels) + 1.5), 4.8))
    for other in figure.axes:
        _tidy_values(other)
    return figure


def _tidy_values(axes: Axes) -> None:
    """Of a log axis the powers of ten only; the place of trials in which a setting is not searched says so."""
    axes.tick_params(axis="y", which="both", labelsize=7)
    axes.grid(visible=False)
    if axes.get_yscale() == "log":
        tidy_log(axes.yaxis, axes.get_ylim(), few=100)
        return
    labels = [label.get_text() for label in axes.get_yticklabels()]
    if _NOT_SEARCHED in labels:
        axes.set_yticks(axes.get_yticks(), ["–" if label == _NOT_SEARCHED else label for label in labels])


def _slice(study: Study, subject: Pictured) -> Figure:
    from optuna.visualization.matplotlib import plot_slice

    found = plot_slice(study, params=_searched(study), target_name=_axis(subject))
    slices: list[Axes] = list(np.atleast_1d(np.asarray(found, dtype=object)))
    for one in slices:
        one.collections[0].set_cmap(visible(one.collections[0].get_cmap()))
    figure = _of(slices[0])
    figure.suptitle(_title(subject, "finished trials"), fontsize=11)
    columns = min(len(slices), _COLUMNS)
    rows = math.ceil(len(slices) / columns)
    _in_rows(figure, slices, rows, columns)
    _colour_bar(figure, slices, numbers_of(study))
    figure.set_size_inches(max(4.8, 3.0 * columns + 1.2), 2.9 * rows + 0.6)
    return figure


def _in_rows(figure: Figure, slices: Sequence[Axes], rows: int, columns: int) -> None:
    """Optuna puts all slices in one row, which is some metres long with many settings."""
    grid = figure.add_gridspec(rows, columns)
    for number, axes in enumerate(slices):
        axes.set_subplotspec(grid[number // columns, number % columns])
        axes.set_title("")
        axes.xaxis.label.set_fontsize(9)
        axes.tick_params(which="both", labelsize=7)
        axes.tick_params(labelleft=number % columns == 0, labelbottom=True)
        axes.set_ylabel(axes.get_ylabel() or slices[0].get_ylabel(), fontsize=9)
        axes.yaxis.label.set_visible(number % columns == 0)
        if axes.get_xscale() == "log":
            tidy_log(axes.xaxis, axes.get_xlim())
        _tidy_categories(axes)


def _colour_bar(figure: Figure, slices: Sequence[Axes], numbers: Sequence[int]) -> None:
    """One that stands beside all rows, where Optuna's is beside the last slice."""
    points = slices[-1].collections[0]
    if points.colorbar is not None:
        points.colorbar.remove()
    figure.set_layout_engine("constrained")
    bar = figure.colorbar(points, ax=list(slices), aspect=40)
    bar.set_label("trial", fontsize=9)
    bar.ax.tick_params(labelsize=7)
    numbered(bar.ax.yaxis, numbers)


def _tidy_categories(axes: Axes) -> None:
    """Categories without the quotes that Optuna writes, upright where there is no room."""
    formatter = axes.xaxis.get_major_formatter()
    if not isinstance(formatter, category.StrCategoryFormatter):
        return
    ticks = axes.get_xticks()
    labels = [formatter(tick).strip("'\"") for tick in ticks]
    low, high = axes.get_xlim()
    axes.set_xlim(low - 0.3, high + 0.3)  # Optuna leaves a single category no room at all
    crowded = len(labels) > 1 and sum(map(len, labels)) > 2 * _ROTATED
    axes.set_xticks(ticks, labels, rotation=45 if crowded else 0, ha="right" if crowded else "center")


def _importances(study: Study, subject: Pictured) -> Figure:
    from optuna.importance import PedAnovaImportanceEvaluator
    from optuna.visualization.matplotlib import plot_param_importances

    names = _varied(study)
    if len(names) < 2:
        raise NotDrawn("fewer than 2 settings differ between finished trials")
    axes = plot_param_importances(
        study, evaluator=PedAnovaImportanceEvaluator(), params=names, target_name=subject.goal.metric
    )
    axes.set_title(_title(subject, "what decides who is among the best trials"), fontsize=11, loc="left")
    axes.set_xlabel("importance (PED-ANOVA)")
    axes.set_ylabel("")
    if legend := axes.get_legend():
        legend.remove()
    return _of(axes, (7.2, 1.6 + 0.4 * len(names)))


KINDS: dict[str, Callable[[Study, Pictured], Figure]] = {
    "history": _history,
    "parallel": _parallel,
    "slice": _slice,
    "importances": _importances,
}


def _searched(study: Study) -> list[str]:
    """Settings of the trials, in the order of the space.

    Raises:
        NotDrawn: there are none.
    """
    names = list(dict.fromkeys(name for trial in study.trials for name in trial.params))
    if not names:
        raise NotDrawn("nothing was searched")
    return names


def _varied(study: Study) -> list[str]:
    """Those that have several values."""
    return [name for name in _searched(study) if len({trial.params.get(name) for trial in study.trials}) > 1]


def _axis(subject: Pictured) -> str:
    return cut(f"validation {subject.goal.metric}", 40)


def _title(subject: Pictured, what: str) -> str:
    return cut(f"{subject.label}: {what}" if subject.label else what, 70)


def _of(axes: Axes, size: tuple[float, float] | None = None) -> Figure:
    figure: Any = axes.figure
    if size is not None:
        figure.set_size_inches(*size)
    return figure


@contextmanager
def _apart() -> Iterator[None]:
    """Without leaving anything behind: Optuna draws with pyplot, changes its style, logs and warns."""
    if "matplotlib.pyplot" not in sys.modules:
        matplotlib.use("agg")  # no window system is asked for; a caller who uses pyplot already keeps his choice
    import matplotlib.pyplot as plt
    import optuna

    verbosity, open_before = optuna.logging.get_verbosity(), set(plt.get_fignums())
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings(), matplotlib.rc_context():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)
        for number in set(plt.get_fignums()) - open_before:
            plt.close(number)
