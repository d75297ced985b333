"""`subquad runs`: what was trained below a folder, a line for each run, study and search."""

from __future__ import annotations

import fcntl
import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Any

import click

from subquad.disk import hold
from subquad.errors import RunError
from subquad.metric import Metric, metric_of
from subquad.reach import Reach
from subquad.runs import (
    CELLS,
    EXPERIMENT,
    FINAL,
    LOCK,
    SEARCH,
    STUDY,
    SUMMARY,
    TRIALS,
    read_json,
    read_result,
)
from subquad.terminal import LocalPath, duration, print_json, print_line, print_table

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
        score: the best row, by the mean over its seeds; "" where there is none, or several data
            sets.
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
@Reach(reads="FOLDER")
def runs_command(folder: Path, as_json: bool) -> None:
    """List the runs, studies and searches below FOLDER, the newest last.

    \b
    subquad runs
    subquad runs runs/quickstart
    """
    if not folder.is_dir():
        raise RunError(f"{folder}: no such folder")
    above = folder / "runs" if (folder / "runs").is_dir() else folder
    hold(above)
    lines = sorted(map(_line, _below(above)), key=lambda line: -line.age)
    if as_json:
        return print_json([asdict(line) for line in lines])
    if not lines:
        return print_line(f"{folder}: no runs below it")
    cells = [
        (
            line.folder,
            line.kind,
            line.state,
            duration(line.age),
            f"{line.done} of {line.of}",
            line.score,
            f"{line.bytes / 1e6:,.1f} MB",
        )
        for line in lines
    ]
    return print_table(("folder", "what", "state", "age", "done", "best score", "size"), cells)


def _below(folder: Path, depth: int = _DEPTH) -> Iterator[Path]:
    """The folders of runs, studies and searches, none that is inside another one."""
    if any((folder / name).is_file() for name in _KINDS):
        yield folder
        return
    with suppress(OSError):
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            hidden = entry.name.startswith(".") or entry.name == _COPIES
            if depth and not hidden and entry.is_dir(follow_symlinks=False):
                yield from _below(folder / entry.name, depth - 1)


def _line(folder: Path) -> Overview:
    found = _Folder(folder, next(name for name in _KINDS if (folder / name).is_file()))
    ended = Counter(result["status"] for result in found.results)
    return Overview(
        folder=str(folder),
        kind=_KINDS[found.mark],
        state=found.state(ended),
        age=max(0.0, time.time() - found.started),
        done=sum(ended.values()),
        of=len(found.parts),
        score=found.score,
        bytes=_bytes(folder),
    )


@dataclass(frozen=True)
class _Folder:
    """A folder of a run, study or search; see `Overview`."""

    folder: Path
    mark: str

    @cached_property
    def parts(self) -> list[Path]:
        """The runs of a study, the trials of a search, or the run itself."""
        where = {SEARCH: f"{TRIALS}/*/*", STUDY: f"{CELLS}/*"}
        if pattern := where.get(self.mark):
            return sorted(path for path in self.folder.glob(pattern) if path.is_dir())
        return [self.folder]

    @cached_property
    def results(self) -> list[dict[str, Any]]:
        """Of the runs that have one."""
        found = list[dict[str, Any]]()
        for part in self.parts:
            with suppress(RunError):  # a link
                if result := read_result(part):
                    found.append(result)
        return found

    @property
    def started(self) -> float:
        """When, in seconds of the epoch: its first file is never written again."""
        return (self.folder / self.mark).lstat().st_mtime

    def state(self, ended: Mapping[str, int]) -> str:
        if any(map(_is_locked, (self.folder, self.folder / FINAL))):
            return "running"
        is_over = read_json(self.folder / SUMMARY) is not None if self.mark == SEARCH else False
        if is_over or sum(ended.values()) == len(self.parts) > 0:
            failed = ended.get("failed", 0)
            return f"{failed} failed" if failed and self.mark != SEARCH else "finished"
        return "stopped"

    @property
    def score(self) -> str:
        if self.mark == SEARCH:
            return _best_trial(read_json(self.folder / SUMMARY) or {})
        tested = [result for result in self.results if result.get("test")]
        if len({result["dataset"] for result in tested}) != 1:
            return ""
        return _best_row(tested)


def _best_row(results: Sequence[Mapping[str, Any]]) -> str:
    first = results[0]
    name = next(iter(first.get("tested") or [first["metric"]]))
    metric = _metric(first.get("metrics", {}), name)
    rows = defaultdict[str, list[float]](list)
    for result in results:
        row = str((result.get("axes") or {}).get("mixer", result["mixer"]))
        rows[row].append(float(result["test"]["metrics"].get(name, "nan")))
    means = {row: mean(scores) for row, scores in rows.items()}
    best = (max if metric.mode == "max" else min)(means, key=lambda row: means[row])
    return metric.text(means[best]) + (f" ({best})" if len(rows) > 1 else "")


def _best_trial(summary: Mapping[str, Any]) -> str:
    """The best validation score of a search."""
    texts = {
        candidate["label"]: (
            _metric(candidate["metrics"], candidate["metric"]),
            candidate["best"]["value"],
        )
        for candidate in summary.get("candidates", ())
        if candidate.get("best")
    }
    if not texts:
        return ""
    sign = -1.0 if next(iter(texts.values()))[0].mode == "min" else 1.0
    best = max(texts, key=lambda label: sign * texts[label][1])
    metric, value = texts[best]
    return f"validation {metric.text(value)}" + (f" ({best})" if len(texts) > 1 else "")


def _metric(written: Mapping[str, Any], name: str) -> Metric:
    """As the task has it; an unknown one where the file does not say."""
    with suppress(KeyError, TypeError, ValueError):
        return metric_of({name: Metric(**written[name])}, name)
    return metric_of({}, name)


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
