"""Which trial comes next: interrupted ones first, then a new point for the candidate that has
had the fewest.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

from subquad.drivers.folder import same_as_started
from subquad.engine import attempts
from subquad.engine.group import Group
from subquad.engine.result import fail
from subquad.errors import ConfigError, PluginError
from subquad.experiment import Run
from subquad.runs import RESULT, read_json
from subquad.search.candidates import Candidate
from subquad.search.fitting import Fitted
from subquad.search.folder import Trials, trial_folder
from subquad.search.prepare import MAX_FRUITLESS, Prepared
from subquad.search.trial import Trial

_FRUITLESS = ("infeasible", "failed")

MAX_STARTS = 10
"""Drivers that may die while one trial trains, without it coming any further; then it has
failed.
"""


class TrialSource:
    """Gives out trials, reading everything but what runs right now from the search's folder.

    Args:
        prepared: the search.
        trials: its folder's.
        ended: told of each trial that ends here: infeasible ones, and those that are given up.

    Attributes:
        over: why no further trial of a candidate is started, by label; none while there may be.
    """

    def __init__(self, prepared: Prepared, trials: Trials, ended: Callable[[Path], None]):
        self._search = search = prepared.search
        self._fitter = prepared.fitter
        self._trials = trials
        self._ended = ended
        self._samplers = {option.label: search.sampler(option) for option in search.candidates}
        self._launch = uuid.uuid4().hex
        self._planned: dict[tuple[str, int], Trial] = {}
        """Trials given out, with what they are expected to use."""
        self._given_out: set[Path] = set()
        """Folders of runs."""
        self.over: dict[str, str] = {}

    def next(self) -> Run | None:
        """The next trial; None where there is none to start now."""
        if run := self._interrupted():
            return run
        left = [option for option in self._search.candidates if option.label not in self.over]
        while left:
            # the candidate with the fewest trials, so that a search that is cut short is still fair
            candidate = min(left, key=self._started)
            given = self._advance(candidate)
            if isinstance(given, Run):
                return given
            if given:
                left.remove(candidate)
                if all(trial.ended for trial in self._trials.of(candidate.label)):
                    self.over[candidate.label] = (
                        given  # else one that runs may leave some of what it is charged
                    )
        return None

    def _interrupted(self) -> Run | None:
        """A trial that an earlier driver began, as it was written down then."""
        for candidate in self._search.candidates:
            for trial in self._trials.of(candidate.label):
                if not trial.ended and (run := self._open_run(candidate, trial)):
                    return run
        return None

    def _open_run(self, candidate: Candidate, trial: Trial) -> Run | None:
        """The first run of a trial that was not given out and has no result."""
        for number, folder in enumerate(self._trials.runs(trial)):
            if folder in self._given_out or read_json(folder / RESULT) is not None:
                continue
            settings = dict(trial.settings)
            if trial.seeds:
                settings["train.seed"] = trial.seeds[number]
            fitted = self._fitter.fitted(candidate, settings)
            run = self._given(candidate, trial, fitted, folder)
            if not self._gave_up(run):
                return run
        return None

    def _gave_up(self, run: Run) -> bool:
        """Whether a trial takes its driver with it each time, as one does that uses up the
        machine's memory.
        """
        steps = [attempt.from_step for attempt in attempts.read(run.folder)]
        count = len(list(takewhile(lambda step: step == steps[-1], reversed(steps))))
        if count < MAX_STARTS:
            return False
        where = f"while it trained from step {steps[-1]}"
        fail(run, Group(), f"{count} drivers in a row ended {where}: out of memory?")
        self._ended(run.folder)
        return True

    def _started(self, candidate: Candidate) -> int:
        return sum(trial.state != "infeasible" for trial in self._trials.of(candidate.label))

    def _advance(self, candidate: Candidate) -> Run | str:
        """The candidate's next trial; or why there is none, "" where only its point was
        infeasible.
        """
        known, budget = self._trials.of(candidate.label), self._search.settings.limit
        number = known[-1].number + 1 if known else 0
        trial = Trial(candidate=candidate.label, number=number, point={}, state="waiting")
        if reason := _hopeless(known):
            return reason
        if budget.unit == "trials" and not budget.admits(known, trial):
            return "budget used"  # before a point is drawn that would never be tried
        try:
            point = self._samplers[candidate.label].suggest(number, known)
        except ConfigError as error:  # constraints that leave hardly a point
            return str(error)
        if point is None:
            return "no point left to try"
        trial = replace(trial, point=point)
        try:
            fitted = self._fitter.fit(candidate, point)
        except (ConfigError, PluginError) as error:
            self._trials.write(replace(trial, state="infeasible", reason=str(error)))
            self._ended(trial_folder(self._trials.search, candidate.label, number))
            return ""
        seeds = self._search.seeds(candidate)
        trial = replace(
            trial, settings=fitted.values, seeds=seeds, flops_per_step=fitted.flops_per_step
        )
        trial = _planned(trial, fitted, known)
        charged = []
        for other in known:
            planned = self._planned.get((other.candidate, other.number), other)
            charged.append(other if other.ended else planned)
        if not budget.admits(charged, trial):
            return "budget used"
        self._trials.write(trial)
        run = self._open_run(candidate, trial)
        assert run is not None
        return run

    def _given(self, candidate: Candidate, trial: Trial, fitted: Fitted, folder: Path) -> Run:
        known = self._trials.of(candidate.label)
        self._planned[candidate.label, trial.number] = _planned(trial, fitted, known)
        self._given_out.add(folder)
        label = f"{candidate.label}-{trial.number:05d}" + (f"-{folder.name}" if trial.seeds else "")
        own = {"label": label, "axes": candidate.axes, "launch": self._launch}
        run = replace(fitted.run, place=folder, is_trial=True, **own)
        same_as_started(run)
        return run


def _planned(trial: Trial, fitted: Fitted, known: Sequence[Trial]) -> Trial:
    """The trial with what it is expected to use: time as finished ones took for their steps,
    else as was measured.
    """
    runs = max(1, len(trial.seeds))
    finished = [trial for trial in known if trial.state == "finished" and trial.steps]
    seconds = fitted.seconds
    if finished:
        taken = sum(trial.seconds for trial in finished)
        seconds = fitted.steps * taken / sum(trial.steps for trial in finished)
    flops = None if fitted.flops is None else fitted.flops * runs
    return replace(trial, total_steps=fitted.steps, flops=flops, seconds=seconds * runs)


def _hopeless(known: Sequence[Trial]) -> str:
    """Why a candidate's search ends though its budget is not used; "" where it need not."""
    ended = [trial for trial in known if trial.ended]
    newest = list(takewhile(lambda trial: trial.state in _FRUITLESS, reversed(ended)))
    if len(newest) < MAX_FRUITLESS:
        return ""
    states = {trial.state for trial in newest}
    kinds = " or ".join(state for state in _FRUITLESS if state in states)
    return f"{MAX_FRUITLESS} trials in a row {kinds}, the last: {newest[0].reason}"
