"""What a folder is to MLflow: a run, a trial, or the parent of such, a study or search. Everything is read from files.

So any process can send it: the one beside its driver, or `subquad sync`. A parent is one MLflow run, and each run or
trial below its folder is a child of that, found while the folder grows. A search's final study is below the search.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from subquad import runs
from subquad.addresses import mask
from subquad.experiment.strict_yaml import parse_yaml, read_text
from subquad.manifest import manifest_of
from subquad.metric import metric_of, read_metrics
from subquad.runs import read_json, read_result
from subquad.tracking.plots import draw_run, draw_study
from subquad.tracking.values import TAG_LIMIT, Point, points_under

_REPORTS = ("report.md", "report.csv", "report.html", runs.DIAGNOSIS)
_STATUS = {"finished": "FINISHED", "pruned": "FINISHED", "failed": "FAILED"}
"""A trial that was ended early did what it was meant to do; the tag `subquad.status` tells it from others."""


@dataclass(frozen=True)
class Ending:
    """How a folder ended: what MLflow is told at the end.

    Attributes:
        status: MLflow's FINISHED, FAILED or KILLED.
        time: seconds since 1970.
        digest: tells this end from another one of the same folder.
        tags: last tags.
        points: final metrics.
    """

    status: str
    time: float
    digest: str
    tags: Mapping[str, str] = field(default_factory=dict)
    points: Sequence[Point] = ()


@dataclass(frozen=True)
class Mirror:
    """What MLflow shall show of a folder.

    Attributes:
        label: the MLflow run's name.
        began: seconds since 1970.
        params, tags: as they are when it begins; a tag that is None is none.
        end: how it ended; None while it goes on.
        texts: files that MLflow gets at the end, of those that are there.
        plots: pictures that MLflow gets at the end; new ones are made in the folder it is given.
        data: the data set's `label`, plugin `name` and `params`; empty for a study or search.
    """

    label: str
    began: float
    params: Mapping[str, Any]
    tags: Mapping[str, Any]
    end: Ending | None
    texts: Sequence[str]
    plots: Callable[[Path], Sequence[Path]]
    data: Mapping[str, Any] = field(default_factory=dict)


def mirror(folder: Path, *, final: bool) -> Mirror:
    """A folder as MLflow sees it.

    Args:
        final: nothing comes after this look, so what has no end was killed.
    """
    kinds = {runs.SEARCH: _search, runs.STUDY: _study, runs.TRIAL: _trial}
    return next((kind for name, kind in kinds.items() if (folder / name).exists()), _run)(folder, final)


def begun(folder: Path) -> bool:
    """Whether there is anything to send yet. A study writes the settings of all its runs first."""
    if any((folder / name).exists() for name in (runs.SEARCH, runs.STUDY, runs.ATTEMPTS, runs.METRICS, runs.RESULT)):
        return True
    if (folder / runs.TRIAL).exists():
        return "state" in (read_json(folder / runs.TRIAL) or {})
    return runs.is_run(folder) and parent_of(folder) is None


def folders_below(folder: Path) -> list[Path] | None:
    """Folders that are MLflow runs below a study or search; a run has none."""
    if (folder / runs.SEARCH).exists():
        return sorted(path.parent for path in folder.glob(f"{runs.TRIALS}/*/*/{runs.TRIAL}"))
    return runs.runs_below(folder) if runs.is_study(folder) else None


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
    """A mapping; an empty one where the file is missing or holds none.

    Raises:
        ConfigError: it is not strict YAML.
    """
    if not path.exists():
        return {}
    data = parse_yaml(read_text(path, str(path)), str(path)).data
    return data if isinstance(data, dict) else {}


def _run(folder: Path, final: bool) -> Mirror:
    """A run, alone or in a study."""
    experiment, identity = read_yaml(folder / runs.EXPERIMENT), read_json(folder / runs.IDENTITY) or {}
    settings, first = runs.flatten(experiment), next(runs.read_records(folder), None)
    alone = settings.get("name") if parent_of(folder) is None else None
    return Mirror(
        label=str(alone or folder.name),
        began=first.time if first else folder.stat().st_mtime,
        params=settings,
        tags={
            "subquad.protocol": settings.get("protocol"),
            "subquad.dataset": settings.get("dataset.name"),
            "subquad.mixer": settings.get("mixer.name"),
            "subquad.experiment": identity.get("digest"),
            **_in_search(parent_of(folder), "final"),
        },
        end=_end_of_run(folder, final),
        texts=(runs.EXPERIMENT, runs.ENVIRONMENT, runs.RESULT, *_REPORTS),
        plots=lambda out: [*draw_run(folder, out), *sorted(folder.glob(f"{Path(runs.DIAGNOSIS).stem}/*.png"))],
        data={"label": identity.get("dataset"), **(experiment.get("dataset") or {})},
    )


def _end_of_run(folder: Path, final: bool) -> Ending | None:
    result, environment = read_result(folder), _environment(folder)
    if result is None:
        changed = folder / runs.METRICS if (folder / runs.METRICS).exists() else folder
        tags = {**environment, "subquad.status": "killed"}
        return Ending("KILLED", changed.stat().st_mtime, "killed", tags) if final else None
    path = folder / runs.RESULT
    time, digest = path.stat().st_mtime, _digest(_sums(folder, (runs.RESULT, *_REPORTS)))
    keys = ("status", "protocol", "protocol_label", "reason", "dataset")
    said = {f"subquad.{key}": mask(str(result[key]))[:TAG_LIMIT] for key in keys if result.get(key)}
    test, time_ms = result.get("test") or {}, int(time * 1000)
    points = points_under("test", test.get("metrics") or {}, time_ms, int(test.get("step") or 0))
    points += points_under("cost", _cost(result), time_ms, int(result.get("steps") or 0))
    return Ending(_STATUS.get(str(result.get("status")), "KILLED"), time, digest, {**environment, **said}, points)


def _trial(folder: Path, final: bool) -> Mirror:
    """A trial of a search. Where the plugin or the data refused its point, nothing ran and nothing failed."""
    run, said, result = _run(folder, final), read_json(folder / runs.TRIAL) or {}, read_result(folder)
    candidate, number, end = folder.parent.name, folder.name, run.end
    if state := said.get("state"):
        tags = {"subquad.status": state, "subquad.reason": str(said.get("reason") or "")[:TAG_LIMIT]}
        end = Ending("KILLED", (folder / runs.TRIAL).stat().st_mtime, state, tags)
    elif end and result:
        end = replace(end, points=(*end.points, *_judged(result, int(end.time * 1000))))
    tags = {"subquad.candidate": candidate, "subquad.trial": int(number), **_tags_of(folder.parents[2], "trial")}
    return replace(
        run,
        label=f"{candidate}-{number}",
        params={**run.params, **(said.get("settings") or {}), **(said.get("point") or {})},
        tags={**run.tags, **tags},
        end=end,
        texts=(runs.TRIAL, *run.texts),
        plots=lambda _out: (),  # drawing curves of every trial would take time that training needs
    )


def _cost(result: Mapping[str, Any]) -> dict[str, Any]:
    """What a run or trial is and used up."""
    used: dict[str, Any] = {name: result.get(name) for name in ("parameters", "flops_per_step", "steps", "seconds")}
    counted = used["steps"] and used["flops_per_step"]
    return {**used, "flops": used["steps"] * used["flops_per_step"] if counted else None}


def _judged(result: Mapping[str, Any], time_ms: int) -> list[Point]:
    """What a finished trial is judged by: its best validation metric."""
    best = result.get("best") or {}
    value = (best.get("metrics") or {}).get(result.get("metric"))
    if result.get("status") != "finished" or value is None:
        return []
    return [Point("objective", float(value), time_ms, int(best.get("step") or 0))]


def _study(folder: Path, final: bool) -> Mirror:
    """The parent of a study's runs. It ends with the last of them."""
    below = runs.runs_below(folder)
    ends = [end for run in below if (end := _end_of_run(run, final))]
    began, end = folder.stat().st_mtime, None
    if final or (below and len(ends) == len(below)):
        statuses = {one.status for one in ends} or {"KILLED"}
        status = next((name for name in ("KILLED", "FAILED") if name in statuses), "FINISHED")
        time = max((one.time for one in ends), default=began)
        digest = _digest([*(one.digest for one in ends), *_sums(folder, _REPORTS)])
        points = [point for run in below for point in _tested(run, int(time * 1000))]
        end = Ending(status, time, digest, {"subquad.status": status.lower()}, points)
    tags = {**_in_search(folder, "study"), "subquad.kind": "study"}
    texts = (runs.STUDY, *_REPORTS)
    return Mirror(folder.name, began, {}, tags, end, texts, partial(draw_study, below, folder.name))


def _tested(run: Path, time_ms: int) -> list[Point]:
    """A run's test metrics for its study, as `<run>/test/<metric>`."""
    test = (read_result(run) or {}).get("test") or {}
    return points_under(f"{run.name}/test", test.get("metrics") or {}, time_ms, int(test.get("step") or 0))


def _sums(folder: Path, names: Iterable[str]) -> list[str]:
    """What tells the files that a folder has now from those it had."""
    told = manifest_of({name: folder / name for name in names})
    return [f"{name} {one['sha256']}" for name, one in told.items()]


def _search(folder: Path, final: bool) -> Mirror:
    """The parent of a search's trials: FINISHED where no further one will start, FAILED where then a candidate has no
    winner. What is drawn or written after that is sent anew."""
    said, summary = read_yaml(folder / runs.SEARCH), read_json(folder / runs.SUMMARY) or {}
    candidates = summary.get("candidates") or []
    over = bool(candidates) and all(one["over"] and not _unfinished(one) for one in candidates)
    status = "KILLED" if not over else "FINISHED" if all(one["best"] for one in candidates) else "FAILED"
    plots = sorted(folder.glob("plots/*.png"))
    written = [folder / runs.SUMMARY, folder / f"{runs.FINAL}.yaml", *sorted(folder.glob("best/*.yaml"))]
    files = [path.stat() for path in (*written, *plots) if path.is_file()]
    names = [path.relative_to(folder).as_posix() for path in (*written, *plots)]
    time = max((file.st_mtime for file in files), default=folder.stat().st_mtime)
    end = Ending(
        status,
        time,
        _digest([status, *_sums(folder, names)]),
        {
            "subquad.status": status.lower(),
            **{f"subquad.winner.{one['label']}": _winner(one) for one in candidates if one["best"]},
        },
        [point for one in candidates for point in _consumed(one, int(time * 1000))],
    )
    return Mirror(
        label=_name(folder),
        began=(folder / runs.SEARCH).stat().st_mtime,
        params={"name": (said.get("experiment") or {}).get("name"), **(said.get("settings") or {})},
        tags=_tags_of(folder, "search"),
        end=end if final or over else None,
        texts=(runs.SEARCH, *(path.relative_to(folder).as_posix() for path in written)),
        plots=lambda _out: plots,
    )


def _unfinished(candidate: Mapping[str, Any]) -> int:
    return candidate["trials"].get("running", 0) + candidate["trials"].get("waiting", 0)


def _winner(candidate: Mapping[str, Any]) -> str:
    best = candidate["best"]
    point = " ".join(f"{key}={value}" for key, value in best["point"].items())
    metric = metric_of(read_metrics(candidate.get("metrics")), candidate["metric"])
    return f"trial {best['number']}: {metric.text(best['value'])} at step {best['step']}; {point}"


def _consumed(candidate: Mapping[str, Any], time_ms: int) -> list[Point]:
    """What a candidate used up and found, as metrics `<candidate>/...`."""
    values = {key: candidate[key] for key in ("steps", "flops", "seconds", "dimensions")}
    values |= {f"trials_{state}": count for state, count in candidate["trials"].items()}
    return points_under(candidate["label"], {**values, "objective": (candidate["best"] or {}).get("value")}, time_ms, 0)


def _name(search: Path) -> str:
    return f"{search.parent.name}/{search.name}"  # what `subquad tune --resume` is given, below runs/


def _tags_of(search: Path, kind: str) -> dict[str, str]:
    """What names the search that something is a part of."""
    return {"subquad.kind": kind, "subquad.search": _name(search)}


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


def _digest(words: Iterable[str]) -> str:
    return hashlib.sha256(" ".join(words).encode()).hexdigest()[:16]
