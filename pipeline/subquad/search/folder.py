"""A search's folder, its only memory.

runs/<name>-search/<stamp>-<hash>/
    search.yaml                    the experiment or study, the spaces, the search's settings
    budgets.json                   larger budgets that the search was given later
    lock, owner.json               one driver at a time
    trials/<candidate>/00007/      an ordinary run, and trial.json: which point it is, or why it never ran;
                                   with several seeds seed-0/, seed-1/, ... are the runs
    search.json                    what came of it so far: made anew after each trial
    best/<candidate>.yaml          the winner as an experiment that `train` runs as is
    final.yaml, final/             the winners over the final seeds: an ordinary study; final-1/ before an extension
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ValidationError

from subquad.errors import RunError
from subquad.experiment.settings import dotted
from subquad.integrity import look
from subquad.manifest import Manifest, manifest_of
from subquad.runs import (
    ATTEMPTS,
    FINAL,
    RESULT,
    SUMMARY,
    TRIAL,
    TRIALS,
    Record,
    read_json,
    read_records,
    write_json,
)
from subquad.search.trial import ENDED, Curve, Evaluation, Goal, State, Trial

BUDGETS = "budgets.json"
PUT_BACK = "put it back as it was, or start a new search"
_SEED = "seed-"


def trial_folder(search: Path, candidate: str, number: int) -> Path:
    return search / TRIALS / candidate / f"{number:05d}"


def place_of(run: Path) -> tuple[Path, str, int]:
    """The search, candidate and number of a trial, by the folder of one of its runs."""
    trial = run.parent if run.name.startswith(_SEED) else run
    return trial.parent.parent.parent, trial.parent.name, int(trial.name)


class _Written(BaseModel):
    """The contents of trial.json."""

    candidate: str
    number: int
    point: dict[str, Any]
    settings: dict[str, Any]
    total_steps: int
    flops_per_step: int | None
    seeds: tuple[int, ...] = ()
    state: Literal["infeasible"] | None = None
    reason: str = ""


def _read(folder: Path, metric: str) -> Trial | None:
    """What a trial's folder says.

    Raises:
        RunError: one of its files is not what a search writes.
    """
    written = _begun(folder)
    if written is None:
        return None
    runs = [_read_run(one, metric) for one in _runs_below(folder, written.seeds)]
    steps = sum(run.steps for run in runs)
    return Trial(
        **written.model_dump(exclude={"state", "reason"}),
        state=written.state or _state([one.state for one in runs]),
        curves=tuple(one.curve for one in runs if one.curve),
        steps=steps,
        flops=_flops(steps, written.flops_per_step),
        seconds=sum(run.seconds for run in runs),
        reason=written.reason or next((one.reason for one in runs if one.reason), ""),
    )


def _flops(steps: int, of_step: int | None) -> float | None:
    """What steps consumed; None where it is not known. No steps consume nothing."""
    if of_step is None:
        return None if steps else 0.0
    return float(steps * of_step)


class _TrialRun(NamedTuple):
    state: State
    curve: Curve
    steps: int
    seconds: float
    reason: str


def _read_run(folder: Path, metric: str) -> _TrialRun:
    result, records = _result(folder), _records(folder)
    return _TrialRun(
        state=result.get("status") or ("running" if (folder / ATTEMPTS).exists() else "waiting"),
        curve=_curve(records, metric),
        steps=int(result.get("steps") or (records[-1].step if records else 0)),
        seconds=float(result.get("seconds") or (records[-1].seconds if records else 0.0)),
        reason=result.get("reason") or "",
    )


def _state(runs: Sequence[State]) -> State:
    """One run that failed or was pruned ends its trial; it is finished with the last one."""
    ended: State | None = next((one for one in ("failed", "pruned") if one in runs), None)
    return ended or (runs[0] if len(set(runs)) == 1 else "running")


def free_name(path: Path) -> Path:
    """`path-1`, `path-2`, ...: the first that is not there."""
    return next(one for number in count(1) if not (one := path.with_name(f"{path.name}-{number}")).exists())


def earlier_finals(search: Path) -> list[Path]:
    """Final studies that were set aside for an extension, the oldest first."""
    found = search.glob(f"{FINAL}-[0-9]*")
    return sorted(found, key=lambda path: int(path.name.rpartition("-")[2]))


def _begun(folder: Path) -> _Written | None:
    path = folder / TRIAL
    if not path.exists():
        if left := next((name for name in (RESULT, ATTEMPTS) if (folder / name).exists()), None):
            raise _damaged(path, f"is missing beside {left}")
        return None
    try:
        written = _Written.model_validate(_object(path))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _damaged(path, f"{dotted(first['loc'])}: {first['msg']}") from None
    if (written.candidate, written.number) != (folder.parent.name, int(folder.name)):
        raise _damaged(path, f"is of trial {written.number} of {written.candidate}")
    return written


def _result(folder: Path) -> dict[str, Any]:
    path = folder / RESULT
    if not path.exists():
        return {}
    data = _object(path)
    if data.get("status") not in ENDED:
        raise _damaged(path, "does not say how the trial ended")
    if faults := look(folder).faults:
        raise _damaged(path, faults[0])
    return data


def _records(folder: Path) -> list[Record]:
    try:
        return list(read_records(folder))
    except RunError as error:
        raise RunError(f"{error}; {PUT_BACK}") from error


def _object(path: Path) -> dict[str, Any]:
    data = read_json(path)
    if data is None:
        raise _damaged(path, "is no JSON object")
    return data


def _damaged(path: Path, what: str) -> RunError:
    return RunError(f"{path}: {what}; {PUT_BACK}")


def _curve(records: list[Record], metric: str) -> Curve:
    return tuple(
        Evaluation(step=one.step, value=one.metrics.get(metric, math.nan), loss=one.metrics.get("loss", math.nan))
        for one in records
        if one.kind == "eval" and one.split == "validation"
    )


def _number(folder: Path) -> int:
    if not folder.name.isdigit() or folder.name != f"{int(folder.name):05d}":
        raise RunError(f"{folder}: not a trial's folder; move it out of the search")
    return int(folder.name)


def _runs_below(trial: Path, seeds: Sequence[int]) -> list[Path]:
    return [trial / f"{_SEED}{seed}" for seed in seeds] if seeds else [trial]


@dataclass(frozen=True)
class Trials:
    """The trials of a search, in its folder; those that ended are read once.

    Attributes:
        search: the folder.
        goals: of each candidate, by label.
    """

    search: Path
    goals: Mapping[str, Goal]
    _ended: dict[tuple[str, int], Trial] = field(default_factory=dict, repr=False, compare=False)
    _manifests: dict[tuple[str, int], Manifest] = field(default_factory=dict, repr=False, compare=False)

    def of(self, candidate: str) -> list[Trial]:
        """A candidate's trials by number. A folder that a kill left without its trial.json is none.

        Raises:
            RunError: a folder is none of a search, or a file in it is damaged.
        """
        numbers = sorted(map(_number, (self.search / TRIALS / candidate).glob("[0-9]*")))
        return [one for number in numbers if (one := self.one(candidate, number)) is not None]

    def one(self, candidate: str, number: int) -> Trial | None:
        """What a trial's folder says; None where it was not begun."""
        key = (candidate, number)
        if key in self._ended:
            return self._ended[key]
        trial = _read(trial_folder(self.search, candidate, number), self.goals[candidate].metric)
        if trial is not None and trial.ended:
            self._ended[key] = trial
        return trial

    def manifests(self, candidate: str) -> dict[str, Manifest]:
        """Of each ended trial the manifest of what it was and came to, by number."""
        return {str(one.number): self._manifest(one) for one in self.of(candidate) if one.ended}

    def _manifest(self, trial: Trial) -> Manifest:
        key = (trial.candidate, trial.number)
        if key not in self._manifests:
            folder = trial_folder(self.search, *key)
            files = [folder / TRIAL, *(run / RESULT for run in self.runs(trial))]
            named = {path.relative_to(folder).as_posix(): path for path in files}
            self._manifests[key] = manifest_of(named)
        return self._manifests[key]

    def check(self) -> None:
        """Refuse a folder in which a trial that search.json says has ended is gone or another one.

        Raises:
            RunError: which one, and how.
        """
        for candidate in (read_json(self.search / SUMMARY) or {}).get("candidates", ()):
            for number, manifest in candidate.get("ended", {}).items():
                folder = trial_folder(self.search, candidate["label"], int(number))
                trial = self.one(candidate["label"], int(number))
                if trial is None:
                    raise _damaged(folder, "a trial that had ended is gone")
                if self._manifest(trial) != manifest:
                    raise _damaged(folder, "a trial was changed after it had ended")

    def runs(self, trial: Trial) -> list[Path]:
        """The folders of a trial's runs: its own, or with several seeds one below it for each."""
        return _runs_below(trial_folder(self.search, trial.candidate, trial.number), trial.seeds)

    def write(self, trial: Trial) -> None:
        """Write down which point a trial is, before it starts; of an infeasible point also why it never will."""
        names = ["candidate", "number", "point", "settings", "total_steps", "flops_per_step"]
        names += ["seeds"] if trial.seeds else []
        names += ["state", "reason"] if trial.state == "infeasible" else []
        path = trial_folder(self.search, trial.candidate, trial.number) / TRIAL
        write_json(path, {name: getattr(trial, name) for name in names})
