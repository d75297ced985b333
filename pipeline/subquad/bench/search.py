"""What searchers and schedulers would have found on the curves of a grid search that was run before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from subquad.errors import RunError
from subquad.experiment.origins import one_line
from subquad.search.recorded import recorded
from subquad.search.replay import Table, median_gap, median_interval, regrets
from subquad.search.schedulers import SCHEDULERS, scheduler
from subquad.search.search import read_search
from subquad.search.searchers import SEARCHERS, searcher

BASE = ("random", "none")
"""What every other pair is held against."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """Regrets of one searcher with one scheduler over all seeds, in units of the metric.

    Attributes:
        median: of the regrets, with the ends of its 95 % bootstrap interval.
        worst: the 90th percentile of the regrets.
        gap: median minus that of random search without a scheduler, with the ends of its 95 % interval; the seeds are
            resampled together.
    """

    searcher: str
    scheduler: str
    median: tuple[float, float, float]
    worst: float
    gap: tuple[float, float, float]


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """What a replay gave.

    Attributes:
        subject: whose curves.
        metric: what regret is measured in.
        points: of the table.
        total_steps: of a trial.
        budget: steps of each search.
        best, middle, least: final merits of the table's points: each point by its best evaluation.
        rows: by searcher, then scheduler.
    """

    subject: str
    metric: str
    points: int
    total_steps: int
    budget: int
    best: float
    middle: float
    least: float
    rows: tuple[Row, ...]


def measure(
    folder: Path,
    subject: str | None = None,
    *,
    seeds: int = 100,
    share: float = 0.25,
    workers: int = 1,
    done: Callable[[str, str], object] = lambda one, other: None,
) -> Replayed:
    """Replay every searcher with every scheduler on a subject's recorded curves.

    Args:
        folder: of a search that has trained every point of its space to the end.
        subject: its label; None where the search has one only.
        seeds: searches for each pair, the same for all.
        share: the budget of a search, of the training steps of all points together.
        workers: trials at a time.
        done: told of each pair that is through.

    Raises:
        UserError: the folder is not such a search, or it has several subjects, or Optuna is not installed.
    """
    search = read_search(folder)
    label = _subject(tuple(search.goals), subject, folder)
    table = recorded(search, folder, label)
    found: dict[tuple[str, str], np.ndarray] = {}
    for one in SEARCHERS:
        for other in SCHEDULERS:
            found |= _pair(table, one, other, seeds, share, workers)
            done(one, other)
    values = sorted(table.values)
    return Replayed(
        subject=label,
        metric=table.goal.metric,
        points=len(values),
        total_steps=table.total_steps,
        budget=int(share * table.steps),
        best=values[-1] if table.goal.mode == "max" else values[0],
        middle=float(np.median(values)),
        least=values[0] if table.goal.mode == "max" else values[-1],
        rows=tuple(_row(*pair, those, found[BASE]) for pair, those in found.items()),
    )


def _subject(there: Sequence[str], asked: str | None, folder: Path) -> str:
    label = there[0] if asked is None and len(there) == 1 else asked
    if label is None or label not in there:
        what = "choose one" if asked is None else f"no subject {asked!r}"
        raise RunError(one_line(f"{folder}: {what} with --subject: {', '.join(there)}"))
    return label


def _pair(table: Table, one: str, other: str, seeds: int, share: float, workers: int):
    return regrets(
        [table],
        {one: partial(searcher, one)},
        {other: partial(scheduler, other)},
        range(seeds),
        share=share,
        workers=workers,
    )


def _row(one: str, other: str, those: np.ndarray, base: np.ndarray) -> Row:
    return Row(
        searcher=one,
        scheduler=other,
        median=median_interval(those),
        worst=float(np.quantile(those, 0.9)),
        gap=median_gap(those, base),
    )
