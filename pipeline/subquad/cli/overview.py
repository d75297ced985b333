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
class _Overview:
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
    shown = [
        {
            "folder": line.folder,
            "what": line.kind,
            "state": line.state,
            "age": duration(line.age),
            "done": f"{line.done} of {line.of}",
            "best score": line.score,
            "size": f"{line.bytes / 1e6:,.1f} MB",
        }
        for line in lines
    ]
    return print_table(list(shown[0]), [list(line.values()) for line in shown])


def _below(folder: Path, depth: int = _DEPTH) -> Iterator[Path]:
    """The folders of runs, studies and searches, none that is inside another one."""
    if _mark_of(folder):
        yield folder
        return
    with suppress(OSError):
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name) if depth else ():
            is_hidden = entry.name.startswith(".") or entry.name == _COPIES
            if not is_hidden and entry.is_dir(follow_symlinks=False):
                yield from _below(folder / entry.name, depth - 1)


def _mark_of(folder: Path) -> str:
    """The file that says what a folder is; "" where it has none."""
    return next((name for name in _KINDS if (folder / name).is_file()), "")


def _line(folder: Path) -> _Overview:
    mark = _mark_of(folder)
    parts = _parts(folder, mark)
    results = _results(parts)
    summary = find_file(SearchSummary, folder) if mark == SEARCH else None
    failed = sum(result.status == "failed" for result in results)
    if _is_locked(folder) or _is_locked(folder / FINAL):
        state = "running"
    elif summary is None and not (results and len(results) == len(parts)):
        state = "stopped"
    else:
        state = f"{failed} failed" if failed and mark != SEARCH else "finished"
    return _Overview(
        folder=str(folder),
        kind=_KINDS[mark],
        state=state,
        # the first file of a folder is never written again
        age=max(0.0, time.time() - (folder / mark).lstat().st_mtime),
        done=len(results),
        of=len(parts),
        score=_best_trial(summary) if mark == SEARCH else _best_row(results),
        bytes=_bytes(folder),
    )


def _parts(folder: Path, mark: str) -> list[Path]:
    """The runs of a study, the trials of a search, or the run itself."""
    if mark == EXPERIMENT:
        return [folder]
    found = folder.glob(f"{TRIALS}/*/*" if mark == SEARCH else f"{CELLS}/*")
    return sorted(filter(Path.is_dir, found))


def _results(runs: Sequence[Path]) -> list[Result]:
    """Of the runs that have one."""
    found = []
    for run in runs:
        with suppress(RunError):  # a link
            found.append(find_file(Result, run))
    return [result for result in found if result]


def _best_row(results: Sequence[Result]) -> str:
    """The best mean of a row, over seeds and then data sets; "" where nothing is tested, or several
    metrics are compared.
    """
    tested = [result for result in results if result.test]
    if len({result.compared for result in tested}) != 1:
        return ""
    name = tested[0].compared
    scores = defaultdict[str, dict[str, list[float]]](lambda: defaultdict(list))
    for result in tested:
        if result.test:
            row = str(result.axes.get("mixer", result.mixer))
            scores[row][result.dataset].append(result.test.score(name))
    datasets = {result.dataset for result in tested}
    means = {
        row: mean(map(mean, found.values()))
        for row, found in scores.items()
        if found.keys() == datasets
    }
    over = f", mean of {len(datasets)} data sets" if len(datasets) > 1 else ""
    best = _best_of(means, dict.fromkeys(means, tested[0].shown(name)))
    return f"{best}{over}" if best else ""


def _best_trial(summary: SearchSummary | None) -> str:
    """The best validation score of a search."""
    found = [candidate for candidate in summary.candidates if candidate.best] if summary else []
    values = {entry.label: entry.best.value for entry in found if entry.best}
    best = _best_of(
        values, {entry.label: metric_of(entry.metrics, entry.metric) for entry in found}
    )
    return f"validation {best}" if best else ""


def _best_of(values: Mapping[str, float], metrics: Mapping[str, Metric]) -> str:
    """The best value, and whose it is where there are several; as the first one's metric judges.
    "" without any.
    """
    if not values:
        return ""
    choose = max if next(iter(metrics.values())).mode == "max" else min
    best = choose(values, key=values.__getitem__)
    text = metrics[best].text(values[best])
    return text if len(values) == 1 else f"{text} ({best})"


def _is_locked(folder: Path) -> bool:
    """Whether a driver on this machine works on it."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
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
