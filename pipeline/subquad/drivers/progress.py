"""Progress of a session, read from the runs' own files: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from subquad.engine.ticket import Ticket
from subquad.runs import METRICS, PLAN, Record, read_json, read_result

INTERVAL_SECONDS = 0.5
LINE_SECONDS = 5.0  # between plain lines about evaluations


class Tail:
    """New records of a metrics.jsonl that grows, and that is replaced by a shorter one when its run goes on.

    Args:
        path: the file, which need not be there yet.
    """

    def __init__(self, path: Path):
        self._path = path
        self._file, self._offset, self._attempt = 0, 0, 0

    def new(self) -> list[Record]:
        """Records since the last call; of a replaced file those of a later attempt."""
        try:
            with self._path.open("rb") as stream:
                return self._read(stream)
        except FileNotFoundError:
            return []

    def _read(self, stream: BinaryIO) -> list[Record]:
        seen, file = self._attempt, os.fstat(stream.fileno()).st_ino
        if file != self._file:
            self._file, self._offset = file, 0
        start = self._offset
        stream.seek(start)
        lines = [line for line in stream if line.endswith(b"\n")]
        self._offset += sum(map(len, lines))
        records = [Record.parse(line.decode()) for line in lines]
        self._attempt = max([seen, *(one.attempt for one in records)])
        return records if start else [one for one in records if one.attempt > seen]


class Display:
    """Shows where the runs of a session stand.

    Args:
        console: where to; None shows nothing.
    """

    def __init__(self, console: Console | None):
        self._console = console
        self._tails: dict[Path, Tail] = {}
        self._line_due = 0.0

    @contextmanager
    def showing(self, tickets: Sequence[Ticket]) -> Iterator[None]:
        """Follow the runs while the block runs."""
        if self._console is None or not tickets:
            yield
            return
        for ticket in tickets:
            self._tails[ticket.folder] = Tail(ticket.folder / METRICS)
            self._tails[ticket.folder].new()
        over = threading.Event()
        thread = threading.Thread(target=self._follow, args=(tickets, over), name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _follow(self, tickets: Sequence[Ticket], over: threading.Event) -> None:
        assert self._console is not None
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        options = {"disable": not self._console.is_terminal, "transient": True, "refresh_per_second": 4}
        with Progress(*columns, console=self._console, **options) as bar:
            shown = bar.add_task("starting", total=None)
            ended: set[Path] = set()
            while not over.wait(INTERVAL_SECONDS):
                self._look(tickets, bar, shown, ended)
            self._look(tickets, bar, shown, ended)

    def _look(self, tickets: Sequence[Ticket], bar: Progress, shown: TaskID, ended: set[Path]) -> None:
        for ticket in tickets:
            if ticket.folder in ended:
                continue
            records = self._tails[ticket.folder].new()
            self._lines(ticket, records, bar)
            if records:
                plan = read_json(ticket.folder / PLAN) or {}
                description = f"{escape(ticket.label)}  {_values(records[-1])}"
                bar.update(shown, completed=records[-1].step, total=plan.get("total_steps"), description=description)
            if (result := read_result(ticket.folder)) is not None:
                ended.add(ticket.folder)
                _print(bar.console, _result_line(ticket.label, result))

    def _lines(self, ticket: Ticket, records: Sequence[Record], bar: Progress) -> None:
        for record in records:
            if record.kind == "event":
                _print(bar.console, f"{ticket.label}: {record.text}")
            elif record.kind == "eval" and not bar.console.is_terminal and time.monotonic() >= self._line_due:
                self._line_due = time.monotonic() + LINE_SECONDS
                _print(bar.console, f"{ticket.label}  epoch {record.epoch:g}  {record.split} {_values(record)}")


def _print(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def _values(record: Record) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in record.metrics.items() if record.kind != "system")


def _result_line(label: str, result: dict) -> str:
    if result["status"] == "failed":
        return f"{label}: failed: {result['reason']}"
    test = result["test"]
    metric = result["metric"]
    return (
        f"{label}: test {metric} {float(test['metrics'][metric]):.4f} on {test['samples']} samples "
        f"({test['checkpoint']} checkpoint, step {test['step']}; {result['seconds']:.1f} s)"
    )
