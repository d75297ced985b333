"""Progress of runs, read from the runs' own files: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from subquad.errors import plain
from subquad.experiment import Run
from subquad.runs import PLAN, Place, Record, read_json, read_new

_INTERVAL_SECONDS = 0.5
_LINE_SECONDS = 5.0  # between plain lines about evaluations


class Display:
    """Shows where runs stand.

    Args:
        console: where to; None shows nothing.
    """

    def __init__(self, console: Console | None):
        self._console = console
        self._places: dict[Path, Place] = {}
        self._line_due = 0.0

    @contextmanager
    def showing(self, runs: Sequence[Run]) -> Iterator[None]:
        """Follow the runs while the block runs."""
        if self._console is None or not runs:
            yield
            return
        self._places |= {run.folder: read_new(run.folder, Place())[1] for run in runs}
        over = threading.Event()
        thread = threading.Thread(target=self._follow, args=(runs, over), name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _follow(self, runs: Sequence[Run], over: threading.Event) -> None:
        assert self._console is not None
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        options = {"disable": not self._console.is_terminal, "transient": True, "refresh_per_second": 4}
        with Progress(*columns, console=self._console, **options) as bar:
            shown = bar.add_task("starting", total=None)
            ended: set[Path] = set()
            while not over.wait(_INTERVAL_SECONDS):
                self._look(runs, bar, shown, ended)
            self._look(runs, bar, shown, ended)

    def _look(self, runs: Sequence[Run], bar: Progress, shown: TaskID, ended: set[Path]) -> None:
        for run in runs:
            if run.folder in ended:
                continue
            records = self._new(run.folder)
            self._lines(run, records, bar)
            if records:
                plan = read_json(run.folder / PLAN) or {}
                description = escape(plain(f"{run.label}  {_values(run, records[-1])}"))
                bar.update(shown, completed=records[-1].step, total=plan.get("total_steps"), description=description)
            if (result := run.result) is not None:
                ended.add(run.folder)
                _print(bar.console, _result_line(run, result))

    def _new(self, folder: Path) -> list[Record]:
        """Records since the last look; of a file that was cut those of a later attempt."""
        before = self._places[folder]
        records, after = read_new(folder, before)
        self._places[folder] = after
        return [one for one in records if one.attempt > before.attempt] if after.cut else records

    def _lines(self, run: Run, records: Sequence[Record], bar: Progress) -> None:
        for record in records:
            if record.kind == "event":
                _print(bar.console, f"{run.label}: {record.text}")
            elif record.kind == "eval" and not bar.console.is_terminal and time.monotonic() >= self._line_due:
                self._line_due = time.monotonic() + _LINE_SECONDS
                _print(bar.console, f"{run.label}  epoch {record.epoch:g}  {record.split} {_values(run, record)}")


def _print(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def _values(run: Run, record: Record) -> str:
    """What was measured in a step of training or an evaluation."""
    found = record.metrics.items() if record.kind != "system" else ()
    return "  ".join(run.goal.shown(name).text(value) for name, value in found)


def _result_line(run: Run, result: dict) -> str:
    if result["status"] == "failed":
        return f"{run.label}: failed: {result['reason']}"
    test = result["test"]
    compared = run.goal.tested[0]
    score = run.goal.shown(compared).text(float(test["metrics"][compared]))
    return (
        f"{run.label}: test {score} on {test['samples']} samples "
        f"({test['checkpoint']} checkpoint, step {test['step']}; {result['seconds']:.1f} s)"
    )
