"""What a folder is to a tracker, a run, a trial, or the parent of such, a study or search: what is
below it (a search's final study is below the search), what it is and came to (`about`), and the
points of its curves (`points_after`).

All is read from files, so any process can send it anywhere, while it grows or later. There are no
secrets in it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from subquad.addresses import without_secrets
from subquad.experiment.strict_yaml import read_yaml
from subquad.record import names
from subquad.record.files import find_file, flatten
from subquad.record.layout import is_study, runs_below, runs_root
from subquad.record.metrics import Place, read_new
from subquad.record.models import Environment, Git, Identity, Result, SearchSummary, Test, TrialFile

_NAME_LIMIT = 250
_REFUSED = re.compile(r"[^\w.\- /]|(?<![^/])[./]|/$")
"""Characters that MLflow takes in no name, and those that would make a path of another one."""
_FILES = (
    *(names.SEARCH, names.SUMMARY, names.STUDY, names.TRIAL, names.EXPERIMENT, names.ENVIRONMENT),
    *(names.RESULT, f"{names.FINAL}.yaml", "report.md", "report.csv", "report.html"),
    *(names.DIAGNOSIS, "diagnosis/*.png", "metrics*.jsonl"),
    *(f"{names.WINNERS}/*.yaml", "plots/*.png"),
)
"""What is worth keeping with a run, study or search."""
_STATES = ("finished", "failed", "killed", "running")
"""The last one among its runs is a study's."""
_STATUS = {
    "finished": "FINISHED",
    "pruned": "FINISHED",
    "failed": "FAILED",
    "running": "RUNNING",
}
"""MLflow's words; what is none of these was KILLED. A trial that was ended early did what it was
meant to do; the tag `subquad.status` tells it from others.
"""


class Point(NamedTuple):
    """One value of one metric; `time_ms` is milliseconds since 1970."""

    key: str
    value: float
    time_ms: int
    step: int


@dataclass(frozen=True)
class About:
    """What a folder is and came to.

    Attributes:
        state: running, finished, failed, stopped, killed; of a trial also pruned, infeasible.
        params, tags: plain values by name.
        points: final metrics, once it ended.
        label: its name.
        time: seconds since 1970 of its end, or of what is newest in it.
        files: names of its files that are worth keeping with it.
    """

    state: str
    params: Values
    tags: Values
    points: Sequence[Point] = ()
    label: str = ""
    time: float = 0.0
    files: Sequence[str] = ()

    @property
    def status(self) -> str:
        """RUNNING, FINISHED, FAILED or KILLED."""
        return _STATUS.get(self.state, "KILLED")


def about(folder: Path, *, final: bool = False) -> About:
    """What a folder shows.

    Args:
        final: nothing comes after this look, so what has no end was killed.
    """
    files = [path for pattern in _FILES for path in sorted(folder.glob(pattern))]
    time = max((path.stat().st_mtime for path in files), default=0.0)
    if (folder / names.SEARCH).exists():
        what = _search(folder, time, final)
    elif is_study(folder):
        what = _study(folder, final)
    else:
        what = _run(folder, time, final)
    whole = whole_of(folder)
    above = f"{whole.parent.name}/{whole.name}"
    tags = {**what.tags, "subquad.status": what.state}
    if (whole / names.SEARCH).exists():
        tags = {"subquad.kind": "final", **tags, "subquad.search": above}
    return replace(
        what,
        params=without_secrets(what.params),
        tags=without_secrets({name: tag for name, tag in tags.items() if tag not in (None, "")}),
        label=without_secrets(above if folder == whole else what.label or folder.name),
        time=time,
        files=[path.relative_to(folder).as_posix() for path in files],
    )


def points_after(folder: Path, place: Place) -> tuple[list[Point], Place]:
    """Values of the metrics of a run or trial after a place in its records, and how far they were
    read. Steps that a resume trained again are there twice; a study or search has none.
    """
    records, place = read_new(folder, place)
    points: list[Point] = []
    for record in records:
        above = record.split or record.kind
        points += points_of(
            {f"{above}/{name}": value for name, value in record.metrics.items()},
            record.time,
            record.step,
        )
    return points, place


def _run(folder: Path, time: float, final: bool) -> About:
    """A run, alone or in a study, or a trial. Where the plugin or the data refused a trial's point,
    nothing ran and nothing failed.
    """
    result = find_file(Result, folder)
    trial = find_file(TrialFile, folder)
    identity = find_file(Identity, folder)
    environment = find_file(Environment, folder) or Environment()
    git = environment.git or Git()
    params = flatten(read_mapping(folder / names.EXPERIMENT))
    tags: Values = {
        "subquad.experiment": identity and identity.digest,
        "subquad.plugins": list(environment.plugins) or None,
        "subquad.reason": (result and result.reason) or (trial and trial.reason),
        "mlflow.source.git.commit": git.commit,
        "git.dirty": git.dirty,
    }
    for name in ("dataset", "mixer", "protocol", "protocol_label"):
        tags[f"subquad.{name}"] = getattr(result or identity, name, None)
    points = _last_points(result, time) if result else []
    label = ""
    if trial:
        candidate = folder.parent.name
        label = f"{candidate}-{folder.name}"
        params |= {**trial.settings, **trial.point}
        tags |= {
            "subquad.kind": "trial",
            "subquad.candidate": candidate,
            "subquad.trial": folder.name.lstrip("0") or "0",
        }
        if result and result.status == "finished" and result.best:  # the best one decides
            points += points_of(
                {"objective": result.best.metrics.get(result.metric)}, time, result.best.step
            )
    return About(_state(result, final, trial), params, tags, points, label)


def _state(result: Result | None, final: bool, trial: TrialFile | None = None) -> str:
    known = result.status if result else trial and trial.state
    return known or ("killed" if final else "running")


def _last_points(result: Result, time: float) -> list[Point]:
    """Test metrics, and what the run is and used up."""
    test = result.test or Test()
    steps = result.steps or 0
    used = {
        f"cost/{name}": getattr(result, name)
        for name in ("parameters", "flops_per_step", "steps", "seconds")
    }
    used["cost/flops"] = steps * (result.flops_per_step or 0) or None
    return points_of(
        {f"test/{name}": value for name, value in test.metrics.items()}, time, test.step
    ) + points_of(used, time, steps)


def _study(folder: Path, final: bool) -> About:
    """The parent of a study's runs ends with the last of them."""
    states = (_state(find_file(Result, run), final) for run in reversed(runs_below(folder)))
    last = "finished"
    for state in states:  # what has not begun stands last
        last = max(last, state if state in _STATES else "killed", key=_STATES.index)
        if last == "running":
            break
    return About(last, {}, {"subquad.kind": "study"})


def _search(folder: Path, time: float, final: bool) -> About:
    """The parent of a search's trials: finished where no further trial will start, failed where
    then a candidate has no winner.
    """
    summary = find_file(SearchSummary, folder)
    candidates = summary.candidates if summary else ()
    tags: Values = {"subquad.kind": "search"}
    used: list[Point] = []
    for candidate in candidates:
        label = candidate.label
        best = candidate.best
        tags[f"subquad.winner.{label}"] = best and best.model_dump()
        values: Values = {f"trials_{name}": count for name, count in candidate.trials.items()}
        for name in ("steps", "flops", "seconds", "dimensions"):
            values[name] = getattr(candidate, name)
        values["objective"] = best and best.value
        used += points_of(
            {f"{label}/{name}": value for name, value in values.items()}, time, candidate.steps
        )
    state = "finished" if all(candidate.best for candidate in candidates) else "failed"
    over = [each.over and not each.trials.get("running") for each in candidates]
    if not candidates or not all(over):
        state = "killed" if final else "running"
    settings = read_mapping(folder / names.SEARCH).get("settings")
    return About(
        state,
        settings if isinstance(settings, dict) else {},
        tags,
        () if state == "running" else used,
    )


def clean(values: Mapping[str, Any]) -> Values:
    """The same values by names MLflow takes: other characters become `_`. Two names never become
    one.
    """
    found: Values = {}
    for name, value in values.items():
        short = _REFUSED.sub("_", name[:_NAME_LIMIT]) or "_"
        if len(name) > _NAME_LIMIT or short in found:
            mark = hashlib.sha256(name.encode()).hexdigest()[:8]
            short = f"{short[: _NAME_LIMIT - 9]}-{mark}"
        found[short] = value
    return found


def texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Parameters or tags as YAML would write each on one line, by clean names."""
    return {
        name: value
        if isinstance(value, str)
        else json.dumps(value, default=str, ensure_ascii=False)
        for name, value in clean(values).items()
    }


def points_of(values: Mapping[str, Any], time: float, step: int | None) -> list[Point]:
    """Values as metrics; None is no value, and an infinity is NaN, since MLflow would store it as
    1.8e308. The time is seconds since 1970.
    """
    points = []
    for name, value in clean(values).items():
        if value is not None:
            number = float(value)
            finite = number if math.isfinite(number) else math.nan
            points.append(Point(name, finite, int(time * 1000), step or 0))
    return points


def unsent(points: Iterable[Point], steps: dict[str, int]) -> list[Point]:
    """Values above the last step of their metric: after a resume some steps are trained again.

    Args:
        steps: the last step of each metric, which is kept up to date.
    """
    new = []
    for point in points:
        if point.step > steps.get(point.key, -1):
            steps[point.key] = point.step
            new.append(point)
    return new


Values = dict[str, Any]
"""Plain values by name, as JSON has them."""
SENDING = ".mlflow.lock"
"""Locked while a folder is sent; then it stays, in a folder that was sent."""
_BELOW = {
    f"{names.TRIALS}/*/*": names.SEARCH,
    names.FINAL: names.SEARCH,
    f"{names.CELLS}/*": names.STUDY,
}
"""Where the parts of a study or search are, and the file that says that it is one."""
_BEGUN = (names.STUDY, names.ATTEMPTS, names.METRICS, names.RESULT)


def parts_in(folder: Path, ended: Collection[Path] = ()) -> list[Path]:
    """What is directly below a study or search and has begun: these write the settings of all
    their runs first. A run or trial has no parts.

    Args:
        ended: what is known to have begun, and is not looked at.
    """
    return [
        part
        for pattern, mark in _BELOW.items()
        if (folder / mark).exists()
        for part in sorted(folder.glob(pattern))
        if part in ended
        or any((part / name).exists() for name in _BEGUN)
        or getattr(find_file(TrialFile, part), "state", None)
    ]


def parts_below(folder: Path) -> Iterator[Path]:
    """The folder, and all below it that began."""
    yield folder
    for part in parts_in(folder):
        yield from parts_below(part)


def whole_of(folder: Path) -> Path:
    """What is sent together: a run, a study, or a search; of a part of one, the whole."""
    for pattern, mark in _BELOW.items():
        if folder.match(pattern):
            above = folder.parents[pattern.count("/")]
            if (above / mark).exists():
                return whole_of(above)
    return folder


def key_of(whole: Path) -> str:
    """What finds the run of a folder again in any store, also where both were moved: it stands in
    the folder's name, and in the digest of a run.
    """
    identity = find_file(Identity, whole)
    text = f"{whole.name} {identity.digest if identity else None}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def root_above(folder: Path) -> Path:
    """The folder that holds `runs/`; the folder's own parent where there is no such."""
    above = runs_root(folder)
    return above.parent if above.name == "runs" else above


def read_mapping(path: Path) -> Values:
    """A mapping; an empty one where the file is missing or holds none.

    Raises:
        ConfigError: it is not strict YAML.
    """
    if not path.exists():
        return {}
    data = read_yaml(path)
    return data if isinstance(data, dict) else {}
