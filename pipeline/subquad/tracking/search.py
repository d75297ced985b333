"""A search in MLflow: a parent run, below it one for each trial, found in the search's folder while it grows.

A trial is there once it has begun to train, or its point was refused. Everything is read from files, so any process
can send a search: the one beside its driver, or `subquad sync`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from subquad.runs import ATTEMPTS, EXPERIMENT, METRICS, RESULT, flatten, read_json, read_result
from subquad.search.folder import BEST, FINAL, SEARCH, SUMMARY, TRIAL, TRIALS
from subquad.search.pictures import PLOTS
from subquad.tracking.artifacts import send_files, send_masked
from subquad.tracking.contracts import TrackedRun
from subquad.tracking.courier import Courier, RunCourier
from subquad.tracking.final import search_name
from subquad.tracking.names import clean
from subquad.tracking.outcome import Outcome
from subquad.tracking.points import Point
from subquad.tracking.progress import Progress, load

if TYPE_CHECKING:
    from subquad.tracking.mlflow import Store

ESSENTIALS = (
    *("name", "protocol", "dataset.name", "task.name", "backbone.name", "mixer.name", "train.seed"),
    *("train.epochs", "train.steps", "train.batch_size", "train.optimizer", "train.lr", "train.weight_decay"),
)
"""Settings that every trial shows beside its point; all of them are in its experiment.yaml."""


def head_of(search: Path) -> TrackedRun:
    """The parent run: what was searched, how, and for how much."""
    said = read_yaml(search / SEARCH)
    params = {"name": (said.get("experiment") or {}).get("name"), **(said.get("settings") or {})}
    tags = {"subquad.kind": "search", "subquad.search": search_name(search)}
    return TrackedRun(search, search_name(search), params, tags)


def begun_trials(search: Path, known: Container[Path] = ()) -> list[TrackedRun]:
    """Trials that have begun or never will, in the order of subjects and numbers.

    Args:
        known: folders to leave out.
    """
    folders = (path.parent for path in sorted((search / TRIALS).glob(f"*/*/{TRIAL}")))
    return [run for folder in folders if folder not in known and (run := _trial(search, folder))]


def search_of(folder: Path) -> Path | None:
    """The search that a trial's folder belongs to."""
    return folder.parents[2] if (folder / TRIAL).exists() and len(folder.parents) > 2 else None


def read_yaml(path: Path) -> dict[str, Any]:
    """A mapping; an empty one where the file is missing or holds none."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError):
        return {}
    return data if isinstance(data, dict) else {}


def _trial(search: Path, folder: Path) -> TrackedRun | None:
    said = read_json(folder / TRIAL)
    begun = any((folder / name).exists() for name in (ATTEMPTS, METRICS, RESULT))
    if said is None or not (begun or said.get("state")):
        return None
    settings = flatten(read_yaml(folder / EXPERIMENT))
    fixed = {key: settings[key] for key in ESSENTIALS if settings.get(key) is not None}
    tags = {
        "subquad.kind": "trial",
        "subquad.search": search_name(search),
        "subquad.subject": str(said["subject"]),
        "subquad.trial": str(said["number"]),
        **{f"subquad.{kind}": str(fixed[f"{kind}.name"]) for kind in ("dataset", "mixer") if f"{kind}.name" in fixed},
    }
    label = f"{said['subject'] or 'trial'}-{said['number']:05d}"
    return TrackedRun(folder, label, {**fixed, **(said.get("settings") or {}), **said["point"]}, tags)


class TrialCourier(RunCourier):
    """Carries a trial. An ended one never changes, so it is carried once."""

    def outcome(self, *, final: bool) -> Outcome | None:
        said, result = read_json(self.folder / TRIAL) or {}, read_result(self.folder)
        if said.get("state"):
            return _refused(self.folder, said)
        end = super().outcome(final=final)
        if end is None or result is None:
            return end
        tags = {key: value for key, value in end.tags.items() if key != "subquad.protocol_label"}  # speaks of the test
        return replace(end, tags=tags, points=(*end.points, *_scored(result, int(end.ended * 1000))))

    def step(self, store: Store, parent_run_id: str | None, *, final: bool) -> Progress:
        ended = self.outcome(final=False) is not None
        progress = super().step(store, parent_run_id, final=final)
        self.settled = ended and progress.done
        return progress

    def send_artifacts(self, store: Store, run_id: str) -> None:
        """The files alone: drawing curves of every trial would take time that training needs."""
        send_masked(store, run_id, self.folder, (TRIAL,))
        send_files(store, run_id, self.folder)

    def started(self) -> bool:
        return True


def _refused(folder: Path, said: Mapping[str, Any]) -> Outcome:
    """The end of a point that the plugin or the data refuse: nothing ran, so nothing failed or finished."""
    tags = {"subquad.status": said["state"], "subquad.reason": str(said.get("reason") or "")[:5000]}
    return Outcome("KILLED", (folder / TRIAL).stat().st_mtime, said["state"], tags)


def _scored(result: Mapping[str, Any], time_ms: int) -> list[Point]:
    """What a trial consumed, and of a finished one what it is judged by: its best validation metric."""
    steps, cost = int(result.get("steps") or 0), result.get("flops_per_step")
    values = {"consumed/steps": steps, "consumed/seconds": result.get("seconds")}
    values |= {"consumed/flops": steps * cost} if cost else {}
    points = [Point(key, float(value), time_ms, steps) for key, value in values.items() if value is not None]
    best = result.get("best") or {}
    value = (best.get("metrics") or {}).get(result.get("metric"))
    if result.get("status") == "finished" and value is not None:
        points.append(Point("objective", float(value), time_ms, int(best.get("step") or 0)))
    return points


class SearchCourier(Courier):
    """Carries a search's parent run. It is closed with the driver, when winners and plots are there."""

    def started(self) -> bool:
        return (self.folder / SEARCH).exists()

    def began(self) -> float:
        return (self.folder / SEARCH).stat().st_mtime

    def outcome(self, *, final: bool) -> Outcome | None:
        end = search_outcome(self.folder)
        progress = load(self.folder)
        told = progress is not None and progress.closed == end.digest
        return end if final or (told and end.status != "KILLED") else None  # one that was killed goes on again

    def send_artifacts(self, store: Store, run_id: str) -> None:
        send_masked(store, run_id, self.folder, (SEARCH, SUMMARY, f"{FINAL}.yaml"))
        for path in sorted((self.folder / BEST).glob("*.yaml")):
            send_masked(store, run_id, self.folder, (f"{BEST}/{path.name}",))
        for path in sorted((self.folder / PLOTS).glob("*.png")):
            store.send_file(run_id, path, PLOTS)


def search_outcome(search: Path) -> Outcome:
    """How a search stands: FINISHED where no further trial will start, FAILED where then a subject has no winner."""
    summary = read_json(search / SUMMARY) or {}
    subjects = summary.get("subjects") or []
    over = bool(subjects) and all(one["over"] and not _open(one) for one in subjects)
    status = "KILLED" if not over else "FINISHED" if all(one["best"] for one in subjects) else "FAILED"
    files = [path for path in _files(search) if path.is_file()]
    seen = "\n".join(f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in files)
    ended = max((path.stat().st_mtime for path in files), default=search.stat().st_mtime)
    tags = {"subquad.status": status.lower(), **_winners(subjects)}
    digest = hashlib.sha256(f"{status}\n{seen}".encode()).hexdigest()[:16]
    return Outcome(status, ended, digest, tags, _consumed(subjects, int(ended * 1000)))


def _open(subject: Mapping[str, Any]) -> int:
    return subject["trials"].get("running", 0) + subject["trials"].get("waiting", 0)


def _files(search: Path) -> list[Path]:
    return [search / SUMMARY, *sorted((search / BEST).glob("*.yaml")), *sorted((search / PLOTS).glob("*.png"))]


def _winners(subjects: list[dict[str, Any]]) -> dict[str, str]:
    """A tag for each subject that has one."""
    return {
        f"subquad.winner.{one['label']}"[:250]: (
            f"trial {one['best']['number']}: {one['metric']} {one['best']['value']} at step {one['best']['step']}; "
            + " ".join(f"{key}={value}" for key, value in one["best"]["point"].items())
        )[:5000]
        for one in subjects
        if one["best"]
    }


def _consumed(subjects: list[dict[str, Any]], time_ms: int) -> list[Point]:
    """What each subject used up and found, as metrics `<subject>/...`."""
    points: list[Point] = []
    for one in subjects:
        trials = {f"trials_{state}": count for state, count in one["trials"].items()}
        values = {"steps": one["steps"], "flops": one["flops"], "seconds": one["seconds"]}
        values |= {"dimensions": one["dimensions"], **trials}
        values |= {"objective": one["best"]["value"]} if one["best"] else {}
        points += [Point(clean(f"{one['label']}/{key}"), float(value), time_ms, 0) for key, value in values.items()]
    return points
