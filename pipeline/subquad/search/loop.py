"""Which trial comes next: interrupted ones first, then a new point for the candidate that has had the fewest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path

from subquad.drivers.executor import failed
from subquad.drivers.folder import same_as_started, write_down
from subquad.engine import attempts
from subquad.errors import ConfigError, PluginError
from subquad.experiment import Run
from subquad.runs import IDENTITY, RESULT, read_json
from subquad.search.fitting import Fitted, Fitter
from subquad.search.folder import Trials, run_folders, settings_of, trial_folder, write_trial
from subquad.search.sampler import Sampler
from subquad.search.settings import Budget
from subquad.search.trial import Trial

MAX_FRUITLESS = 50
"""Infeasible points and failed trials in a row, after which a candidate's search ends."""

MAX_STARTS = 10
"""Drivers that may die while one trial trains, without it coming any further; then it has failed."""

MakeRun = Callable[[Path, str, Fitted], Run]
"""A trial's folder and label, and what is to be trained there."""


@dataclass
class Lane:
    """Where one candidate stands.

    Attributes:
        label: of the candidate.
        sampler: suggests its points.
        fitter: makes experiments of them.
        seeds: of each trial's runs, where there are several.
        over: why no further trial is started; "" while there may be.
    """

    label: str
    sampler: Sampler
    fitter: Fitter
    seeds: Sequence[int] = ()
    over: str = ""


class Agenda:
    """Gives out trials, reading everything but what runs right now from the search's folder.

    Args:
        folder: the search's.
        trials: reads it.
        lanes: the candidates in the order of the study.
        budget: of each.
        run: makes a trial's run.
        ended: told of each trial that ends here: infeasible ones, and those that are given up.
    """

    def __init__(
        self,
        folder: Path,
        trials: Trials,
        lanes: Sequence[Lane],
        budget: Budget,
        run: MakeRun,
        ended: Callable[[Path], None],
    ):
        self._folder, self._trials, self._lanes = folder, trials, lanes
        self._budget, self._run, self._ended = budget, run, ended
        self._planned: dict[tuple[str, int], Trial] = {}
        """Trials given out, with what they are expected to use."""
        self._given_out: set[Path] = set()
        """Folders of runs."""

    def next(self) -> Run | None:
        """The next trial; None where there is none to start now."""
        if run := self._interrupted():
            return run
        open_lanes = [lane for lane in self._lanes if not lane.over]
        while open_lanes:
            # the candidate with the fewest trials, so that a search that is cut short is still fair
            lane = min(open_lanes, key=self._started)
            given = self._advance(lane)
            if isinstance(given, Run):
                return given
            if given:
                open_lanes.remove(lane)
                self._close(lane, given)
        return None

    def _close(self, lane: Lane, reason: str) -> None:
        """Start no more of the candidate's trials, unless one that runs may still leave some of what it is charged."""
        if all(trial.ended for trial in self._trials.of(lane.label)):
            lane.over = reason

    def _interrupted(self) -> Run | None:
        """A trial that an earlier driver began, as it was written down then."""
        for lane in self._lanes:
            for trial in self._trials.of(lane.label):
                if not trial.ended and (run := self._open_run(lane, trial)):
                    return run
        return None

    def _open_run(self, lane: Lane, trial: Trial) -> Run | None:
        """The first run of a trial that was not given out and has no result."""
        place = trial_folder(self._folder, lane.label, trial.number)
        for number, folder in enumerate(run_folders(place)):
            if folder not in self._given_out and read_json(folder / RESULT) is None:
                settings = settings_of(place) | ({"train.seed": lane.seeds[number]} if lane.seeds else {})
                run = self._given(lane, trial, lane.fitter.fitted(settings), folder)
                if not self._gave_up(run):
                    return run
        return None

    def _gave_up(self, run: Run) -> bool:
        """Whether a trial takes its driver with it each time, as one does that uses up the machine's memory."""
        starts = attempts.read(run.folder)
        alike = list(takewhile(lambda one: one.from_step == starts[-1].from_step, reversed(starts)))
        if len(alike) < MAX_STARTS:
            return False
        where = f"from step {starts[-1].from_step}"
        failed(run, f"{len(alike)} drivers in a row ended while it trained {where}: out of memory?")
        self._ended(run.folder)
        return True

    def _started(self, lane: Lane) -> int:
        return sum(one.state != "infeasible" for one in self._trials.of(lane.label))

    def _advance(self, lane: Lane) -> Run | str:
        """The candidate's next trial; or why there is none, "" where only its point was infeasible."""
        known = self._trials.of(lane.label)
        number = known[-1].number + 1 if known else 0
        if reason := _hopeless(known):
            return reason
        if self._budget.unit == "trials" and not self._budget.admits(known, _new(lane.label, number)):
            return "budget used"  # before a point is drawn that would never be tried
        try:
            point = lane.sampler.suggest(number, known)
        except ConfigError as error:  # constraints that leave hardly a point
            return str(error)
        if point is None:
            return "no point left to try"
        trial = replace(_new(lane.label, number), point=point)
        try:
            fitted = lane.fitter.fit(point)
        except (ConfigError, PluginError) as error:
            trial = replace(trial, state="infeasible", reason=str(error))
            write_trial(self._folder, trial, {}, None)
            self._ended(trial_folder(self._folder, lane.label, number))
            return ""
        trial = _planned(trial, fitted, known, len(lane.seeds))
        if not self._budget.admits(
            [self._planned.get((lane.label, one.number), one) if not one.ended else one for one in known], trial
        ):
            return "budget used"
        write_trial(self._folder, trial, fitted.values, fitted.flops_per_step, lane.seeds)
        run = self._open_run(lane, trial)
        assert run is not None
        return run

    def _given(self, lane: Lane, trial: Trial, fitted: Fitted, folder: Path) -> Run:
        known = self._trials.of(lane.label)
        self._planned[lane.label, trial.number] = _planned(trial, fitted, known, len(lane.seeds))
        self._given_out.add(folder)
        suffix = f"-{folder.name}" if lane.seeds else ""
        run = self._run(folder, f"{lane.label}-{trial.number:05d}{suffix}", fitted)
        if read_json(run.folder / IDENTITY) is None:
            write_down(run)
        else:
            same_as_started(run)
        return run


def _new(candidate: str, number: int) -> Trial:
    return Trial(candidate=candidate, number=number, point={}, state="waiting")


def _planned(trial: Trial, fitted: Fitted, known: Sequence[Trial], seeds: int) -> Trial:
    """The trial with what it is expected to use: time as finished ones took for their steps, else as was measured."""
    runs = max(1, seeds)
    finished = [one for one in known if one.state == "finished" and one.steps]
    seconds = fitted.seconds
    if finished:
        seconds = fitted.steps * sum(one.seconds for one in finished) / sum(one.steps for one in finished)
    return replace(trial, total_steps=fitted.steps, flops=fitted.flops * runs, seconds=seconds * runs)


def _hopeless(known: Sequence[Trial]) -> str:
    """Why a candidate's search ends though its budget is not used; "" where it need not."""
    ended = [one for one in known if one.ended]
    fruitless = list(takewhile(lambda one: one.state in ("infeasible", "failed"), reversed(ended)))
    if len(fruitless) < MAX_FRUITLESS:
        return ""
    kinds = " or ".join(state for state in ("infeasible", "failed") if any(one.state == state for one in fruitless))
    return f"{MAX_FRUITLESS} trials in a row {kinds}, the last: {fruitless[0].reason}"
