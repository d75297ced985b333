"""Searchers and schedulers tried on learning curves that were recorded before: what a search would have found.

A search is replayed on workers that all train at one speed, so that time is steps. It ends when its budget of steps is
used up, wherever its trials stand; its winner is the best finished trial. Regret is how much worse that is than the
best point of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush

import numpy as np

from subquad.search.objective import merit
from subquad.search.scheduler import Scheduler
from subquad.search.searcher import Goal, Searcher
from subquad.search.searchers.fresh import identity
from subquad.search.trial import Evaluation, Trial, best_of
from subquad.space import Point, Space

Curve = tuple[Evaluation, ...]
MakeSearcher = Callable[[Space, Goal, int], Searcher]
"""Of a space, a goal and a seed."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Learning curves of every point of a finite space.

    Attributes:
        space: the points.
        goal: what is better.
        total_steps: steps of a whole trial, the last of each curve.
        curves: by `identity` of the point; a point without one is infeasible.
    """

    space: Space
    goal: Goal
    total_steps: int
    curves: Mapping[str, Curve]

    @property
    def steps(self) -> int:
        """Training steps of the whole grid."""
        return self.total_steps * len(self.curves)

    @property
    def values(self) -> list[float]:
        """The best value of each point."""
        return [best.value for curve in self.curves.values() if (best := best_of(curve, self.goal.mode))]

    def regret(self, trials: Sequence[Trial]) -> float:
        """How much worse the best finished trial is than the best point, in units of the metric.

        Where none finished, the trials count as they stand.

        Raises:
            ValueError: no trial has a value.
        """
        finished = [trial.curve for trial in trials if trial.state == "finished"]
        return self._least(finished or [trial.curve for trial in trials]) - self._least(self.curves.values())

    def _least(self, curves: Iterable[Curve]) -> float:
        best = [found for curve in curves if (found := best_of(curve, self.goal.mode))]
        return min(merit(one, self.goal.mode) for one in best)[0]


def replay(table: Table, searcher: Searcher, scheduler: Scheduler, budget: int, workers: int = 1) -> list[Trial]:
    """The trials of a search that uses up `budget` steps; those it could not end are left running.

    Args:
        table: what training yields.
        searcher: of the table's space.
        scheduler: asked after every evaluation.
        budget: steps of all trials together.
        workers: trials at a time.
    """
    trials: list[Trial] = []
    events: list[tuple[int, int]] = []  # the step of the clock at which a trial has its next evaluation

    def start(clock: int) -> None:
        while (point := searcher.suggest(len(trials), tuple(trials))) is not None:
            curve = table.curves.get(identity(point))
            trials.append(_begun(len(trials), point, table.total_steps if curve else 0))
            if curve:
                heappush(events, (clock + curve[0].step, len(trials) - 1))
                return

    for _ in range(workers):
        start(0)
    used = 0
    while events:
        clock, number = heappop(events)
        trial = _evaluated(trials[number], table)
        used += trial.steps - trials[number].steps
        if used > budget:
            break
        trials[number] = trial
        trials[number] = trial = _judged(trial, trials, scheduler)
        if trial.ended:
            start(clock)
        else:
            following = table.curves[identity(trial.point)][len(trial.curve)]
            heappush(events, (clock + following.step - trial.steps, number))
    return trials


def _begun(number: int, point: Point, total_steps: int) -> Trial:
    """A trial that runs, or, without steps, that never will."""
    state = "running" if total_steps else "infeasible"
    return Trial(subject="", number=number, point=point, state=state, total_steps=total_steps)


def _evaluated(trial: Trial, table: Table) -> Trial:
    """The trial with one evaluation more."""
    curve = table.curves[identity(trial.point)][: len(trial.curve) + 1]
    return replace(trial, curve=curve, steps=curve[-1].step)


def _judged(trial: Trial, trials: Sequence[Trial], scheduler: Scheduler) -> Trial:
    if trial.steps >= trial.total_steps:
        return replace(trial, state="finished")
    reason = scheduler.reason_to_stop(trial.number, trials)
    return replace(trial, state="pruned", reason=reason) if reason else trial


def regrets(
    tables: Sequence[Table],
    searchers: Mapping[str, MakeSearcher],
    schedulers: Mapping[str, Callable[[Goal], Scheduler]],
    seeds: Sequence[int],
    *,
    share: float = 0.25,
    workers: int = 1,
) -> dict[tuple[str, str], np.ndarray]:
    """Regrets by searcher and scheduler, one for each seed.

    Args:
        tables: each seed takes the next one of them, round and round; all searchers have the same for a seed.
        searchers: by name.
        schedulers: by name.
        seeds: of the searches.
        share: the budget, of the training steps of the whole grid.
        workers: trials at a time.
    """
    found: dict[tuple[str, str], np.ndarray] = {}
    for name, make_searcher in searchers.items():
        for rule, make_scheduler in schedulers.items():
            found[name, rule] = np.array(
                [
                    _regret(tables[index % len(tables)], make_searcher, make_scheduler, seed, share, workers)
                    for index, seed in enumerate(seeds)
                ]
            )
    return found


def _regret(
    table: Table,
    make_searcher: MakeSearcher,
    make_scheduler: Callable[[Goal], Scheduler],
    seed: int,
    share: float,
    workers: int,
) -> float:
    searcher = make_searcher(table.space, table.goal, seed)
    return table.regret(replay(table, searcher, make_scheduler(table.goal), int(share * table.steps), workers))


def median_interval(found: np.ndarray, *, resamples: int = 10_000, seed: int = 0) -> tuple[float, float, float]:
    """Median regret, with the ends of its 95 % percentile bootstrap interval.

    Args:
        found: (S,) regrets by seed.
        resamples: R.
        seed: of the resampling.
    """
    return _interval(found, np.zeros_like(found), resamples, seed)


def median_gap(
    first: np.ndarray, second: np.ndarray, *, resamples: int = 10_000, seed: int = 0
) -> tuple[float, float, float]:
    """Median regret of `first` minus that of `second`, with the ends of its 95 % percentile bootstrap interval.

    Args:
        first: (S,) regrets by seed.
        second: (S,), the same seeds; both are resampled together.
        resamples: R.
        seed: of the resampling.
    """
    return _interval(first, second, resamples, seed)


def _interval(first: np.ndarray, second: np.ndarray, resamples: int, seed: int) -> tuple[float, float, float]:
    drawn = np.random.Generator(np.random.Philox(seed)).integers(len(first), size=(resamples, len(first)))
    gaps = np.median(first[drawn], axis=1) - np.median(second[drawn], axis=1)
    low, high = np.quantile(gaps, [0.025, 0.975])
    return float(np.median(first) - np.median(second)), float(low), float(high)
