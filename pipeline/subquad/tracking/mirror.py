"""What a run, a trial, or the parent of such, a study or search, shows to a tracker: what it is
(`about`), its points (`points_after`), and how it ended (`ending`).

All is read from files, so any process can send it anywhere, while it grows or later. There are no
secrets in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from subquad.addresses import without_secrets
from subquad.metric import metric_of, read_metrics
from subquad.record.files import flatten, read_json
from subquad.record.layout import is_study, runs_below
from subquad.record.metrics import Place, read_new
from subquad.record.names import (
    DIAGNOSIS,
    ENVIRONMENT,
    EXPERIMENT,
    FINAL,
    IDENTITY,
    RESULT,
    SEARCH,
    STUDY,
    SUMMARY,
    TRIAL,
    WINNERS,
)
from subquad.tracking.folders import parent_of, read_yaml
from subquad.tracking.values import Point, Values, points_of, points_under

_REPORTS = ("report.md", "report.csv", "report.html", DIAGNOSIS)
_STATUSES = ("FINISHED", "FAILED", "KILLED")
"""The last one among its runs is a study's."""
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
        params, tags: plain values by name.
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
    if (folder / SEARCH).exists():
        what = _search(folder)
    elif is_study(folder):
        tags = {**_in_search(parent_of(folder), "study"), "subquad.kind": "study"}
        what = About(folder.name, folder.stat().st_mtime, {}, tags)
    else:
        what = _run(folder)
    return About(*map(without_secrets, vars(what).values()))


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
    if (folder / SEARCH).exists():
        end = _end_of_search(folder, final)
    elif is_study(folder):
        end = _end_of_study(folder, final)
    else:
        end = _end_of_run(folder, final)
    return end and replace(end, tags=without_secrets(end.tags))


def _run(folder: Path) -> About:
    """A run, alone or in a study, or a trial."""
    experiment = read_yaml(folder / EXPERIMENT)
    identity = read_json(folder / IDENTITY) or {}
    params = flatten(experiment)
    named = {
        "subquad.protocol": params.get("protocol"),
        "subquad.dataset": params.get("dataset.name"),
        "subquad.mixer": params.get("mixer.name"),
        "subquad.experiment": identity.get("digest"),
    }
    tags = {name: value for name, value in named.items() if value is not None}
    above = parent_of(folder)
    label = folder.name if above else str(params.get("name") or folder.name)
    trial = read_json(folder / TRIAL)
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
    records, _ = read_new(folder, Place())
    began = records[0].time if records else folder.stat().st_mtime
    return About(label, began, params, tags, data)


def _end_of_run(folder: Path, final: bool) -> Ending | None:
    """The end of a run or trial. Where the plugin or the data refused a trial's point, nothing ran
    and nothing failed.
    """
    result = read_json(folder / RESULT)
    trial = read_json(folder / TRIAL) or {}
    state = trial.get("state")
    if not (result or state or final):
        return None
    names = (TRIAL, EXPERIMENT, ENVIRONMENT, RESULT, *_REPORTS)
    files = _present(folder, *names, "metrics*.jsonl", f"{Path(DIAGNOSIS).stem}/*.png")
    tags = _environment(folder)
    if state:
        tags |= {"subquad.status": state, "subquad.reason": trial.get("reason") or ""}
        return Ending("KILLED", _changed(folder, TRIAL), tags, (), files)
    if result is None:
        tags["subquad.status"] = "killed"
        return Ending("KILLED", _changed(folder, "metrics*.jsonl"), tags, (), files)
    for key in ("status", "protocol", "protocol_label", "reason", "dataset"):
        if result.get(key):
            tags[f"subquad.{key}"] = result[key]
    time = _changed(folder, RESULT)
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


def _changed(folder: Path, *patterns: str) -> float:
    """When the newest of some files was written, in seconds since 1970."""
    times = [(folder / name).stat().st_mtime for name in _present(folder, *patterns)]
    return max(times, default=folder.stat().st_mtime)


def _costs(result: Values, time: float) -> list[Point]:
    """What a run or trial is and used up, as metrics `cost/...`."""
    names = ("parameters", "flops_per_step", "steps", "seconds")
    used: Values = {name: result.get(name) for name in names}
    steps = used["steps"]
    if steps and used["flops_per_step"]:
        used["flops"] = steps * used["flops_per_step"]
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
    below = runs_below(folder)
    ends = [end for run in below if (end := _end_of_run(run, final))]
    if not final and (not below or len(ends) < len(below)):
        return None
    worst = max((_STATUSES.index(end.status) for end in ends), default=-1)
    status = _STATUSES[worst]
    time = max((end.time for end in ends), default=folder.stat().st_mtime)
    scores: list[Point] = []
    for run in below:
        scores += _tested(f"{run.name}/test", read_json(run / RESULT) or {}, time)
    files = _present(folder, STUDY, *_REPORTS)
    return Ending(status, time, {"subquad.status": status.lower()}, scores, files)


def _search(folder: Path) -> About:
    """The parent of a search's trials."""
    written = read_yaml(folder / SEARCH)
    experiment = written.get("experiment") or {}
    params = {"name": experiment.get("name"), **(written.get("settings") or {})}
    tags = _in_search(folder, "search")
    began = (folder / SEARCH).stat().st_mtime
    return About(tags["subquad.search"], began, params, tags)


def _end_of_search(folder: Path, final: bool) -> Ending | None:
    """FINISHED where no further trial will start, FAILED where then a candidate has no winner."""
    summary = read_json(folder / SUMMARY) or {}
    candidates = summary.get("candidates") or []
    is_over = bool(candidates)
    tags: Values = {}
    for candidate in candidates:
        trials = candidate["trials"]
        if trials.get("running") or not candidate["over"]:
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
    names = (SUMMARY, f"{FINAL}.yaml", f"{WINNERS}/*.yaml", "plots/*.png")
    files = _present(folder, *names)
    time = _changed(folder, *names)
    used: list[Point] = []
    for candidate in candidates:
        used += _consumed(candidate, time)
    return Ending(status, time, tags, used, [SEARCH, *files])


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
    values |= {f"trials_{state}": count for state, count in candidate["trials"].items()}
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
    environment = read_json(run / ENVIRONMENT) or {}
    tags: Values = {}
    if git := environment.get("git"):
        tags = {"mlflow.source.git.commit": git["commit"], "git.dirty": str(git.get("dirty"))}
    for plugin in environment.get("plugins") or []:
        kind = plugin.get("kind")
        distribution = plugin.get("distribution")
        version = plugin.get("version")
        tags[f"plugin.{kind}"] = f"{distribution} {version}"
    return tags
