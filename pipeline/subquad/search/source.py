"""Which trial comes next: interrupted ones first, then a new point for the candidate that has
had the fewest.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from subquad.engine.group import Group
from subquad.engine.result import fail
from subquad.errors import ConfigError, PluginError, RunError
from subquad.experiment import Run
from subquad.experiment.folder import same_as_started
from subquad.record.files import write_json
from subquad.record.metrics import read_attempts
from subquad.record.names import ATTEMPTS, JOURNAL, RESULT, TRIAL
from subquad.record.run_folder import RunFolder
from subquad.record.storage import remove_tree
from subquad.search.candidates import Candidate
from subquad.search.fitting import Fitted, Prepared
from subquad.search.folder import came_to, curve_of, place_of, runs_of, trial_folder
from subquad.search.journal import PUT_BACK, Trials
from subquad.search.prepare import MAX_FRUITLESS
from subquad.search.trial import Trial

_FRUITLESS = ("infeasible", "failed")

MAX_STARTS = 10
"""Drivers that may die while one trial trains, without it coming any further; then it has
failed.
"""


class TrialSource:
    """Gives out trials and records what becomes of them.

    Args:
        prepared: the search.
        folder: its own.
        trials: its trials, by the candidate's label.
        told: told of each trial that ended, once over all drivers of the search.

    Attributes:
        over: why no further trial of a candidate is started, by label; none while there may be.
    """

    def __init__(
        self,
        prepared: Prepared,
        folder: Path,
        trials: Mapping[str, Trials],
        told: Callable[[Trial], None] = lambda trial: None,
    ):
        self._search = prepared.search
        self._prepared = prepared
        self._folder = folder
        self._trials = trials
        self._told = told
        candidates = self._search.candidates
        self._samplers = {each.label: self._search.sampler(each) for each in candidates}
        self._pruners = {each.label: self._search.pruner(each) for each in candidates}
        self._launch = uuid.uuid4().hex
        self._given_out: set[Path] = set()
        """Folders of runs."""
        self.over: dict[str, str] = {}

    def next(self) -> Run | None:
        """The next run; None where there is none to start now."""
        candidates = self._search.candidates
        for candidate in candidates:  # trials that an earlier driver began come first
            for trial in self._trials[candidate.label].known:
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
            if all(trial.ended for trial in self._trials[candidate.label].known):
                # else one that runs may leave some of what it is charged
                self.over[candidate.label] = given
        return None

    def unrecorded(self) -> Iterator[Path]:
        """Runs that an earlier driver was killed behind, before it recorded what became of them."""
        for trials in self._trials.values():
            for trial in trials.known:
                if not trial.ended:
                    yield from filter(_has_result, runs_of(self._folder, trial))

    def ended(self, run: Path) -> None:
        """Record what became of the trial of a run that has a result, and remove its weights: the
        winner is trained anew.

        The driver alone removes them: it would take files that go while it reads them for damage.

        Raises:
            RunError: a file of the trial is damaged.
        """
        storage = self._search.candidates[0].run.experiment.resources.storage
        remove_tree(RunFolder(run, storage).checkpoints)
        label, number = place_of(run)
        trials = self._trials[label]
        trial = trials.known[number]
        if not trial.ended:  # another one of its runs ended it
            self._record(came_to(self._folder, trial, trials.goal))

    def _record(self, trial: Trial) -> None:
        if trial.ended:
            self._trials[trial.candidate].record(trial)
            self._told(trial)

    def reason_to_stop(self, run: Path) -> str:
        """Why a trial shall end after the evaluation it just had; "" where it shall go on."""
        label, number = place_of(run)
        trials = self._trials[label]
        index = runs_of(self._folder, trials.known[number]).index(run)
        *_, newest = curve_of(run, trials.goal.metric)
        return trials.reason_to_stop(self._pruners[label], number, index, newest)

    def _open_run(self, candidate: Candidate, trial: Trial) -> Run | None:
        """The first run of a trial that was not given out and has no result."""
        for number, folder in enumerate(runs_of(self._folder, trial)):
            if folder in self._given_out or _has_result(folder):
                continue
            settings = self._prepared.fit(candidate, trial.point).values
            self._write(trial, settings=settings)
            if trial.seeds:
                settings["train.seed"] = trial.seeds[number]
            self._given_out.add(folder)
            label = f"{candidate.label}-{trial.number:05d}"
            run = replace(
                candidate.laid(settings),
                place=folder,
                is_trial=True,
                label=f"{label}-{folder.name}" if trial.seeds else label,
                axes=candidate.axes,
                launch=self._launch,
            )
            same_as_started(run)
            if not self._gave_up(run):
                return run
        return None

    def _gave_up(self, run: Run) -> bool:
        """Whether a trial takes its driver with it each time, as one does that uses up the
        machine's memory.
        """
        starts = [attempt.from_step for attempt in read_attempts(run.folder)]
        count = len(list(takewhile(lambda step: step == starts[-1], reversed(starts))))
        if count < MAX_STARTS:
            return False
        where = f"while it trained from step {starts[-1]}"
        fail(run, Group(), f"{count} drivers in a row ended {where}: out of memory?")
        self.ended(run.folder)
        return True

    def _started(self, candidate: Candidate) -> int:
        return sum(trial.state != "infeasible" for trial in self._trials[candidate.label].known)

    def _advance(self, candidate: Candidate) -> Run | str:
        """The candidate's next trial; or why there is none, "" where only its point was
        infeasible.
        """
        trials = self._trials[candidate.label]
        known = trials.known
        budget = self._search.settings.limit
        trial = Trial(candidate=candidate.label, number=len(known), point={}, state="running")
        reason = _hopeless(known)
        if reason:
            return reason
        if budget.unit == "trials" and not budget.admits(known, trial):
            return "budget used"  # before a point is drawn that would never be tried
        try:
            point = trials.ask(self._samplers[candidate.label])
        except ConfigError as error:  # constraints that leave hardly a point
            return str(error)
        if point is None:
            return "no point left to try"
        trial = replace(trial, point=point)
        try:
            fitted = self._prepared.fit(candidate, point)
        except (ConfigError, PluginError) as error:
            trial = replace(trial, state="infeasible", reason=str(error))
            self._write(trial, state=trial.state, reason=trial.reason)
            self._record(trial)
            return ""
        trial = _planned(trial, fitted, self._search.seeds(candidate), known)
        if not budget.admits(known, trial):
            return "budget used"
        folder = trial_folder(self._folder, trial.candidate, trial.number)
        if any(folder.rglob(ATTEMPTS)):
            raise RunError(f"{self._folder / JOURNAL}: does not know {folder}; {PUT_BACK}")
        trials.record(trial)
        run = self._open_run(candidate, trial)
        assert run is not None
        return run

    def _write(self, trial: Trial, **more: Any) -> None:
        """Say in a trial's folder which point it is, for those who read folders."""
        folder = trial_folder(self._folder, trial.candidate, trial.number)
        write_json(folder / TRIAL, {"point": trial.point, **more})


def _has_result(run: Path) -> bool:
    return (run / RESULT).exists()


def _planned(trial: Trial, fitted: Fitted, seeds: Sequence[int], known: Sequence[Trial]) -> Trial:
    """The trial with what it is expected to use: time as finished ones took for their steps,
    else as was measured.
    """
    runs = max(1, len(seeds))
    finished = [other for other in known if other.state == "finished"]
    seconds = fitted.seconds
    if steps := sum(other.steps for other in finished):
        seconds = fitted.steps * sum(other.seconds for other in finished) / steps
    return replace(
        trial,
        seeds=seeds,
        total_steps=fitted.steps,
        flops_per_step=fitted.flops_per_step,
        flops=None if fitted.flops is None else fitted.flops * runs,
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
