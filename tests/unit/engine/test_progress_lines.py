"""What the progress display reads of a run's records."""

from __future__ import annotations

import time
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from subquad.output.progress import Display
from subquad.record.files import append_line
from subquad.record.metrics import Attempt, Place, Record, metrics_file
from subquad.record.names import ATTEMPTS


def write(run: Path, steps: range, attempt: int) -> None:
    with metrics_file(run, attempt).open("a") as stream:
        for step in steps:
            record = Record(
                kind="train", step=step, epoch=0, seconds=0, time=attempt, attempt=attempt
            )
            stream.write(record.line())


def test_each_record_of_each_attempt_is_shown_once(tmp_path: Path):
    display, run = Display(Console(quiet=True)), tmp_path
    display._places[run] = Place()
    found: list[Any] = []

    def look() -> list[tuple[int, int]]:
        return [(record.attempt, record.step) for record in display._new(run)]

    assert look() == []
    write(run, range(1, 4), attempt=1)
    found += look()
    write(run, range(4, 6), attempt=1)
    found += look()
    write(run, range(3, 5), attempt=2)
    found += look()
    assert found == [(1, 1), (1, 2), (1, 3), (1, 4), (1, 5), (2, 3), (2, 4)]
    assert look() == []


def test_what_was_there_before_is_not_shown_again(tmp_path: Path):
    write(tmp_path, range(1, 4), attempt=1)
    display = Display(Console(quiet=True))
    with display.showing([SimpleNamespace(folder=tmp_path, label="a", result=None)]):  # type: ignore[list-item]
        write(tmp_path, range(4, 5), attempt=1)
    assert display._new(tmp_path) == []
    assert display._places[tmp_path].read["metrics.jsonl"][1] == 4


def runs_below(folder: Path, *labels: str) -> list[Any]:
    goal = SimpleNamespace(shown=lambda name: SimpleNamespace(text=str))
    runs = list[Any]()
    for label in labels:
        place = folder / label
        place.mkdir()
        runs.append(SimpleNamespace(folder=place, label=label, result=None, launch="", goal=goal))
    return runs


def go(runs: Sequence[Any]) -> None:
    for number, run in enumerate(runs):
        attempt = Attempt(1, 0, "", 1, 1, pid=number, host=f"node{number}")
        append_line(run.folder / ATTEMPTS, vars(attempt))
        write(run.folder, range(1, 4), attempt=1)


def test_all_runs_have_a_bar_and_each_that_goes_has_one_with_its_place(tmp_path: Path):
    console = Console(width=200, force_terminal=True, file=StringIO())
    runs = runs_below(tmp_path, "a", "b", "c")
    with Display(console).showing(runs):
        go(runs[:2])
        time.sleep(1.5)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "2 running, done" in shown
    assert "0/3" in shown
    assert "a  node0:0" in shown
    assert "b  node1:1" in shown
    assert "c  " not in shown


def test_without_a_terminal_a_line_says_where_a_run_has_started(tmp_path: Path):
    console = Console(width=200, force_terminal=False, file=StringIO())
    runs = runs_below(tmp_path, "a", "b", "c")
    with Display(console).showing(runs):
        go(runs[:2])
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert shown.splitlines() == ["a: started  node0:0", "b: started  node1:1"]
