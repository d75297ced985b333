"""What the progress display reads of a run's records."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from subquad.drivers.progress import Display
from subquad.runs import METRICS, Place, Record


def write(run: Path, steps: range, attempt: int, keep: int = 0) -> None:
    path = run / METRICS
    before = path.read_text().splitlines(keepends=True)[:keep] if path.exists() else []
    new = [Record(kind="train", step=step, epoch=0, seconds=0, time=attempt, attempt=attempt) for step in steps]
    path.write_text("".join([*before, *(one.line() for one in new)]))


def test_of_a_file_that_was_cut_only_the_later_attempt_is_new(tmp_path: Path):
    display, run = Display(Console(quiet=True)), tmp_path
    display._places[run] = Place()
    found: list[Any] = []

    def look() -> list[tuple[int, int]]:
        return [(one.attempt, one.step) for one in display._new(run)]

    assert look() == []
    write(run, range(1, 4), attempt=1)
    found += look()
    write(run, range(4, 6), attempt=1, keep=3)
    found += look()
    write(run, range(3, 5), attempt=2, keep=2)
    found += look()
    assert found == [(1, 1), (1, 2), (1, 3), (1, 4), (1, 5), (2, 3), (2, 4)]
    assert look() == []


def test_what_was_there_before_is_not_shown_again(tmp_path: Path):
    write(tmp_path, range(1, 4), attempt=1)
    display = Display(Console(quiet=True))
    with display.showing([SimpleNamespace(folder=tmp_path, label="a", result=None)]):  # type: ignore[list-item]
        write(tmp_path, range(4, 5), attempt=1, keep=3)
    assert display._new(tmp_path) == []
    assert display._places[tmp_path].lines == 4
