"""A document on a terminal. Names are shown as plain text: no markup, no escape sequences."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from subquad.report.document import NEVER, ReportDocument, Table


def print_document(document: ReportDocument, console: Console) -> None:
    """Print the sections, then the headlines."""
    for line in document.lead:
        _line(console, line)
    for number, section in enumerate(document.sections):
        if section.brief is not None:
            for line in section.brief:
                _line(console, line, "dim")
            continue
        if number:
            console.print()
            _line(console, section.title, "bold")
        if section.table:
            console.print(_grid(section.table, console.width))
        for style, lines in (("", section.lines), ("dim", section.notes)):
            for line in lines:
                _line(console, line, style)
    for line in (line for section in document.sections for line in section.headlines):
        _line(console, line, "bold")


def _grid(table: Table, width: int) -> Grid:
    """The columns that fit; cells are broken over lines where even the most important ones do not."""
    least = [
        max(map(len, (*one.header.split(), *(line[index] for line in table.lines))))
        for index, one in enumerate(table.columns)
    ]
    shown = [index for index, one in enumerate(table.columns) if one.rank < NEVER]
    for index in sorted(shown, key=lambda index: -table.columns[index].rank):
        if table.columns[index].rank and sum(least[one] + 2 for one in shown) > width:
            shown.remove(index)
    fits = sum(least[one] + 2 for one in shown) <= width
    grid = Grid(box=None, header_style="bold", pad_edge=False)
    for index in shown:
        side = "right" if table.columns[index].numeric else "left"
        grid.add_column(
            Text(table.columns[index].header), justify=side, overflow="fold", min_width=least[index] if fits else None
        )
    for number, line in enumerate(table.lines):
        grid.add_row(*(Text(line[index]) for index in shown), style="italic" if number in table.italic else "")
    return grid


def _line(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style=style), soft_wrap=True)
