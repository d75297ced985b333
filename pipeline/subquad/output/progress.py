"""Progress of runs, read from the runs' own files: on a terminal a bar for all and one for each
that goes, elsewhere a line at each start and end, and some between.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from subquad.errors import escaped
from subquad.experiment import Run
from subquad.record.files import read_json
from subquad.record.metrics import Place, Record, read_attempts, read_new
from subquad.record.models import Result
from subquad.record.names import PLAN

_INTERVAL_SECONDS = 0.5
_SHARE = 0.1  # of a CPU, that looking takes at most
_LINE_SECONDS = 30.0  # between plain lines about evaluations
_SPEED_SECONDS = 3600.0  # that remaining time is foretold from: runs may end seldom


class Display:
    """Shows where runs stand.

    Args:
        console: where to; None shows nothing.
    """

    def __init__(self, console: Console | None):
        self._console = console
        self._places: dict[Path, Place] = {}
        self._unbegun: dict[Path, list[str]] = {}
        self._line_due = 0.0

    @contextmanager
    def showing(self, runs: Sequence[Run]) -> Iterator[None]:
        """Follow the runs while the block runs."""
        if self._console is None or not runs:
            yield
            return
        self._places |= {run.folder: read_new(run.folder, Place())[1] for run in runs}
        self._unbegun = {
            run.folder: _listed(run.folder) for run in runs if not self._places[run.folder].read
        }
        over = threading.Event()
        thread = threading.Thread(
            target=self._follow, args=(runs, over), name="progress", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _follow(self, runs: Sequence[Run], over: threading.Event) -> None:
        assert self._console is not None
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        with Progress(
            *columns,
            console=self._console,
            disable=not self._console.is_terminal,
            transient=True,
            refresh_per_second=4,
            speed_estimate_period=_SPEED_SECONDS,
        ) as bar:
            every = bar.add_task("starting", total=None)
            going: dict[Path, TaskID] = {}
            ended: set[Path] = set()
            took = 0.0
            while not over.wait(max(_INTERVAL_SECONDS, took / _SHARE)):
                start = time.thread_time()
                self._look(runs, bar, going, ended)
                took = time.thread_time() - start
                if len(runs) == 1:
                    bar.update(every, visible=not going)
                elif going or ended:
                    name = f"{len(going)} running, done"
                    bar.update(every, description=name, total=len(runs), completed=len(ended))
            self._look(runs, bar, going, ended)

    def _look(
        self, runs: Sequence[Run], bar: Progress, going: dict[Path, TaskID], ended: set[Path]
    ) -> None:
        for run in runs:
            before = self._unbegun.get(run.folder)
            if run.folder in ended or (before and _listed(run.folder) == before):
                continue
            records = self._new(run.folder)
            self._lines(run, records, bar)
            if records:
                place = _place(run.folder) if len(runs) > 1 else ""
                if run.folder not in going:
                    going[run.folder] = bar.add_task("")
                    if not bar.console.is_terminal:
                        _print(bar.console, f"{run.label}: started{place}")
                shown = f"{run.label}{place}  {_values(run, records[-1])}"
                plan = read_json(run.folder / PLAN) or {}
                bar.update(
                    going[run.folder],
                    completed=records[-1].step,
                    total=plan.get("total_steps"),
                    description=escape(escaped(shown)),
                )
            result = run.result
            if result is not None and result.launch == run.launch:
                ended.add(run.folder)
                count = f"  {len(ended)} of {len(runs)}" if len(runs) > 1 else ""
                _print(bar.console, _result_line(run, result) + count)
                if run.folder in going:
                    bar.remove_task(going.pop(run.folder))

    def _new(self, folder: Path) -> list[Record]:
        """Records since the last look."""
        records, self._places[folder] = read_new(folder, self._places[folder])
        return records

    def _lines(self, run: Run, records: Sequence[Record], bar: Progress) -> None:
        for record in records:
            if record.kind == "event":
                _print(bar.console, f"{run.label}: {record.text}")
            elif (
                record.kind == "eval"
                and not bar.console.is_terminal
                and time.monotonic() >= self._line_due
            ):
                self._line_due = time.monotonic() + _LINE_SECONDS
                _print(
                    bar.console,
                    f"{run.label}  epoch {record.epoch:g}  {record.split} {_values(run, record)}",
                )


def _print(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def _place(folder: Path) -> str:
    """Machine and process of a run's newest attempt; "" where that is damaged."""
    return "".join(f"  {attempt.host}:{attempt.pid}" for attempt in read_attempts(folder)[-1:])


def _listed(folder: Path) -> list[str]:
    """What is in a folder; nothing where it is gone meanwhile."""
    return os.listdir(folder) if folder.is_dir() else []


def _values(run: Run, record: Record) -> str:
    """What was measured in a step of training or an evaluation."""
    found = record.metrics.items() if record.kind != "system" else ()
    return "  ".join(run.goal.shown(name).text(value) for name, value in found)


def _result_line(run: Run, result: Result) -> str:
    test = result.test
    if not test:
        return f"{run.label}: failed: {result.reason}"
    score = result.shown(result.compared).text(test.score(result.compared))
    return (
        f"{run.label}: test {score} on {test.samples} samples "
        f"({test.checkpoint} checkpoint, step {test.step}; {result.seconds:.1f} s)"
    )
