"""What a run, a trial, or the parent of such, a study or search, shows to a tracker: what it is
(`about`), its points (`points_after`), and how it ended (`ending`).

All is read from files, so any process can send it anywhere, while it grows or later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from subquad import runs
from subquad.addresses import mask
from subquad.disk import opened
from subquad.metric import metric_of, read_metrics
from subquad.records import Place, Record, metrics_files, read_new
from subquad.runs import read_json, read_result
from subquad.strict_json import lines_of
from subquad.tracking.folders import parent_of, read_yaml
from subquad.tracking.values import Point, Values, points_of, points_under

_REPORTS = ("report.md", "report.csv", "report.html", runs.DIAGNOSIS)
_STATUS = {"finished": "FINISHED", "pruned": "FINISHED", "failed": "FAILED"}
"""A trial that was ended early did what it was meant to do; the tag `subquad.status` tells it
from others.
"""


@dataclass(frozen=True)
class About:
    """What a folder is.

    Attributes:
        label: its name.
        began: seconds since 1970.
        params, tags: plain values by name; a tag that is None is none.
        data: the data set's `label`, plugin `name` and `params`; empty for a study or search.
    """

    label: str
    began: float
    params: Values
    tags: Values
    data: Values = field(default_factory=dict)


@dataclass(frozen=True)
class Ending:
    """How a folder ended.

    Attributes:
        status: FINISHED, FAILED or KILLED.
        time: seconds since 1970.
        tags: last tags.
        points: final metrics.
        files: names of its files that are worth keeping with it.
    """

    status: str
    time: float
    tags: Values
    points: Sequence[Point] = ()
    files: Sequence[str] = ()


def about(folder: Path) -> About:
    """What a folder is, as it stands written when it begins."""
    if (folder / runs.SEARCH).exists():
        return _search(folder)
    if runs.is_study(folder):
        tags = {**_in_search(parent_of(folder), "study"), "subquad.kind": "study"}
        return About(folder.name, folder.stat().st_mtime, {}, tags)
    return _run(folder)


def points_after(folder: Path, place: Place) -> tuple[list[Point], Place]:
    """Values of the metrics of a run or trial after a place in its records, and how far they were
    read. Steps that a resume trained again are there twice; a study or search has none.
    """
    records, place = read_new(folder, place)
    return [point for record in records for point in points_of(record)], place


def ending(folder: Path, *, final: bool) -> Ending | None:
    """How a folder ended; None while it goes on.

    Args:
        final: nothing comes after this look, so what has no end was killed.
    """
    if (folder / runs.SEARCH).exists():
        return _end_of_search(folder, final)
    if runs.is_study(folder):
        return _end_of_study(folder, final)
    return _end_of_run(folder, final)


def _run(folder: Path) -> About:
    """A run, alone or in a study, or a trial."""
    experiment = read_yaml(folder / runs.EXPERIMENT)
    identity = read_json(folder / runs.IDENTITY) or {}
    params = runs.flatten(experiment)
    tags = {
        "subquad.protocol": params.get("protocol"),
        "subquad.dataset": params.get("dataset.name"),
        "subquad.mixer": params.get("mixer.name"),
        "subquad.experiment": identity.get("digest"),
    }
    above = parent_of(folder)
    label = folder.name if above else str(params.get("name") or folder.name)
    trial = read_json(folder / runs.TRIAL)
    if above and trial:
        number = folder.name
        candidate = folder.parent.name
        label = f"{candidate}-{number}"
        params |= {**(trial.get("settings") or {}), **(trial.get("point") or {})}
        tags |= {"subquad.candidate": candidate, "subquad.trial": int(number)}
        tags |= _in_search(above, "trial")
    elif above:
        tags |= _in_search(parent_of(above), "final")
    data = {"label": identity.get("dataset"), **(experiment.get("dataset") or {})}
    return About(label, _began(folder), params, tags, data)


def _began(folder: Path) -> float:
    """When the first record of a run was written, in seconds since 1970."""
    for path in metrics_files(folder)[:1]:
        with suppress(OSError, ValueError, StopIteration), opened(path) as stream:
            return Record.parse(next(lines_of(stream))).time
    return folder.stat().st_mtime


def _end_of_run(folder: Path, final: bool) -> Ending | None:
    """The end of a run or trial. Where the plugin or the data refused a trial's point, nothing ran
    and nothing failed.
    """
    result = read_result(folder)
    trial = read_json(folder / runs.TRIAL) or {}
    state = trial.get("state")
    if not (result or state or final):
        return None
    written = metrics_files(folder)
    names = [runs.TRIAL, runs.EXPERIMENT, runs.ENVIRONMENT, runs.RESULT, *_REPORTS]
    names += [path.name for path in written]
    files = _present(folder, *names, f"{Path(runs.DIAGNOSIS).stem}/*.png")
    tags = _environment(folder)
    if state:
        reason = str(trial.get("reason") or "")
        tags |= {"subquad.status": state, "subquad.reason": reason}
        return Ending("KILLED", _changed(folder, [runs.TRIAL]), tags, (), files)
    if result is None:
        tags["subquad.status"] = "killed"
        return Ending("KILLED", [folder, *written][-1].stat().st_mtime, tags, (), files)
    for key in ("status", "protocol", "protocol_label", "reason", "dataset"):
        if result.get(key):
            tags[f"subquad.{key}"] = mask(str(result[key]))
    time = _changed(folder, [runs.RESULT])
    last = _tested("test", result, time) + _costs(result, time)
    if trial:
        last += _objective(result, time)
    return Ending(_STATUS.get(str(result.get("status")), "KILLED"), time, tags, last, files)


def _present(folder: Path, *patterns: str) -> list[str]:
    """Names of those files below a folder that are there."""
    found: list[str] = []
    for pattern in patterns:
        found += [path.relative_to(folder).as_posix() for path in sorted(folder.glob(pattern))]
    return found


def _changed(folder: Path, files: Sequence[str]) -> float:
    """When the newest of some files was written, in seconds since 1970."""
    times = [(folder / name).stat().st_mtime for name in files if (folder / name).exists()]
    return max(times, default=folder.stat().st_mtime)


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
    return [Point("objective", float(value), int(time * 1000), best.get("step") or 0)]


def _tested(prefix: str, result: Mapping, time: float) -> list[Point]:
    """Test metrics of a result, as `<prefix>/<metric>`."""
    test = result.get("test") or {}
    return points_under(prefix, test.get("metrics") or {}, time, test.get("step"))


def _end_of_study(folder: Path, final: bool) -> Ending | None:
    """The parent of a study's runs ends with the last of them."""
    below = runs.runs_below(folder)
    ends = [end for run in below if (end := _end_of_run(run, final))]
    if not final and (not below or len(ends) < len(below)):
        return None
    statuses = [end.status for end in ends]
    status = "FINISHED"
    if "FAILED" in statuses:
        status = "FAILED"
    if "KILLED" in statuses or not ends:
        status = "KILLED"
    time = max((end.time for end in ends), default=folder.stat().st_mtime)
    scores: list[Point] = []
    for run in below:
        scores += _tested(f"{run.name}/test", read_result(run) or {}, time)
    files = _present(folder, runs.STUDY, *_REPORTS)
    return Ending(status, time, {"subquad.status": status.lower()}, scores, files)


def _search(folder: Path) -> About:
    """The parent of a search's trials."""
    written = read_yaml(folder / runs.SEARCH)
    experiment = written.get("experiment") or {}
    params = {"name": experiment.get("name"), **(written.get("settings") or {})}
    tags = _in_search(folder, "search")
    began = (folder / runs.SEARCH).stat().st_mtime
    return About(tags["subquad.search"], began, params, tags)


def _end_of_search(folder: Path, final: bool) -> Ending | None:
    """FINISHED where no further trial will start, FAILED where then a candidate has no winner."""
    summary = read_json(folder / runs.SUMMARY) or {}
    candidates = summary.get("candidates") or []
    is_over = bool(candidates)
    tags: Values = {}
    for candidate in candidates:
        trials = candidate["trials"]
        if trials.get("running") or trials.get("waiting") or not candidate["over"]:
            is_over = False
        if candidate["best"]:
            label = candidate["label"]
            tags[f"subquad.winner.{label}"] = _winner(candidate)
    if not final and not is_over:
        return None
    status = "KILLED"
    if is_over:
        status = "FINISHED" if len(tags) == len(candidates) else "FAILED"
    tags["subquad.status"] = status.lower()
    names = (runs.SUMMARY, f"{runs.FINAL}.yaml", f"{runs.WINNERS}/*.yaml", "plots/*.png")
    files = _present(folder, *names)
    time = _changed(folder, files)
    used: list[Point] = []
    for candidate in candidates:
        used += _consumed(candidate, time)
    return Ending(status, time, tags, used, [runs.SEARCH, *files])


def _winner(candidate: Values) -> str:
    best = candidate["best"]
    metric = metric_of(read_metrics(candidate.get("metrics")), candidate["metric"])
    score = metric.text(best["value"])
    number = best["number"]
    step = best["step"]
    settings = " ".join(f"{key}={value}" for key, value in best["point"].items())
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
