"""`subquad runs`: what was trained below a folder, a line for each run, study and search."""

from __future__ import annotations

import fcntl
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean

import click

from subquad.errors import RunError
from subquad.output.terminal import LocalPath, duration, print_json, print_line, print_table
from subquad.plugin.metric import Metric, metric_of
from subquad.record.files import find_file
from subquad.record.models import Result, SearchSummary
from subquad.record.names import CELLS, EXPERIMENT, FINAL, LOCK, SEARCH, STUDY, TRIALS
from subquad.security.disk import hold

_KINDS = {SEARCH: "search", STUDY: "study", EXPERIMENT: "run"}
"""The file that is in the folder of each, the first that is there."""
_DEPTH = 6
_COPIES = "mlartifacts"
"""Where MLflow keeps copies of runs' files."""


@dataclass(frozen=True)
class Overview:
    """What is said of one folder.

    Attributes:
        folder: its path.
        kind: run, study or search.
        state: finished, running, stopped, or failed where a run of it has failed and none goes on.
        age: seconds since it was started.
        done: runs, or trials of a search, that have ended.
        of: all of them; of a search those that were begun.
        score: the best row, by its mean; "" where there is none, or several metrics.
        bytes: of its files.
    """

    folder: str
    kind: str
    state: str
    age: float
    done: int
    of: int
    score: str
    bytes: int


@click.command("runs")
@click.argument("folder", type=LocalPath(path_type=Path, file_okay=False), default=".")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def runs_command(folder: Path, as_json: bool) -> None:
    """List the runs, studies and searches below FOLDER, the newest last.

    \b
    subquad runs
    subquad runs runs/quickstart
    """
    if not folder.is_dir():
        raise RunError(f"{folder}: no such folder")
    runs = folder / "runs"
    above = runs if runs.is_dir() else folder
    hold(above)
    lines = [_line(place) for place in _below(above)]
    lines.sort(key=lambda line: -line.age)
    if as_json:
        return print_json([asdict(line) for line in lines])
    if not lines:
        return print_line(f"{folder}: no runs below it")
    rows: list[tuple[str, ...]] = []
    for line in lines:
        age = duration(line.age)
        done = f"{line.done} of {line.of}"
        size = f"{line.bytes / 1e6:,.1f} MB"
        rows.append((line.folder, line.kind, line.state, age, done, line.score, size))
    return print_table(("folder", "what", "state", "age", "done", "best score", "size"), rows)


def _below(folder: Path, depth: int = _DEPTH) -> Iterator[Path]:
    """The folders of runs, studies and searches, none that is inside another one."""
    if _mark_of(folder):
        yield folder
        return
    with suppress(OSError):
        entries = {}
        if depth:
            entries = {entry.name: entry for entry in os.scandir(folder)}
        for name in sorted(entries):
            if name.startswith(".") or name == _COPIES:
                continue
            if entries[name].is_dir(follow_symlinks=False):
                yield from _below(folder / name, depth - 1)


def _mark_of(folder: Path) -> str:
    """The file that says what a folder is; "" where it has none."""
    return next(iter([name for name in _KINDS if (folder / name).is_file()]), "")


def _line(folder: Path) -> Overview:
    mark = _mark_of(folder)
    parts = _parts(folder, mark)
    results = _results(parts)
    # the first file of a folder is never written again
    started = (folder / mark).lstat().st_mtime
    summary = find_file(SearchSummary, folder) if mark == SEARCH else None
    failed = [result for result in results if result.status == "failed"]
    is_ended = bool(results) and len(results) == len(parts)
    if _is_locked(folder) or _is_locked(folder / FINAL):
        state = "running"
    elif summary is None and not is_ended:
        state = "stopped"
    elif failed and mark != SEARCH:
        state = f"{len(failed)} failed"
    else:
        state = "finished"
    score = _best_trial(summary) if mark == SEARCH else _best_row(results)
    return Overview(
        folder=str(folder),
        kind=_KINDS[mark],
        state=state,
        age=max(0.0, time.time() - started),
        done=len(results),
        of=len(parts),
        score=score,
        bytes=_bytes(folder),
    )


def _parts(folder: Path, mark: str) -> list[Path]:
    """The runs of a study, the trials of a search, or the run itself."""
    if mark == SEARCH:
        found = folder.glob(f"{TRIALS}/*/*")
    elif mark == STUDY:
        found = folder.glob(f"{CELLS}/*")
    else:
        return [folder]
    return sorted(path for path in found if path.is_dir())


def _results(runs: Sequence[Path]) -> list[Result]:
    """Of the runs that have one."""
    found = list[Result]()
    for run in runs:
        with suppress(RunError):  # a link
            result = find_file(Result, run)
            if result:
                found.append(result)
    return found


def _best_row(results: Sequence[Result]) -> str:
    """The best mean of a row, over seeds and then data sets; "" where nothing is tested, or several
    metrics are compared.
    """
    tested = [result for result in results if result.test]
    if len({result.compared for result in tested}) != 1:
        return ""
    name = tested[0].compared
    rows = defaultdict[str, dict[str, list[float]]](lambda: defaultdict(list))
    datasets = {result.dataset for result in tested}
    for result in tested:
        row = str(result.axes.get("mixer", result.mixer))
        assert result.test
        rows[row][result.dataset].append(result.test.score(name))
    means = {
        row: mean(map(mean, scores.values()))
        for row, scores in rows.items()
        if scores.keys() == datasets
    }
    if not means:
        return ""
    over = f", mean of {len(datasets)} data sets" if len(datasets) > 1 else ""
    return f"{_best_of(means, dict.fromkeys(means, tested[0].shown(name)))}{over}"


def _best_trial(summary: SearchSummary | None) -> str:
    """The best validation score of a search."""
    values: dict[str, float] = {}
    metrics: dict[str, Metric] = {}
    for candidate in summary.candidates if summary else ():
        if candidate.best:
            values[candidate.label] = candidate.best.value
            metrics[candidate.label] = metric_of(candidate.metrics, candidate.metric)
    if not values:
        return ""
    return f"validation {_best_of(values, metrics)}"


def _best_of(values: Mapping[str, float], metrics: Mapping[str, Metric]) -> str:
    """The best value, and whose it is where there are several; as the first one's metric judges."""
    first = next(iter(metrics.values()))
    choose = max if first.mode == "max" else min
    best = choose(values, key=lambda label: values[label])
    text = metrics[best].text(values[best])
    if len(values) == 1:
        return text
    return f"{text} ({best})"


def _is_locked(folder: Path) -> bool:
    """Whether a driver on this machine works on it."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    shared_at_once = fcntl.LOCK_SH | fcntl.LOCK_NB
    try:
        fcntl.flock(descriptor, shared_at_once)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _bytes(folder: Path) -> int:
    """Of all files below a folder; links are not followed."""
    total = 0
    with suppress(OSError):
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                total += _bytes(folder / entry.name)
            else:
                total += entry.stat(follow_symlinks=False).st_size
    return total
