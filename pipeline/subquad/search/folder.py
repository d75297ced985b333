"""A search's folder, its only memory.

runs/<name>-search/<stamp>-<hash>/
    search.yaml                    the experiment or study, the spaces, the search's settings
    budgets.json                   larger budgets that the search was given later
    lock, owner.json               one driver at a time
    trials/<candidate>/00007/      an ordinary run, and trial.json: which point it is, or why it
                                   never ran; with several seeds seed-0/, seed-1/, ... are the runs
    search.json                    what came of it so far: made anew after each trial
    best/<candidate>.yaml          the winner as an experiment that `train` runs as is
    final.yaml, final/             the winners over the final seeds: an ordinary study; final-1/
                                   before an extension
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ValidationError

from subquad.errors import RunError
from subquad.experiment.settings import dotted
from subquad.record.files import read_json, write_json
from subquad.record.integrity import look, look_at_search
from subquad.record.metrics import Record, read_records
from subquad.record.names import ATTEMPTS, FINAL, RESULT, TRIAL, TRIALS
from subquad.record.sums import Manifest, by_name, manifest_of
from subquad.search.trial import ENDED, Curve, Evaluation, Goal, State, Trial, Values

BUDGETS = "budgets.json"
PUT_BACK = "put it back as it was, or start a new search"
_SEED = "seed-"


def trial_folder(search: Path, candidate: str, number: int) -> Path:
    return search / TRIALS / candidate / f"{number:05d}"


def place_of(run: Path) -> tuple[str, int]:
    """The candidate and the number of a trial, by the folder of one of its runs."""
    trial = run.parent if run.name.startswith(_SEED) else run
    return trial.parent.name, int(trial.name)


class _Written(BaseModel):
    """The contents of trial.json."""

    candidate: str
    number: int
    point: Values
    settings: Values
    total_steps: int
    flops_per_step: int | None
    seeds: tuple[int, ...] = ()
    state: Literal["infeasible"] | None = None
    reason: str = ""


def _read(folder: Path, written: _Written, metric: str) -> Trial:
    """What a trial's folder says.

    Raises:
        RunError: one of its files is not what a search writes.
    """
    states: list[State] = []
    curves: list[Curve] = []
    reasons = [written.reason]
    steps, seconds = 0, 0.0
    for run in _runs_below(folder, written.seeds):
        result = _result(run)
        records = _records(run)
        started: State = "running" if (run / ATTEMPTS).exists() else "waiting"
        states.append(result.get("status", started))
        curve = _curve(records, metric)
        if curve:
            curves.append(curve)
        reasons.append(result.get("reason") or "")
        last_step = 0
        last_seconds = 0.0
        if records:
            newest = records[-1]
            last_step = newest.step
            last_seconds = newest.seconds
        steps += result.get("steps") or last_step
        seconds += result.get("seconds") or last_seconds
    flops = None
    if written.flops_per_step is not None or not steps:
        each = written.flops_per_step or 0
        flops = float(steps * each)
    identity = written.model_dump(exclude={"state", "reason"})
    given_reasons = filter(None, reasons)
    return Trial(
        **identity,
        state=written.state or _state(states),
        curves=tuple(curves),
        steps=steps,
        flops=flops,
        seconds=seconds,
        reason=next(given_reasons, ""),
    )


def _state(runs: Sequence[State]) -> State:
    """One run that failed or was pruned ends its trial; it is finished with the last one."""
    for ended in ("failed", "pruned"):
        if ended in runs:
            return ended
    if len(set(runs)) == 1:
        return runs[0]
    return "running"


def free_name(path: Path) -> Path:
    """`path-1`, `path-2`, ...: the first that is not there."""
    for number in count(1):
        name = path.with_name(f"{path.name}-{number}")
        if not name.exists():
            return name
    raise AssertionError("numbers have no end")


def earlier_finals(search: Path) -> list[Path]:
    """Final studies that were set aside for an extension, the oldest first."""
    return sorted(search.glob(f"{FINAL}-[0-9]*"), key=_final_number)


def _final_number(path: Path) -> int:
    _, _, number = path.name.rpartition("-")
    return int(number)


def _begun(folder: Path) -> _Written | None:
    path = folder / TRIAL
    if not path.exists():
        for name in (RESULT, ATTEMPTS):
            if (folder / name).exists():
                raise _damaged(path, f"is missing beside {name}")
        return None
    try:
        written = _Written.model_validate(_object(path))
    except ValidationError as error:
        first, *_ = error.errors(include_url=False)
        setting = dotted(first["loc"])
        message = first["msg"]
        raise _damaged(path, f"{setting}: {message}") from None
    if (written.candidate, written.number) != (folder.parent.name, int(folder.name)):
        raise _damaged(path, f"is of trial {written.number} of {written.candidate}")
    return written


def _result(folder: Path) -> Values:
    path = folder / RESULT
    if not path.exists():
        return {}
    data = _object(path)
    if data.get("status") not in ENDED:
        raise _damaged(path, "does not say how the trial ended")
    for fault in look(folder).faults:
        raise _damaged(path, fault)
    return data


def _records(folder: Path) -> list[Record]:
    try:
        return list(read_records(folder))
    except RunError as error:
        raise RunError(f"{error}; {PUT_BACK}") from error


def _object(path: Path) -> Values:
    data = read_json(path)
    if data is None:
        raise _damaged(path, "is no JSON object")
    return data


def _damaged(path: Path, what: str) -> RunError:
    return RunError(f"{path}: {what}; {PUT_BACK}")


def _curve(records: list[Record], metric: str) -> Curve:
    curve: list[Evaluation] = []
    for record in records:
        if record.kind == "eval" and record.split == "validation":
            metrics = record.metrics
            value = metrics.get(metric, math.nan)
            loss = metrics.get("loss", math.nan)
            curve.append(Evaluation(step=record.step, value=value, loss=loss))
    return tuple(curve)


def _number(folder: Path) -> int:
    name = folder.name
    number = int(name) if name.isdigit() else -1
    if name != f"{number:05d}":
        raise RunError(f"{folder}: not a trial's folder; move it out of the search")
    return number


def _runs_below(trial: Path, seeds: Sequence[int]) -> list[Path]:
    if not seeds:
        return [trial]
    names = [f"{_SEED}{seed}" for seed in seeds]
    return [trial / name for name in names]


@dataclass(frozen=True)
class Trials:
    """The trials of a search, in its folder; those that ended are read once.

    The folder is listed once too: a search's driver numbers its trials without a gap, so a new one
    comes after the last.

    Attributes:
        search: the folder.
        goals: of each candidate, by label.
    """

    search: Path
    goals: Mapping[str, Goal]
    _known: dict[str, dict[int, Trial]] = field(default_factory=dict, repr=False, compare=False)
    """Trials of each candidate by number, in its order, as they were when they were read last."""

    _files: dict[tuple[str, int], Manifest] = field(default_factory=dict, repr=False, compare=False)

    def of(self, candidate: str) -> list[Trial]:
        """A candidate's trials by number. A folder that a kill left without its trial.json is none.

        Raises:
            RunError: a folder is none of a search, or a file in it is damaged.
        """
        if candidate not in self._known:
            self._known[candidate] = {}
            for number in sorted(map(_number, (self.search / TRIALS / candidate).glob("[0-9]*"))):
                self._look(candidate, number)
        known = self._known[candidate]
        for trial in list(known.values()):
            if not trial.ended:
                self._look(candidate, trial.number)
        new = max(known, default=-1) + 1
        while self._look(candidate, new):
            new += 1
        return list(known.values())

    def trial(self, candidate: str, number: int) -> Trial | None:
        """What a trial's folder says; None where it was not begun."""
        trial = self._known.get(candidate, {}).get(number)
        if trial is None or not trial.ended:
            self.of(candidate)
            trial = self._known[candidate].get(number)
        return trial

    def _look(self, candidate: str, number: int) -> Trial | None:
        """Read a trial anew."""
        folder = trial_folder(self.search, candidate, number)
        known = self._known[candidate]
        begun = _begun(folder)
        if begun is None:
            known.pop(number, None)
            return None
        known[number] = _read(folder, begun, self.goals[candidate].metric)
        return known[number]

    def files(self) -> Manifest:
        """The manifest of what the ended trials were and came to."""
        found: Manifest = {}
        for trial in chain.from_iterable(map(self.of, self.goals)):
            if trial.ended:
                found |= self._files_of(trial)
        return found

    def _files_of(self, trial: Trial) -> Manifest:
        key = (trial.candidate, trial.number)
        if key not in self._files:
            folder = trial_folder(self.search, *key)
            paths = (folder / TRIAL, folder / RESULT, *folder.glob(f"*/{RESULT}"))
            self._files[key] = manifest_of(by_name(self.search, paths))
        return self._files[key]

    def check(self) -> None:
        """Refuse a folder in which a trial that search.json says has ended is gone or another one.

        Raises:
            RunError: which one, and how.
        """
        for label in self.goals:
            self.of(label)
        for fault in look_at_search(self.search, f"{TRIALS}/"):
            raise _damaged(self.search, fault)

    def runs(self, trial: Trial) -> list[Path]:
        """The folders of a trial's runs: its own, or with several seeds one below it for each."""
        return _runs_below(trial_folder(self.search, trial.candidate, trial.number), trial.seeds)

    def write(self, trial: Trial) -> None:
        """Write down which point a trial is, before it starts; of an infeasible point also why
        it never will.
        """
        names = ["candidate", "number", "point", "settings", "total_steps", "flops_per_step"]
        if trial.seeds:
            names += ["seeds"]
        if trial.state == "infeasible":
            names += ["state", "reason"]
        folder = trial_folder(self.search, trial.candidate, trial.number)
        write_json(folder / TRIAL, {name: getattr(trial, name) for name in names})
