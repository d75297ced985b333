"""Samplers and pruners tried on learning curves that were recorded before: what a search would have
found.

    # every point, to its end
    subquad tune EXPERIMENT --space ./points.yaml --sampler grid --budget 36-trials
    # nothing is trained
    python benchmarks/replay.py runs/EXPERIMENT-search/STAMP --share 0.25

A search is replayed on workers that all train at one speed, so that time is steps. It ends when its
budget of steps is used up, wherever its trials stand; its winner is the best finished trial. Regret
is how much worse that is than the best point of the table.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from heapq import heappop, heappush
from pathlib import Path
from typing import cast, get_args

import numpy as np
from optuna.storages import InMemoryStorage

from subquad.errors import RunError
from subquad.experiment import Run
from subquad.search.candidates import Candidate
from subquad.search.folder import curve_of, runs_of
from subquad.search.journal import Trials
from subquad.search.pruner import PRUNERS, Pruner
from subquad.search.sampler import Sampler
from subquad.search.search import Search, read_search
from subquad.search.settings import SamplerName
from subquad.search.trial import Curve, Evaluation, Goal, Trial, best_of, identity, merit
from subquad.space import Point, Space

MakeSampler = Callable[[Space, int], Sampler]
"""Of a space and a seed."""


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
        return [best.value for curve in self.curves.values() if (best := _best(curve, self.goal))]

    def regret(self, trials: Sequence[Trial]) -> float:
        """How much worse the best finished trial is than the best point, in units of the metric.

        Where none finished, the trials count as they stand.

        Raises:
            ValueError: no trial has a value.
        """
        finished = [trial for trial in trials if trial.state == "finished"]
        seen = map(self.seen, finished or trials)
        return self._least(seen) - self._least(self.curves.values())

    def seen(self, trial: Trial) -> Curve:
        """What a trial of a replay has of its point's curve."""
        curve = self.curves.get(identity(trial.point), ())
        return [evaluation for evaluation in curve if evaluation.step <= trial.steps]

    def _least(self, curves: Iterable[Curve]) -> float:
        best = [found for curve in curves if (found := _best(curve, self.goal))]
        return min(merit(trial, self.goal.mode) for trial in best)[0]


def _best(curve: Curve, goal: Goal) -> Evaluation | None:
    return best_of([curve], goal.mode)


def replay(
    table: Table, sampler: Sampler, pruner: Pruner, budget: int, workers: int = 1
) -> list[Trial]:
    """The trials of a search that uses up `budget` steps; those it could not end are left running.

    Args:
        table: what training yields.
        sampler: of the table's space.
        pruner: asked after every evaluation.
        budget: steps of all trials together.
        workers: trials at a time.
    """
    trials = Trials(
        Candidate("", {}, cast("Run", None), table.goal, table.space), InMemoryStorage()
    )
    events: list[
        tuple[int, int]
    ] = []  # the step of the clock at which a trial has its next evaluation

    def start(clock: int) -> None:
        while (point := trials.ask(sampler)) is not None:
            curve = table.curves.get(identity(point))
            number = len(trials.known)
            trials.record(_begun(number, point, table.total_steps if curve else 0))
            if curve:
                heappush(events, (clock + curve[0].step, number))
                return

    for _ in range(workers):
        start(0)
    used = 0
    while events:
        clock, number = heappop(events)
        before = trials.known[number]
        trial = _evaluated(before, table)
        used += trial.steps - before.steps
        if used > budget:
            break
        trial = _judged(trial, trials, pruner, table)
        trials.record(trial)
        if trial.ended:
            start(clock)
        else:
            following = table.curves[identity(trial.point)][len(table.seen(trial))]
            heappush(events, (clock + following.step - trial.steps, number))
    return trials.known


def _begun(number: int, point: Point, total_steps: int) -> Trial:
    """A trial that runs, or, without steps, that never will."""
    state = "running" if total_steps else "infeasible"
    return Trial(candidate="", number=number, point=point, state=state, total_steps=total_steps)


def _evaluated(trial: Trial, table: Table) -> Trial:
    """The trial with one evaluation more."""
    curve = table.curves[identity(trial.point)][: len(table.seen(trial)) + 1]
    return replace(trial, best=_best(curve, table.goal), steps=curve[-1].step)


def _judged(trial: Trial, trials: Trials, pruner: Pruner, table: Table) -> Trial:
    if trial.steps >= trial.total_steps:
        return replace(trial, state="finished")
    *_, newest = table.seen(trial)
    reason = trials.reason_to_stop(pruner, trial.number, 0, newest)
    return replace(trial, state="pruned", reason=reason) if reason else trial


def regrets(
    tables: Sequence[Table],
    samplers: Mapping[str, MakeSampler],
    pruners: Mapping[str, Callable[[Goal], Pruner]],
    seeds: Sequence[int],
    *,
    share: float = 0.25,
    workers: int = 1,
) -> dict[tuple[str, str], np.ndarray]:
    """Regrets by sampler and pruner, one for each seed.

    Args:
        tables: each seed takes the next one of them, round and round; all samplers have the same
            for a seed.
        samplers: by name.
        pruners: by name.
        seeds: of the searches.
        share: the budget, of the training steps of the whole grid.
        workers: trials at a time.
    """
    found: dict[tuple[str, str], np.ndarray] = {}
    for name, make_searcher in samplers.items():
        for rule, make_scheduler in pruners.items():
            found[name, rule] = np.array(
                [
                    _regret(
                        tables[index % len(tables)],
                        make_searcher,
                        make_scheduler,
                        seed,
                        share,
                        workers,
                    )
                    for index, seed in enumerate(seeds)
                ]
            )
    return found


def _regret(
    table: Table,
    make_searcher: MakeSampler,
    make_scheduler: Callable[[Goal], Pruner],
    seed: int,
    share: float,
    workers: int,
) -> float:
    sampler = make_searcher(table.space, seed)
    return table.regret(
        replay(table, sampler, make_scheduler(table.goal), int(share * table.steps), workers)
    )


def median_interval(
    found: np.ndarray, *, resamples: int = 10_000, seed: int = 0
) -> tuple[float, float, float]:
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
    """Median regret of `first` minus that of `second`, with the ends of its 95 % percentile
    bootstrap interval.

    Args:
        first: (S,) regrets by seed.
        second: (S,), the same seeds; both are resampled together.
        resamples: R.
        seed: of the resampling.
    """
    return _interval(first, second, resamples, seed)


def _interval(
    first: np.ndarray, second: np.ndarray, resamples: int, seed: int
) -> tuple[float, float, float]:
    drawn = np.random.Generator(np.random.Philox(seed)).integers(
        len(first), size=(resamples, len(first))
    )
    gaps = np.median(first[drawn], axis=1) - np.median(second[drawn], axis=1)
    low, high = np.quantile(gaps, [0.025, 0.975])
    return float(np.median(first) - np.median(second)), float(low), float(high)


def recorded(search: Search, folder: Path, label: str) -> Table:
    """The curves of a candidate, one for each point of its space.

    Points that plugin or data refuse are not in the table: a replay finds them infeasible, as a
    search does.

    Args:
        search: as `read_search` gives it.
        folder: the search's.
        label: of the candidate.

    Raises:
        RunError: the space is not finite; a point was not trained to its end, failed, or has no
            value; trials differ in their number of steps.
    """
    space, goal = next(
        (candidate.space, candidate.goal)
        for candidate in search.candidates
        if candidate.label == label
    )
    if not space.is_finite:
        raise RunError(
            f"{folder}: {label}: the space {space.name} has a continuous dimension; record a grid"
        )
    trials = {identity(trial.point): trial for trial in search.trials(folder)[label].known}
    refused = {key for key, trial in trials.items() if trial.state == "infeasible"}
    points = [key for point in space.grid() if (key := identity(point)) not in refused]
    whole = [trials[key] for key in points if key in trials and _is_whole(trials[key])]
    if len(whole) < max(2, len(points)):
        raise RunError(
            f"{folder}: {label}: {len(whole)} of {len(points)} points were trained "
            "to their end; a replay needs "
            "all of at least two: search the whole space with --sampler grid and no pruner"
        )
    lengths = {trial.total_steps for trial in whole}
    curves: dict[str, Curve] = {}
    for trial in whole:
        (run,) = runs_of(folder, trial)
        curves[trial.identity] = curve_of(run, goal.metric)
    if len(lengths) > 1:
        raise RunError(
            f"{folder}: {label}: trials have {min(lengths)} to {max(lengths)} "
            "steps, a replay needs one number"
        )
    return Table(
        space=space,
        goal=goal,
        total_steps=lengths.pop(),
        curves={
            trial.identity: curve_of(runs_of(folder, trial)[-1], goal.metric) for trial in whole
        },
    )


def _is_whole(trial: Trial) -> bool:
    return trial.state == "finished" and trial.best is not None


BASE = ("random", "none")
"""What every other pair is held against."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """Regrets of one sampler with one pruner over all seeds, in units of the metric.

    Attributes:
        median: of the regrets, with the ends of its 95 % bootstrap interval.
        worst: the 90th percentile of the regrets.
        gap: median minus that of random search without a pruner, with the ends of its 95 %
            interval; the seeds are resampled together.
    """

    sampler: str
    pruner: str
    median: tuple[float, float, float]
    worst: float
    gap: tuple[float, float, float]


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """What a replay gave.

    Attributes:
        candidate: whose curves.
        metric: what regret is measured in.
        points: of the table.
        total_steps: of a trial.
        budget: steps of each search.
        best, middle, least: final merits of the table's points: each point by its best evaluation.
        rows: by sampler, then pruner.
    """

    candidate: str
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
    candidate: str | None = None,
    *,
    seeds: int = 100,
    share: float = 0.25,
    workers: int = 1,
    done: Callable[[str, str], object] = lambda one, other: None,
) -> Replayed:
    """Replay every sampler with every pruner on a candidate's recorded curves.

    Args:
        folder: of a search that has trained every point of its space to the end.
        candidate: its label; None where the search has one only.
        seeds: searches for each pair, the same for all.
        share: the budget of a search, of the training steps of all points together.
        workers: trials at a time.
        done: told of each pair that is through.

    Raises:
        UserError: the folder is not such a search, or it has several candidates, or Optuna is not
            installed.
    """
    search = read_search(folder)
    label = _candidate(tuple(entry.label for entry in search.candidates), candidate, folder)
    table = recorded(search, folder, label)
    found: dict[tuple[str, str], np.ndarray] = {}
    for sampler in get_args(SamplerName):
        for other in PRUNERS:
            found |= _pair(table, sampler, other, seeds, share, workers)
            done(sampler, other)
    values = sorted(table.values)
    return Replayed(
        candidate=label,
        metric=table.goal.metric,
        points=len(values),
        total_steps=table.total_steps,
        budget=int(share * table.steps),
        best=values[-1] if table.goal.mode == "max" else values[0],
        middle=float(np.median(values)),
        least=values[0] if table.goal.mode == "max" else values[-1],
        rows=tuple(_row(*pair, those, found[BASE]) for pair, those in found.items()),
    )


def _candidate(there: Sequence[str], asked: str | None, folder: Path) -> str:
    label = there[0] if asked is None and len(there) == 1 else asked
    if label is None or label not in there:
        what = "choose one" if asked is None else f"no candidate {asked!r}"
        raise RunError(f"{folder}: {what} with --candidate: {', '.join(there)}")
    return label


def _pair(table: Table, one: str, other: str, seeds: int, share: float, workers: int):
    return regrets(
        [table],
        {one: partial(Sampler, one)},
        {other: partial(Pruner, other)},
        range(seeds),
        share=share,
        workers=workers,
    )


def _row(one: str, other: str, those: np.ndarray, base: np.ndarray) -> Row:
    return Row(
        sampler=one,
        pruner=other,
        median=median_interval(those),
        worst=float(np.quantile(those, 0.9)),
        gap=median_gap(those, base),
    )


def _cell(found: tuple[float, float, float]) -> str:
    return "{:.4f} [{:.4f}, {:.4f}]".format(*found)


def main() -> None:
    """Read the command line, replay, print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "folder",
        type=Path,
        help="a search that has trained every point of a finite space to its end",
    )
    parser.add_argument("--candidate", help="whose trials; needed where the search has several")
    parser.add_argument("--seeds", type=int, default=100, help="searches of each kind")
    parser.add_argument(
        "--share",
        type=float,
        default=0.25,
        help="steps of a search, of those of all points together",
    )
    parser.add_argument("--workers", type=int, default=1, help="trials at a time")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args()
    found = measure(
        given.folder, given.candidate, seeds=given.seeds, share=given.share, workers=given.workers
    )
    if given.json:
        print(json.dumps(asdict(found)))
        return
    print(
        f"{found.candidate}: {found.points} points of {found.total_steps} steps; "
        f"{found.metric} best {found.best:.4f}, "
    )
    print(
        f"median {found.middle:.4f}, worst {found.least:.4f}; {given.seeds} "
        f"searches of {found.budget} steps each"
    )
    print(f"{'':24}{'median regret':28}{'less that of random search':28}90 % within")
    for row in found.rows:
        print(
            f"{row.sampler + ' ' + row.pruner:24}{_cell(row.median):28}"
            f"{_cell(row.gap):28}{row.worst:.4f}"
        )


if __name__ == "__main__":
    main()
