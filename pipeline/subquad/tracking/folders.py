"""What a folder is to MLflow: a run, a trial, or the parent of such, a study or search. Everything is read from files.

So any process can send it: the one beside its driver, or `subquad sync`. A parent is one MLflow run, and each run or
trial below its folder is a child of that, found while the folder grows. A search's final study is below the search.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from subquad import runs
from subquad.runs import read_json, read_result
from subquad.tracking.address import mask
from subquad.tracking.values import TAG_LIMIT, Point, points_under

_STATUS = {"finished": "FINISHED", "pruned": "FINISHED", "failed": "FAILED"}
"""A trial that was ended early did what it was meant to do; the tag `subquad.status` tells it from others."""


@dataclass(frozen=True)
class Ending:
    """How a run ended: what MLflow is told at the end.

    Attributes:
        status: MLflow's FINISHED, FAILED or KILLED.
        time: seconds since 1970.
        digest: tells this end from another one of the same run.
        tags: last tags.
        points: final metrics.
    """

    status: str
    time: float
    digest: str
    tags: Mapping[str, str] = field(default_factory=dict)
    points: Sequence[Point] = ()


class TrackedFolder(ABC):
    """A folder that is one MLflow run. Made by `tracked`."""

    is_parent = False

    def __init__(self, folder: Path):
        self.folder = folder

    @property
    def label(self) -> str:
        """The MLflow run's name."""
        return self.folder.name

    @abstractmethod
    def describe(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Parameters and tags, as they are when it begins; a tag that is None is none."""

    @abstractmethod
    def ending(self, *, final: bool, closed: str = "") -> Ending | None:
        """How it ended; None while it goes on.

        Args:
            final: nothing comes after this look, so what has no end was killed.
            closed: digest of the end that MLflow was told.
        """

    @abstractmethod
    def texts(self) -> Sequence[str]:
        """Files that MLflow gets at the end, of those that are there."""

    @abstractmethod
    def plots(self, out: Path) -> Sequence[Path]:
        """Pictures that MLflow gets at the end; new ones are made in `out`."""

    def started(self) -> bool:
        """Whether there is anything to send yet."""
        return self.folder.exists()

    def began(self) -> float:
        """Seconds since 1970."""
        return self.folder.stat().st_mtime

    def is_over(self) -> bool:
        """Whether nothing can come any more."""
        return False

    def children(self) -> list[Path]:
        """Folders that are MLflow runs below this one."""
        return []


def tracked(folder: Path) -> TrackedFolder:
    """A folder as MLflow sees it."""
    kinds = {runs.SEARCH: _Search, runs.STUDY: _Study, runs.TRIAL: _Trial}
    return next((kind for name, kind in kinds.items() if (folder / name).exists()), _Run)(folder)


def parent_of(folder: Path) -> Path | None:
    """The study or search that a run, trial or final study belongs to."""
    above = folder.parents
    if (folder / runs.TRIAL).exists() and len(above) > 2:
        return above[2]
    if folder.parent.name == runs.CELLS and runs.is_study(above[1]):
        return above[1]
    return folder.parent if folder.name == runs.FINAL and (folder.parent / runs.SEARCH).exists() else None


def parts_of(folder: Path) -> list[Path]:
    """What is sent together: a run, a study, or a search and its final study; of a part of one, the whole.

    Raises:
        RunError: the folder is none of these.
    """
    if not any((folder / name).exists() for name in (runs.SEARCH, runs.TRIAL)):
        runs.runs_below(folder)
    whole = folder if runs.is_study(folder) else parent_of(folder) or folder
    final = whole / runs.FINAL
    return [whole, final] if (whole / runs.SEARCH).exists() and runs.is_study(final) else [whole]


def read_yaml(path: Path) -> dict[str, Any]:
    """A mapping; an empty one where the file is missing or holds none."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError):
        return {}
    return data if isinstance(data, dict) else {}


class _Run(TrackedFolder):
    """A run, alone or in a study."""

    @property
    def label(self) -> str:
        alone = None if parent_of(self.folder) else read_yaml(self.folder / runs.EXPERIMENT).get("name")
        return str(alone or self.folder.name)

    def describe(self) -> tuple[dict[str, Any], dict[str, Any]]:
        settings = runs.flatten(read_yaml(self.folder / runs.EXPERIMENT))
        return settings, {
            "subquad.protocol": settings.get("protocol"),
            "subquad.dataset": settings.get("dataset.name"),
            "subquad.mixer": settings.get("mixer.name"),
            "subquad.experiment": (read_json(self.folder / runs.IDENTITY) or {}).get("digest"),
            **_in_search(parent_of(self.folder), "final"),
        }

    def ending(self, *, final: bool, closed: str = "") -> Ending | None:
        result, environment = read_result(self.folder), _environment(self.folder)
        if result is None:
            killed = Ending("KILLED", self._last_change(), "killed", {**environment, "subquad.status": "killed"})
            return killed if final else None
        path = self.folder / runs.RESULT
        time, digest = path.stat().st_mtime, hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        keys = ("status", "protocol", "protocol_label", "reason", "dataset")
        said = {f"subquad.{key}": mask(str(result[key]))[:TAG_LIMIT] for key in keys if result.get(key)}
        test, time_ms = result.get("test") or {}, int(time * 1000)
        points = points_under("final", test.get("metrics") or {}, time_ms, int(test.get("step") or 0))
        return Ending(_STATUS.get(str(result.get("status")), "KILLED"), time, digest, {**environment, **said}, points)

    def texts(self) -> Sequence[str]:
        return (runs.EXPERIMENT, runs.ENVIRONMENT, runs.RESULT)

    def plots(self, out: Path) -> Sequence[Path]:
        from subquad.tracking.plots import draw_run

        return draw_run(self.folder, out)

    def started(self) -> bool:
        # A study writes the settings of all its runs first.
        alone = runs.is_run(self.folder) and parent_of(self.folder) is None
        return alone or any((self.folder / name).exists() for name in (runs.ATTEMPTS, runs.METRICS, runs.RESULT))

    def began(self) -> float:
        first = next(runs.read_records(self.folder), None)
        return first.time if first else super().began()

    def is_over(self) -> bool:
        return (read_result(self.folder) or {}).get("status") in ("finished", "pruned")

    def _last_change(self) -> float:
        path = self.folder / runs.METRICS
        return (path if path.exists() else self.folder).stat().st_mtime


class _Trial(_Run):
    """A trial of a search. Where the plugin or the data refused its point, nothing ran and nothing failed."""

    @property
    def label(self) -> str:
        return f"{self.folder.parent.name}-{self.folder.name}"

    @property
    def _said(self) -> Mapping[str, Any]:
        return read_json(self.folder / runs.TRIAL) or {}

    def describe(self) -> tuple[dict[str, Any], dict[str, Any]]:
        said, (settings, tags) = self._said, super().describe()
        tags |= {"subquad.candidate": self.folder.parent.name, "subquad.trial": int(self.folder.name)}
        tags |= _tags_of(self.folder.parents[2], "trial")
        return {**settings, **(said.get("settings") or {}), **(said.get("point") or {})}, tags

    def ending(self, *, final: bool, closed: str = "") -> Ending | None:
        if state := self._said.get("state"):
            tags = {"subquad.status": state, "subquad.reason": str(self._said.get("reason") or "")[:TAG_LIMIT]}
            return Ending("KILLED", (self.folder / runs.TRIAL).stat().st_mtime, state, tags)
        end, result = super().ending(final=final), read_result(self.folder)
        return replace(end, points=(*end.points, *_scored(result, int(end.time * 1000)))) if end and result else end

    def texts(self) -> Sequence[str]:
        return (runs.TRIAL, *super().texts())

    def plots(self, out: Path) -> Sequence[Path]:
        return ()  # drawing curves of every trial would take time that training needs

    def started(self) -> bool:
        return super().started() or "state" in self._said

    def is_over(self) -> bool:
        return super().is_over() or "state" in self._said


class _Study(TrackedFolder):
    """The parent of a study's runs."""

    is_parent = True

    def describe(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return {}, {**_in_search(self.folder, "study"), "subquad.kind": "study"}

    def ending(self, *, final: bool, closed: str = "") -> Ending | None:
        ends = [_Run(run).ending(final=final) for run in self.children()]
        known = [end for end in ends if end]
        if len(known) < len(ends) or not (ends or final):
            return None
        statuses = {end.status for end in known} or {"KILLED"}
        status = next((name for name in ("KILLED", "FAILED") if name in statuses), "FINISHED")
        time = max((end.time for end in known), default=self.began())
        return Ending(status, time, _digest(end.digest for end in known), {"subquad.status": status.lower()})

    def texts(self) -> Sequence[str]:
        return (runs.STUDY,)

    def plots(self, out: Path) -> Sequence[Path]:
        from subquad.tracking.plots import draw_study

        return draw_study(self.children(), self.folder.name, out)

    def children(self) -> list[Path]:
        return runs.runs_below(self.folder) if runs.is_study(self.folder) else []


class _Search(TrackedFolder):
    """The parent of a search's trials. It is closed with the driver, when winners and plots are there."""

    is_parent = True

    @property
    def label(self) -> str:
        return f"{self.folder.parent.name}/{self.folder.name}"  # what `subquad tune --resume` is given, below runs/

    def describe(self) -> tuple[dict[str, Any], dict[str, Any]]:
        said = read_yaml(self.folder / runs.SEARCH)
        params = {"name": (said.get("experiment") or {}).get("name"), **(said.get("settings") or {})}
        return params, _tags_of(self.folder, "search")

    def ending(self, *, final: bool, closed: str = "") -> Ending | None:
        end = self._standing()
        told = closed == end.digest and end.status != "KILLED"  # one that was killed goes on again
        return end if final or told else None

    def texts(self) -> Sequence[str]:
        best = sorted(path.relative_to(self.folder).as_posix() for path in self.folder.glob("best/*.yaml"))
        return (runs.SEARCH, runs.SUMMARY, f"{runs.FINAL}.yaml", *best)

    def plots(self, out: Path) -> Sequence[Path]:
        return sorted(self.folder.glob("plots/*.png"))

    def began(self) -> float:
        return (self.folder / runs.SEARCH).stat().st_mtime

    def children(self) -> list[Path]:
        return sorted(path.parent for path in self.folder.glob(f"{runs.TRIALS}/*/*/{runs.TRIAL}"))

    def _standing(self) -> Ending:
        """FINISHED where no further trial will start, FAILED where then a candidate has no winner, KILLED otherwise."""
        summary = read_json(self.folder / runs.SUMMARY) or {}
        candidates = summary.get("candidates") or []
        over = bool(candidates) and all(one["over"] and not _unfinished(one) for one in candidates)
        status = "KILLED" if not over else "FINISHED" if all(one["best"] for one in candidates) else "FAILED"
        files = [path for name in self.texts()[1:] if (path := self.folder / name).is_file()] + [*self.plots(Path())]
        seen = (f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in files)
        time = max((path.stat().st_mtime for path in files), default=self.folder.stat().st_mtime)
        tags = {f"subquad.winner.{one['label']}": _winner(one) for one in candidates if one["best"]}
        points = [point for one in candidates for point in _consumed(one, int(time * 1000))]
        return Ending(status, time, _digest([status, *seen]), {"subquad.status": status.lower(), **tags}, points)


def _digest(words: Iterable[str]) -> str:
    return hashlib.sha256(" ".join(words).encode()).hexdigest()[:16]


def _tags_of(search: Path, kind: str) -> dict[str, str]:
    """What names the search that something is a part of."""
    return {"subquad.kind": kind, "subquad.search": _Search(search).label}


def _in_search(study: Path | None, kind: str) -> dict[str, str]:
    search = parent_of(study) if study else None
    return _tags_of(search, kind) if search else {}


def _environment(run: Path) -> dict[str, str]:
    """Tags for the commit and the plugins' distributions, from a run's environment.json."""
    environment = read_json(run / runs.ENVIRONMENT) or {}
    git = environment.get("git") or {}
    tags = {"mlflow.source.git.commit": str(git["commit"]), "git.dirty": str(git.get("dirty"))} if git else {}
    for plugin in environment.get("plugins") or []:
        tags[f"plugin.{plugin.get('kind')}"] = f"{plugin.get('distribution')} {plugin.get('version')}"
    return tags


def _scored(result: Mapping[str, Any], time_ms: int) -> list[Point]:
    """What a trial consumed, and of a finished one what it is judged by: its best validation metric."""
    steps, cost = int(result.get("steps") or 0), result.get("flops_per_step")
    values = {"steps": steps, "seconds": result.get("seconds"), "flops": steps * cost if cost else None}
    points = points_under("consumed", values, time_ms, steps)
    best = result.get("best") or {}
    value = (best.get("metrics") or {}).get(result.get("metric"))
    if result.get("status") == "finished" and value is not None:
        points.append(Point("objective", float(value), time_ms, int(best.get("step") or 0)))
    return points


def _unfinished(candidate: Mapping[str, Any]) -> int:
    return candidate["trials"].get("running", 0) + candidate["trials"].get("waiting", 0)


def _winner(candidate: Mapping[str, Any]) -> str:
    best = candidate["best"]
    point = " ".join(f"{key}={value}" for key, value in best["point"].items())
    return f"trial {best['number']}: {candidate['metric']} {best['value']} at step {best['step']}; {point}"


def _consumed(candidate: Mapping[str, Any], time_ms: int) -> list[Point]:
    """What a candidate used up and found, as metrics `<candidate>/...`."""
    values = {key: candidate[key] for key in ("steps", "flops", "seconds", "dimensions")}
    values |= {f"trials_{state}": count for state, count in candidate["trials"].items()}
    return points_under(candidate["label"], {**values, "objective": (candidate["best"] or {}).get("value")}, time_ms, 0)
