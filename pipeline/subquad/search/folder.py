"""A search's folder, its only memory.

runs/<name>-search/<stamp>-<hash>/
    search.yaml                    the experiment or study, the spaces and the search's settings
    lock, owner.json               one driver at a time
    trials/<candidate>/00007/        an ordinary run, and trial.json: which point it is, or why it never ran
    search.json                    what came of it so far: made anew after each trial
    best/<candidate>.yaml            the winner as an experiment that `train` runs as is
    final.yaml, final/             the winners over the final seeds: an ordinary study
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from subquad.errors import RunError
from subquad.experiment.settings import dotted, one_line
from subquad.runs import (
    ATTEMPTS,
    METRICS,
    RESULT,
    SEARCH,
    TRIAL,
    TRIALS,
    Record,
    read_json,
    read_records,
    write_json,
)
from subquad.search.trial import ENDED, Curve, Evaluation, Goal, State, Trial

BEST = "best"


def is_search(folder: Path) -> bool:
    return (folder / SEARCH).exists()


def trial_folder(search: Path, candidate: str, number: int) -> Path:
    return search / TRIALS / candidate / f"{number:05d}"


def place_of(trial: Path) -> tuple[Path, str, int]:
    """The search, candidate and number of a trial's folder."""
    return trial.parent.parent.parent, trial.parent.name, int(trial.name)


def write_trial(search: Path, trial: Trial, settings: Mapping[str, Any], flops_per_step: int | None) -> None:
    """Write down which point a trial is, before it starts; of an infeasible point also why it never will.

    Args:
        settings: what is laid over the candidate's experiment, by dotted key.
        flops_per_step: counted; None where it is not known.
    """
    data: dict[str, Any] = {
        "candidate": trial.candidate,
        "number": trial.number,
        "point": trial.point,
        "settings": dict(settings),
        "total_steps": trial.total_steps,
        "flops_per_step": flops_per_step,
    }
    if trial.state == "infeasible":
        data |= {"state": trial.state, "reason": trial.reason}
    write_json(trial_folder(search, trial.candidate, trial.number) / TRIAL, data)


def settings_of(folder: Path) -> dict[str, Any]:
    """What a trial lays over its candidate's experiment, by dotted key."""
    return (read_json(folder / TRIAL) or {})["settings"]


def read_trial(folder: Path, metric: str) -> Trial | None:
    """What a trial's folder says; None where it was not begun.

    Raises:
        RunError: one of its files is not what a search writes.
    """
    data = _begun(folder)
    if data is None:
        return None
    result = _result(folder)
    records = _records(folder)
    steps = int(result.get("steps") or (records[-1].step if records else 0))
    return Trial(
        candidate=data["candidate"],
        number=data["number"],
        point=data["point"],
        state=_state(folder, data, result),
        curves=(curve,) if (curve := _curve(records, metric)) else (),
        total_steps=data["total_steps"],
        steps=steps,
        flops=float(steps * (data["flops_per_step"] or 0)),
        seconds=float(result.get("seconds") or (records[-1].seconds if records else 0.0)),
        reason=data.get("reason") or result.get("reason") or "",
    )


class _Written(BaseModel):
    """The contents of trial.json."""

    candidate: str
    number: int
    point: dict[str, Any]
    settings: dict[str, Any]
    total_steps: int
    flops_per_step: int | None
    state: Literal["infeasible"] | None = None
    reason: str = ""


def _begun(folder: Path) -> dict[str, Any] | None:
    path = folder / TRIAL
    if not path.exists():
        if left := next((name for name in (RESULT, ATTEMPTS) if (folder / name).exists()), None):
            raise _damaged(path, f"is missing beside {left}")
        return None
    data = _object(path)
    try:
        written = _Written.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _damaged(path, f"{dotted(first['loc'])}: {first['msg']}") from None
    if (written.candidate, written.number) != (folder.parent.name, int(folder.name)):
        raise _damaged(path, f"is of trial {written.number} of {written.candidate}")
    return data


def _result(folder: Path) -> dict[str, Any]:
    path = folder / RESULT
    if not path.exists():
        return {}
    data = _object(path)
    if data.get("status") not in ENDED:
        raise _damaged(path, "does not say how the trial ended")
    return data


def _records(folder: Path) -> list[Record]:
    try:
        return list(read_records(folder))
    except (ValueError, TypeError, KeyError, AttributeError) as error:  # a line that is no record
        raise _damaged(folder / METRICS, f"holds a line that is no record ({type(error).__name__})") from error


def _object(path: Path) -> dict[str, Any]:
    data = read_json(path)
    if data is None:
        raise _damaged(path, "is no JSON object")
    return data


def _damaged(path: Path, what: str) -> RunError:
    return RunError(one_line(f"{path}: {what}; put it back as it was, or start a new search"))


def _state(folder: Path, data: Mapping[str, Any], result: Mapping[str, Any]) -> State:
    if data.get("state") == "infeasible":
        return "infeasible"
    if status := result.get("status"):
        return status
    return "running" if (folder / ATTEMPTS).exists() else "waiting"


def _curve(records: list[Record], metric: str) -> Curve:
    return tuple(
        Evaluation(step=one.step, value=one.metrics.get(metric, math.nan), loss=one.metrics.get("loss", math.nan))
        for one in records
        if one.kind == "eval" and one.split == "validation"
    )


def _number(folder: Path) -> int:
    if not folder.name.isdigit() or folder.name != f"{int(folder.name):05d}":
        raise RunError(one_line(f"{folder}: not a trial's folder; move it out of the search"))
    return int(folder.name)


@dataclass(frozen=True)
class Trials:
    """The trials of a search, read from its folder; those that ended are read once.

    Attributes:
        search: the folder.
        goals: of each candidate, by label.
    """

    search: Path
    goals: Mapping[str, Goal]
    _ended: dict[tuple[str, int], Trial] = field(default_factory=dict, repr=False, compare=False)

    def of(self, candidate: str) -> list[Trial]:
        """A candidate's trials by number. A folder that a kill left without its trial.json is none.

        Raises:
            RunError: a folder is none of a search, or a file in it is damaged.
        """
        folders = sorted((self.search / TRIALS / candidate).glob("[0-9]*"), key=_number)
        return [one for folder in folders if (one := self._read(candidate, folder)) is not None]

    def one(self, candidate: str, number: int) -> Trial | None:
        return self._read(candidate, trial_folder(self.search, candidate, number))

    def _read(self, candidate: str, folder: Path) -> Trial | None:
        key = (candidate, _number(folder))
        if key in self._ended:
            return self._ended[key]
        trial = read_trial(folder, self.goals[candidate].metric)
        if trial is not None and trial.ended:
            self._ended[key] = trial
        return trial
