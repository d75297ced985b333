"""What MLflow shows of a folder: of a run, a trial, or the parent of such, a study or search.
Everything is read from files.

So any process can send it: the one beside its driver, or `subquad sync`.
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
from subquad.manifest import manifest_of
from subquad.metric import metric_of, read_metrics
from subquad.records import Record, metrics_files
from subquad.runs import read_json, read_result
from subquad.strict_json import lines_of
from subquad.tracking.folders import parent_of, read_yaml
from subquad.tracking.values import Point, Values, points_under

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
    for name, mirror_of in {runs.SEARCH: _search, runs.STUDY: _study, runs.TRIAL: _trial}.items():
        if (folder / name).exists():
            return mirror_of(folder, final)
    return _run(folder, final)


def _run(folder: Path, final: bool) -> Mirror:
    """A run, alone or in a study."""
    experiment = read_yaml(folder / runs.EXPERIMENT)
    identity = read_json(folder / runs.IDENTITY) or {}
    settings = runs.flatten(experiment)
    study = parent_of(folder)
    label = folder.name
    if study is None:
        label = str(settings.get("name") or label)
    records = [path.name for path in metrics_files(folder)]
    pictures = _names(folder, f"{Path(runs.DIAGNOSIS).stem}/*.png")
    return Mirror(
        label=label,
        began=_began(folder),
        params=settings,
        tags={
            "subquad.protocol": settings.get("protocol"),
            "subquad.dataset": settings.get("dataset.name"),
            "subquad.mixer": settings.get("mixer.name"),
            "subquad.experiment": identity.get("digest"),
            **_in_search(study and parent_of(study), "final"),
        },
        end=_end_of_run(folder, final),
        files=(
            runs.EXPERIMENT,
            runs.ENVIRONMENT,
            runs.RESULT,
            *records,
            *_REPORTS,
            *pictures,
        ),
        data={"label": identity.get("dataset"), **(experiment.get("dataset") or {})},
    )


def _began(folder: Path) -> float:
    """When the first record of a run was written, in seconds since 1970."""
    for path in metrics_files(folder)[:1]:
        with suppress(OSError, ValueError, StopIteration), opened(path) as stream:
            return Record.parse(next(lines_of(stream))).time
    return folder.stat().st_mtime


def _end_of_run(folder: Path, final: bool) -> Ending | None:
    result = read_result(folder)
    tags = _environment(folder)
    if result is None:
        if not final:
            return None
        tags["subquad.status"] = "killed"
        time = [folder, *metrics_files(folder)][-1].stat().st_mtime
        return Ending("KILLED", time, "killed", tags)
    for key in ("status", "protocol", "protocol_label", "reason", "dataset"):
        if result.get(key):
            tags[f"subquad.{key}"] = mask(str(result[key]))
    time = (folder / runs.RESULT).stat().st_mtime
    return Ending(
        status=_STATUS.get(str(result.get("status")), "KILLED"),
        time=time,
        digest=_digest(folder, (runs.RESULT, *_REPORTS)),
        tags=tags,
        points=_tested("test", result, time) + _costs(result, time),
    )


def _trial(folder: Path, final: bool) -> Mirror:
    """A trial of a search. Where the plugin or the data refused its point, nothing ran and
    nothing failed.
    """
    run = _run(folder, final)
    trial = read_json(folder / runs.TRIAL) or {}
    candidate = folder.parent.name
    number = folder.name
    end = run.end
    state = trial.get("state")
    if state:
        time = (folder / runs.TRIAL).stat().st_mtime
        tags = {"subquad.status": state, "subquad.reason": str(trial.get("reason") or "")}
        end = Ending("KILLED", time, state, tags)
    elif end:
        end = replace(end, points=[*end.points, *_objective(read_result(folder) or {}, end.time)])
    settings = trial.get("settings") or {}
    point = trial.get("point") or {}
    return replace(
        run,
        label=f"{candidate}-{number}",
        params={**run.params, **settings, **point},
        tags={
            **run.tags,
            "subquad.candidate": candidate,
            "subquad.trial": int(number),
            **_in_search(folder.parents[2], "trial"),
        },
        end=end,
        files=(runs.TRIAL, *run.files),
    )


def _names(folder: Path, pattern: str) -> list[str]:
    """Of files below a folder, as MLflow gets them."""
    paths = sorted(folder.glob(pattern))
    return [path.relative_to(folder).as_posix() for path in paths]


def _costs(result: Values, time: float) -> list[Point]:
    """What a run or trial is and used up, as metrics `cost/...`."""
    names = ("parameters", "flops_per_step", "steps", "seconds")
    used: Values = {name: result.get(name) for name in names}
    steps = used["steps"]
    flops = used["flops_per_step"]
    if steps and flops:
        used["flops"] = steps * flops
    return points_under("cost", used, time, steps)


def _objective(result: Values, time: float) -> list[Point]:
    """What decides between finished trials: the best validation metric."""
    best = result.get("best") or {}
    metrics = best.get("metrics") or {}
    value = metrics.get(result.get("metric"))
    if result.get("status") != "finished" or value is None:
        return []
    step = best.get("step") or 0
    return [Point("objective", float(value), int(time * 1000), step)]


def _study(folder: Path, final: bool) -> Mirror:
    """The parent of a study's runs. It ends with the last of them."""
    began = folder.stat().st_mtime
    below = runs.runs_below(folder)
    ends: list[Ending] = []
    for run in below:
        run_end = _end_of_run(run, final)
        if run_end:
            ends.append(run_end)
    is_over = bool(below) and len(ends) == len(below)
    end = None
    if final or is_over:
        end = _end_of_study(folder, below, ends)
    tags = {**_in_search(parent_of(folder), "study"), "subquad.kind": "study"}
    return Mirror(folder.name, began, {}, tags, end, (runs.STUDY, *_REPORTS))


def _end_of_study(folder: Path, below: Sequence[Path], ends: Sequence[Ending]) -> Ending:
    statuses = [end.status for end in ends]
    status = "FINISHED"
    if "FAILED" in statuses:
        status = "FAILED"
    if "KILLED" in statuses or not ends:
        status = "KILLED"
    time = max((end.time for end in ends), default=folder.stat().st_mtime)
    digests = [end.digest for end in ends]
    points: list[Point] = []
    for run in below:
        points += _tested(f"{run.name}/test", read_result(run) or {}, time)
    return Ending(
        status=status,
        time=time,
        digest=_digest(folder, _REPORTS, *digests),
        tags={"subquad.status": status.lower()},
        points=points,
    )


def _tested(prefix: str, result: Values, time: float) -> list[Point]:
    """Test metrics of a result, as `<prefix>/<metric>`."""
    test = result.get("test") or {}
    return points_under(prefix, test.get("metrics") or {}, time, test.get("step"))


def _search(folder: Path, final: bool) -> Mirror:
    """The parent of a search's trials: FINISHED where no further one will start, FAILED where
    then a candidate has no winner. What is drawn or written after that is sent anew.
    """
    written = read_yaml(folder / runs.SEARCH)
    experiment = written.get("experiment") or {}
    settings = written.get("settings") or {}
    summary = read_json(folder / runs.SUMMARY) or {}
    candidates = summary.get("candidates") or []
    is_over = bool(candidates)
    tags: Values = {}
    for candidate in candidates:
        trials = candidate["trials"]
        left = trials.get("running") or trials.get("waiting")
        if left or not candidate["over"]:
            is_over = False
        if candidate["best"]:
            label = candidate["label"]
            tags[f"subquad.winner.{label}"] = _winner(candidate)
    status = "KILLED"
    if is_over:
        status = "FINISHED" if len(tags) == len(candidates) else "FAILED"
    tags["subquad.status"] = status.lower()
    winners = _names(folder, f"{runs.WINNERS}/*.yaml")
    files = (runs.SUMMARY, f"{runs.FINAL}.yaml", *winners, *_names(folder, "plots/*.png"))
    end = None
    if final or is_over:
        time = _changed(folder, files)
        points: list[Point] = []
        for candidate in candidates:
            points += _consumed(candidate, time)
        end = Ending(status, time, _digest(folder, files, status), tags, points)
    above = _in_search(folder, "search")
    return Mirror(
        label=above["subquad.search"],
        began=(folder / runs.SEARCH).stat().st_mtime,
        params={"name": experiment.get("name"), **settings},
        tags=above,
        end=end,
        files=(runs.SEARCH, *files),
    )


def _changed(folder: Path, files: Sequence[str]) -> float:
    """When the newest of some files was written, in seconds since 1970."""
    times = []
    for name in files:
        path = folder / name
        if path.is_file():
            times.append(path.stat().st_mtime)
    return max(times, default=folder.stat().st_mtime)


def _winner(candidate: Values) -> str:
    best = candidate["best"]
    metric = metric_of(read_metrics(candidate.get("metrics")), candidate["metric"])
    score = metric.text(best["value"])
    number = best["number"]
    step = best["step"]
    point = best["point"]
    settings = " ".join(f"{key}={value}" for key, value in point.items())
    return f"trial {number}: {score} at step {step}; {settings}"


def _consumed(candidate: Values, time: float) -> list[Point]:
    """What a candidate used up and found, as metrics `<candidate>/...`."""
    values = {key: candidate[key] for key in ("steps", "flops", "seconds", "dimensions")}
    for state, count in candidate["trials"].items():
        values[f"trials_{state}"] = count
    if candidate["best"]:
        values["objective"] = candidate["best"]["value"]
    return points_under(candidate["label"], values, time, 0)


def _in_search(search: Path | None, kind: str) -> dict[str, str]:
    """What names the search that something is a part of; nothing where it is of none."""
    if search is None:
        return {}
    name = f"{search.parent.name}/{search.name}"  # what `subquad resume` is given, below runs/
    return {"subquad.kind": kind, "subquad.search": name}


def _environment(run: Path) -> Values:
    """Tags for the commit and the plugins' distributions, from a run's environment.json."""
    environment = read_json(run / runs.ENVIRONMENT) or {}
    tags: Values = {}
    git = environment.get("git")
    if git:
        tags["mlflow.source.git.commit"] = str(git["commit"])
        tags["git.dirty"] = str(git.get("dirty"))
    for plugin in environment.get("plugins") or []:
        kind = plugin.get("kind")
        distribution = plugin.get("distribution")
        version = plugin.get("version")
        tags[f"plugin.{kind}"] = f"{distribution} {version}"
    return tags


def _digest(folder: Path, names: Iterable[str], *words: str) -> str:
    """What tells the files that a folder has now, and some words, from those before."""
    files = manifest_of({name: folder / name for name in names})
    told = [*words]
    for name, file in files.items():
        told.append(f"{name} {file['sha256']}")
    return hashlib.sha256(" ".join(told).encode()).hexdigest()[:16]
