"""What a folder is to MLflow: a run, a trial, or the parent of such, a study or search. Everything
is read from files.

So any process can send it: the one beside its driver, or `subquad sync`. A parent is one MLflow
run, and each run or trial below its folder is a child of that, found while the folder grows. A
search's final study is below the search.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from subquad import runs
from subquad.addresses import mask
from subquad.disk import opened
from subquad.experiment.strict_yaml import parse_yaml, read_text
from subquad.manifest import manifest_of
from subquad.metric import metric_of, read_metrics
from subquad.records import Record, metrics_files
from subquad.runs import read_json, read_result
from subquad.strict_json import lines_of
from subquad.tracking.values import TAG_LIMIT, Point, Values, points_under

_REPORTS = ("report.md", "report.csv", "report.html", runs.DIAGNOSIS)
_STATUS = {"finished": "FINISHED", "pruned": "FINISHED", "failed": "FAILED"}
"""A trial that was ended early did what it was meant to do; the tag `subquad.status` tells it
from others.
"""


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
    tags: Values = field(default_factory=dict)
    points: Sequence[Point] = ()


@dataclass(frozen=True)
class Mirror:
    """What MLflow shall show of a folder.

    Attributes:
        label: the MLflow run's name.
        began: seconds since 1970.
        params, tags: as they are when it begins; a tag that is None is none.
        end: how it ended; None while it goes on.
        files: names of the files that MLflow gets at the end, of those that are there.
        data: the data set's `label`, plugin `name` and `params`; empty for a study or search.
    """

    label: str
    began: float
    params: Values
    tags: Values
    end: Ending | None
    files: tuple[str, ...]
    data: Values = field(default_factory=dict)


def mirror(folder: Path, *, final: bool) -> Mirror:
    """A folder as MLflow sees it.

    Args:
        final: nothing comes after this look, so what has no end was killed.
    """
    kinds = {runs.SEARCH: _search, runs.STUDY: _study, runs.TRIAL: _trial}
    for name, mirror_of in kinds.items():
        if (folder / name).exists():
            return mirror_of(folder, final)
    return _run(folder, final)


def begun(folder: Path) -> bool:
    """Whether there is anything to send yet. A study writes the settings of all its runs first."""
    files = (runs.SEARCH, runs.STUDY, runs.ATTEMPTS, runs.METRICS, runs.RESULT)
    if any((folder / name).exists() for name in files):
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
    if folder.name == runs.FINAL and (folder.parent / runs.SEARCH).exists():
        return folder.parent
    return None


def parts_of(folder: Path) -> list[Path]:
    """What is sent together: a run, a study, or a search and its final study; of a part of one, the
    whole.

    Raises:
        RunError: the folder is none of these.
    """
    if not any((folder / name).exists() for name in (runs.SEARCH, runs.TRIAL)):
        runs.runs_below(folder)
    whole = folder if runs.is_study(folder) else parent_of(folder) or folder
    final = whole / runs.FINAL
    has_final = (whole / runs.SEARCH).exists() and runs.is_study(final)
    return [whole, final] if has_final else [whole]


def read_yaml(path: Path) -> Values:
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
    experiment = read_yaml(folder / runs.EXPERIMENT)
    identity = read_json(folder / runs.IDENTITY) or {}
    settings = runs.flatten(experiment)
    alone = settings.get("name") if parent_of(folder) is None else None
    return Mirror(
        label=str(alone or folder.name),
        began=_began(folder),
        params=settings,
        tags={
            "subquad.protocol": settings.get("protocol"),
            "subquad.dataset": settings.get("dataset.name"),
            "subquad.mixer": settings.get("mixer.name"),
            "subquad.experiment": identity.get("digest"),
            **_in_search(parent_of(folder), "final"),
        },
        end=_end_of_run(folder, final),
        files=(
            runs.EXPERIMENT,
            runs.ENVIRONMENT,
            runs.RESULT,
            *(path.name for path in metrics_files(folder)),
            *_REPORTS,
            *_pictures(folder, Path(runs.DIAGNOSIS).stem),
        ),
        data={"label": identity.get("dataset"), **(experiment.get("dataset") or {})},
    )


def _began(folder: Path) -> float:
    """When the first record of a run was written, in seconds since 1970."""
    for path in metrics_files(folder)[:1]:
        with suppress(OSError, ValueError, StopIteration), opened(path) as lines:
            return Record.parse(next(lines_of(lines))).time
    return folder.stat().st_mtime


def _end_of_run(folder: Path, final: bool) -> Ending | None:
    result = read_result(folder)
    tags = _environment(folder)
    if result is None:
        changed = [folder, *metrics_files(folder)][-1]
        tags["subquad.status"] = "killed"
        return Ending("KILLED", changed.stat().st_mtime, "killed", tags) if final else None
    time = (folder / runs.RESULT).stat().st_mtime
    digest = _digest(_sums(folder, (runs.RESULT, *_REPORTS)))
    for key in ("status", "protocol", "protocol_label", "reason", "dataset"):
        if result.get(key):
            tags[f"subquad.{key}"] = mask(str(result[key]))[:TAG_LIMIT]
    points = _tested("test", result, time)
    points += points_under("cost", _cost(result), time, result.get("steps"))
    status = _STATUS.get(str(result.get("status")), "KILLED")
    return Ending(status, time, digest, tags, points)


def _trial(folder: Path, final: bool) -> Mirror:
    """A trial of a search. Where the plugin or the data refused its point, nothing ran and
    nothing failed.
    """
    run = _run(folder, final)
    trial = read_json(folder / runs.TRIAL) or {}
    result = read_result(folder)
    candidate, number, end = folder.parent.name, folder.name, run.end
    if state := trial.get("state"):
        reason = str(trial.get("reason") or "")[:TAG_LIMIT]
        time = (folder / runs.TRIAL).stat().st_mtime
        tags = {"subquad.status": state, "subquad.reason": reason}
        end = Ending("KILLED", time, state, tags)
    elif end and result:
        end = replace(end, points=(*end.points, *_objective(result, end.time)))
    tags = {"subquad.candidate": candidate, "subquad.trial": int(number)}
    return replace(
        run,
        label=f"{candidate}-{number}",
        params={**run.params, **(trial.get("settings") or {}), **(trial.get("point") or {})},
        tags={**run.tags, **tags, **_tags_of(folder.parents[2], "trial")},
        end=end,
        files=(runs.TRIAL, *run.files),
    )


def _pictures(folder: Path, below: str) -> list[str]:
    return [f"{below}/{path.name}" for path in sorted(folder.glob(f"{below}/*.png"))]


def _cost(result: Values) -> Values:
    """What a run or trial is and used up."""
    names = ("parameters", "flops_per_step", "steps", "seconds")
    used: Values = {name: result.get(name) for name in names}
    if used["steps"] and used["flops_per_step"]:
        used["flops"] = used["steps"] * used["flops_per_step"]
    return used


def _objective(result: Values, time: float) -> list[Point]:
    """What decides between finished trials: the best validation metric."""
    best = result.get("best") or {}
    value = (best.get("metrics") or {}).get(result.get("metric"))
    if result.get("status") != "finished" or value is None:
        return []
    return [Point("objective", float(value), int(time * 1000), best.get("step") or 0)]


def _study(folder: Path, final: bool) -> Mirror:
    """The parent of a study's runs. It ends with the last of them."""
    below = runs.runs_below(folder)
    ends = list(filter(None, (_end_of_run(run, final) for run in below)))
    began = folder.stat().st_mtime
    end = None
    if final or (below and len(ends) == len(below)):
        statuses = {run_end.status for run_end in ends} or {"KILLED"}
        status = next((name for name in ("KILLED", "FAILED") if name in statuses), "FINISHED")
        time = max((run_end.time for run_end in ends), default=began)
        digests = [run_end.digest for run_end in ends]
        digest = _digest(digests + _sums(folder, _REPORTS))
        points: list[Point] = []
        for run in below:
            points += _tested(f"{run.name}/test", read_result(run) or {}, time)
        end = Ending(status, time, digest, {"subquad.status": status.lower()}, points)
    tags = {**_in_search(folder, "study"), "subquad.kind": "study"}
    return Mirror(folder.name, began, {}, tags, end, (runs.STUDY, *_REPORTS))


def _tested(prefix: str, result: Values, time: float) -> list[Point]:
    """Test metrics of a result, as `<prefix>/<metric>`."""
    test = result.get("test") or {}
    return points_under(prefix, test.get("metrics") or {}, time, test.get("step"))


def _sums(folder: Path, names: Iterable[str]) -> list[str]:
    """What tells the files that a folder has now from those it had."""
    files = manifest_of({name: folder / name for name in names})
    return [f"{name} {file['sha256']}" for name, file in files.items()]


def _search(folder: Path, final: bool) -> Mirror:
    """The parent of a search's trials: FINISHED where no further one will start, FAILED where
    then a candidate has no winner. What is drawn or written after that is sent anew.
    """
    written = read_yaml(folder / runs.SEARCH)
    candidates = (read_json(folder / runs.SUMMARY) or {}).get("candidates") or []
    is_over = bool(candidates)
    tags: Values = {}
    for candidate in candidates:
        left = candidate["trials"].get("running") or candidate["trials"].get("waiting")
        is_over = bool(is_over and candidate["over"] and not left)
        if candidate["best"]:
            tags[f"subquad.winner.{candidate['label']}"] = _winner(candidate)
    status = "KILLED"
    if is_over:
        status = "FINISHED" if len(tags) == len(candidates) else "FAILED"
    tags["subquad.status"] = status.lower()
    winners = [f"{runs.WINNERS}/{path.name}" for path in sorted(folder.glob("best/*.yaml"))]
    files = (runs.SUMMARY, f"{runs.FINAL}.yaml", *winners, *_pictures(folder, "plots"))
    changed = [(folder / name).stat().st_mtime for name in files if (folder / name).is_file()]
    time = max(changed, default=folder.stat().st_mtime)
    points: list[Point] = []
    for candidate in candidates:
        points += _consumed(candidate, time)
    end = Ending(status, time, _digest([status, *_sums(folder, files)]), tags, points)
    name = (written.get("experiment") or {}).get("name")
    return Mirror(
        label=_name(folder),
        began=(folder / runs.SEARCH).stat().st_mtime,
        params={"name": name, **(written.get("settings") or {})},
        tags=_tags_of(folder, "search"),
        end=end if final or is_over else None,
        files=(runs.SEARCH, *files),
    )


def _winner(candidate: Values) -> str:
    best = candidate["best"]
    point = " ".join(f"{key}={value}" for key, value in best["point"].items())
    metric = metric_of(read_metrics(candidate.get("metrics")), candidate["metric"])
    score = metric.text(best["value"])
    return f"trial {best['number']}: {score} at step {best['step']}; {point}"


def _consumed(candidate: Values, time: float) -> list[Point]:
    """What a candidate used up and found, as metrics `<candidate>/...`."""
    values = {key: candidate[key] for key in ("steps", "flops", "seconds", "dimensions")}
    for state, count in candidate["trials"].items():
        values[f"trials_{state}"] = count
    values["objective"] = (candidate["best"] or {}).get("value")
    return points_under(candidate["label"], values, time, 0)


def _name(search: Path) -> str:
    return f"{search.parent.name}/{search.name}"  # what `subquad resume` is given, below runs/


def _tags_of(search: Path, kind: str) -> dict[str, str]:
    """What names the search that something is a part of."""
    return {"subquad.kind": kind, "subquad.search": _name(search)}


def _in_search(study: Path | None, kind: str) -> dict[str, str]:
    search = parent_of(study) if study else None
    return _tags_of(search, kind) if search else {}


def _environment(run: Path) -> Values:
    """Tags for the commit and the plugins' distributions, from a run's environment.json."""
    environment = read_json(run / runs.ENVIRONMENT) or {}
    tags: Values = {}
    if git := environment.get("git"):
        tags["mlflow.source.git.commit"] = str(git["commit"])
        tags["git.dirty"] = str(git.get("dirty"))
    for plugin in environment.get("plugins") or []:
        version = f"{plugin.get('distribution')} {plugin.get('version')}"
        tags[f"plugin.{plugin.get('kind')}"] = version
    return tags


def _digest(words: Iterable[str]) -> str:
    return hashlib.sha256(" ".join(words).encode()).hexdigest()[:16]
