"""A search's report on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from subquad import report as reports
from subquad.search import words
from subquad.search.report.read import SearchReport

_IN_LINES = ("searcher", "scheduler", words.BEST, words.WINNER)
"""Columns that lines above and below the table have."""


def to_terminal(report: SearchReport, console: Console) -> None:
    """Print what was searched, its subjects, and the final study."""
    for text in report.lines:
        _line(console, text)
    print_subjects(report.summary, console)
    if report.final:
        _line(console, "final study:")
        reports.to_terminal(report.final, console)


def print_subjects(summary: Mapping[str, Any], console: Console) -> None:
    """Print the table of subjects, then lines on each."""
    found = words.table(summary)
    shown = [index for index, header in enumerate(found.headers) if header not in _IN_LINES]
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for index in shown:
        grid.add_column(Text(found.headers[index]), justify="right" if index in found.numeric else "left", no_wrap=True)
    for line in found.lines:
        grid.add_row(*(Text(line[index]) for index in shown))
    console.print(grid)
    for one in summary["subjects"]:
        for text in (*words.best_line(one), *words.other_lines(one)):
            _line(console, f"{one['label']}: {text}")


def _line(console: Console, text: str) -> None:
    console.print(Text(text), soft_wrap=True)
