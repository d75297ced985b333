"""The report on a terminal. Names are shown as plain text: no markup, no escape sequences."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from subquad.report import table
from subquad.report.build import Report
from subquad.report.sensitivity import Sensitivity
from subquad.report.sensitivity_words import NOTE, lines

_NARROW = 110
_SIDE_COLUMNS = frozenset({"macro-F1 (%)", "FLOPs/step", "best epoch"})
_NARROW_WITH_ORACLES = 96
_COSTS = frozenset({"parameters", "training"})
"""They make room for the names and intervals of oracles."""
_KEPT_WHOLE = frozenset({"data set", "mixer", "protocol"})
_MIN_WIDTH = len("98.56 ± 0.16")
_REASONS = 3


def to_terminal(report: Report, console: Console) -> None:
    """Print the table, why runs failed, what its protocols mean, published rows with their verdicts, headlines."""
    _print_table(table.results(report, reasons=False), console)
    for line in table.unfinished(report):  # in the narrow column they would take a line a word
        _line(console, line, "red")
    if report.means:
        _print_means(table.means(report), console)
    for name, label in table.protocols(report):
        _line(console, f"{name}: {label}", "dim")
    for line in (*table.notes(report), *_published(report)):
        _line(console, line, "dim")
    for line in report.headlines:
        _line(console, line, "bold")
    for one in report.sensitivities:
        _print_sensitivity(one, console)
    if report.sensitivities:
        _line(console, NOTE, "dim")


def _print_sensitivity(one: Sensitivity, console: Console) -> None:
    content = table.sensitivity(one)
    console.print()
    _line(console, one.title, "bold")
    shown = [index for index, header in enumerate(content.headers) if header != "source"]
    grid = RichTable(box=None, header_style="bold", pad_edge=False)
    for index in shown:
        side = "right" if index in content.numeric else "left"
        grid.add_column(Text(content.headers[index]), justify=side, no_wrap=index < 3, overflow="fold")
    for line in content.lines:
        grid.add_row(*(Text(line[index]) for index in shown))
    console.print(grid)
    for number, line in enumerate(lines(one)):
        _line(console, line, "dim" if number else "")


def _published(report: Report) -> list[str]:
    return [
        f"{row.dataset}, {row.name} ({row.protocol}): published {one.published.value:g} ({one.published.model}, "
        f"{one.reference}), {one.verdict_within(_REASONS)}"
        for row, beside in zip(report.rows, report.published, strict=True)
        for one in beside
    ]


def _print_table(content: table.Table, console: Console) -> None:
    hidden = {"published"} | (_SIDE_COLUMNS | _plain_status(content) if console.width < _NARROW else frozenset())
    hidden |= _COSTS if console.width < _NARROW_WITH_ORACLES and content.oracles else frozenset()
    shown = [index for index, header in enumerate(content.headers) if header not in hidden]
    grid = RichTable(box=None, header_style="bold", pad_edge=False)
    for index in shown:
        header = content.headers[index]
        side = "right" if index in content.numeric else "left"
        least = _least_width(content, index) if header.startswith(("status", "test ", "last ")) else None
        grid.add_column(Text(header), justify=side, overflow="fold", no_wrap=header in _KEPT_WHOLE, min_width=least)
    for number, line in enumerate(content.lines):
        grid.add_row(*(Text(line[index]) for index in shown), style="italic" if number in content.oracles else "")
    console.print(grid)


def _print_means(content: table.Table, console: Console) -> None:
    console.print()
    grid = RichTable(box=None, header_style="bold", pad_edge=False)
    for index, header in enumerate(content.headers):
        side = "right" if index in content.numeric else "left"
        grid.add_column(Text(header), justify=side, no_wrap=index > 0, overflow="fold")
    for number, line in enumerate(content.lines):
        grid.add_row(*map(Text, line), style="italic" if number in content.oracles else "")
    console.print(grid)
    console.print()


def _least_width(content: table.Table, index: int) -> int:
    """Scores are not broken over lines, nor are those of oracles with their interval."""
    score = content.headers[index].startswith("test ")
    return max([_MIN_WIDTH, *(len(content.lines[number][index]) for number in content.oracles if score)])


def _plain_status(content: table.Table) -> frozenset[str]:
    """The status column where it says nothing but that all is well."""
    place = content.headers.index("status")
    trained = [line for number, line in enumerate(content.lines) if number not in content.oracles]
    plain = all(line[place] == f"{line[content.headers.index('seeds')]} finished" for line in trained)
    return frozenset({"status"}) if plain else frozenset()


def _line(console: Console, text: str, style: str) -> None:
    console.print(Text(text, style=style), soft_wrap=True)
