"""Which trial comes next: interrupted ones first, then a new point for the candidate that has
had the fewest.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from subquad.drivers.folder import same_as_started
from subquad.engine.group import Group
from subquad.engine.result import fail
from subquad.errors import ConfigError, PluginError
from subquad.experiment import Run
from subquad.record.files import read_json
from subquad.record.metrics import read_attempts
from subquad.record.names import RESULT
from subquad.search.candidates import Candidate
from subquad.search.fitting import Fitted
from subquad.search.folder import Trials, trial_folder
from subquad.search.prepare import MAX_FRUITLESS, Prepared
from subquad.search.sampler import Sampler
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
        self._search = prepared.search
        self._fitter = prepared.fitter
        self._trials = trials
        self._ended = ended
        self._samplers: dict[str, Sampler] = {}
        for candidate in self._search.candidates:
            self._samplers[candidate.label] = self._search.sampler(candidate)
        self._launch = uuid.uuid4().hex
        self._planned: dict[tuple[str, int], Trial] = {}
        """Trials given out, with what they are expected to use."""
        self._given_out: set[Path] = set()
        """Folders of runs."""
        self.over: dict[str, str] = {}

    def next(self) -> Run | None:
        """The next trial; None where there is none to start now."""
        candidates = self._search.candidates
        for candidate in candidates:  # trials that an earlier driver began come first
            for trial in self._trials.of(candidate.label):
                run = None if trial.ended else self._open_run(candidate, trial)
                if run:
                    return run
        left = [candidate for candidate in candidates if candidate.label not in self.over]
        while left:
            # the candidate with the fewest trials, so that a search that is cut short is still fair
            candidate = min(left, key=self._started)
            given = self._advance(candidate)
            if isinstance(given, Run):
                return given
            if not given:
                continue
            left.remove(candidate)
            if all(trial.ended for trial in self._trials.of(candidate.label)):
                # else one that runs may leave some of what it is charged
                self.over[candidate.label] = given
        return None

    def _open_run(self, candidate: Candidate, trial: Trial) -> Run | None:
        """The first run of a trial that was not given out and has no result."""
        for number, folder in enumerate(self._trials.runs(trial)):
            if folder in self._given_out or read_json(folder / RESULT) is not None:
                continue
            settings = dict(trial.settings)
            if trial.seeds:
                settings["train.seed"] = trial.seeds[number]
            run = self._given(candidate, trial, self._fitter.fitted(candidate, settings), folder)
            if not self._gave_up(run):
                return run
        return None

    def _gave_up(self, run: Run) -> bool:
        """Whether a trial takes its driver with it each time, as one does that uses up the
        machine's memory.
        """
        starts = [attempt.from_step for attempt in read_attempts(run.folder)]
        count = 0
        for step in reversed(starts):
            if step != starts[-1]:
                break
            count += 1
        if count < MAX_STARTS:
            return False
        where = f"while it trained from step {starts[-1]}"
        fail(run, Group(), f"{count} drivers in a row ended {where}: out of memory?")
        self._ended(run.folder)
        return True

    def _started(self, candidate: Candidate) -> int:
        trials = self._trials.of(candidate.label)
        return sum(trial.state != "infeasible" for trial in trials)

    def _advance(self, candidate: Candidate) -> Run | str:
        """The candidate's next trial; or why there is none, "" where only its point was
        infeasible.
        """
        known = self._trials.of(candidate.label)
        budget = self._search.settings.limit
        number = known[-1].number + 1 if known else 0
        trial = Trial(candidate=candidate.label, number=number, point={}, state="waiting")
        reason = _hopeless(known)
        if reason:
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
        trial = replace(
            trial,
            settings=fitted.values,
            seeds=self._search.seeds(candidate),
            flops_per_step=fitted.flops_per_step,
        )
        trial = _planned(trial, fitted, known)
        charged = []
        for other in known:
            planned = self._planned.get((candidate.label, other.number), other)
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
        label = f"{candidate.label}-{trial.number:05d}"
        if trial.seeds:
            label += f"-{folder.name}"
        run = replace(
            fitted.run,
            place=folder,
            is_trial=True,
            label=label,
            axes=candidate.axes,
            launch=self._launch,
        )
        same_as_started(run)
        return run


def _planned(trial: Trial, fitted: Fitted, known: Sequence[Trial]) -> Trial:
    """The trial with what it is expected to use: time as finished ones took for their steps,
    else as was measured.
    """
    runs = max(1, len(trial.seeds))
    steps = 0
    taken = 0.0
    for other in known:
        if other.state == "finished":
            steps += other.steps
            taken += other.seconds
    seconds = fitted.seconds
    if steps:
        seconds = fitted.steps * taken / steps
    flops = fitted.flops
    if flops is not None:
        flops *= runs
    return replace(
        trial,
        total_steps=fitted.steps,
        flops=flops,
        seconds=seconds * runs,
    )


def _hopeless(known: Sequence[Trial]) -> str:
    """Why a candidate's search ends though its budget is not used; "" where it need not."""
    newest = [trial for trial in known if trial.ended][-MAX_FRUITLESS:]
    states = {trial.state for trial in newest}
    if states.difference(_FRUITLESS) or len(newest) < MAX_FRUITLESS:
        return ""
    kinds = " or ".join([state for state in _FRUITLESS if state in states])
    return f"{MAX_FRUITLESS} trials in a row {kinds}, the last: {newest[-1].reason}"
