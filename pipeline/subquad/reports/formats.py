"""A document on a terminal, and as files: Markdown, LaTeX, CSV, and one HTML page that loads
nothing.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib.resources import files
from itertools import chain, takewhile
from pathlib import Path
from typing import Any

from markupsafe import Markup
from rich.console import Console
from rich.table import Column
from rich.table import Table as Grid
from rich.text import Text

from subquad.errors import ConfigError
from subquad.output.markup import as_csv, fill_template, in_latex, in_markdown, one_line
from subquad.record.files import write_text
from subquad.reports.document import ReportDocument, Table
from subquad.reports.drawing import Chart
from subquad.reports.text import Values
from subquad.suggest import did_you_mean

HERE = "subquad.reports"
_PICTURES = "charts"
_NARROW = 24
"""Characters of a text that a narrow terminal keeps on one line."""
_PIPED = 100
"""Columns of what is read first, where it goes to no terminal."""


def parse_formats(text: str) -> tuple[str, ...]:
    """Formats from `md,csv,html`; `markdown` and `latex` are known too.

    Raises:
        ConfigError: one is unknown, or there is none.
    """
    words = {"markdown": "md", "latex": "tex"}
    given = filter(None, map(str.strip, text.split(",")))
    chosen = tuple(dict.fromkeys(words.get(word, word) for word in given))
    for name in chosen or ("",):
        if name not in FORMATS:
            raise ConfigError(
                f"--format: {name!r} is none of {', '.join(FORMATS)}{did_you_mean(name, FORMATS)}"
            )
    return chosen


def write_document(
    document: ReportDocument, folder: Path, formats: Sequence[str], *, charts: bool = False
) -> list[Path]:
    """Write `report.<format>` files; the same runs give the same bytes.

    Args:
        charts: draw each chart as SVG and PDF too, in `charts`.

    Returns:
        the files written, in the order of `formats`; the charts after them.
    """
    contents: dict[Path, str | bytes] = {
        folder / f"report.{name}": FORMATS[name](document) for name in formats
    }
    times = Counter[str]()
    for chart in document.charts if charts else ():
        times[chart.file_name] += 1
        again = f"~{times[chart.file_name]}" if times[chart.file_name] > 1 else ""
        for kind in ("svg", "pdf"):
            path = folder / _PICTURES / f"{chart.file_name}{again}.{kind}"
            contents[path] = chart.saved(kind)
    for path, content in contents.items():
        write_text(path, content)
    return list(contents)


def sheet_of(document: ReportDocument) -> tuple[list[Values], list[str]]:
    """Flat records, and the columns that any of them has, in the order in which they come up."""
    records = [_flat(record) for record in document.records]
    return records, list(dict.fromkeys(chain.from_iterable(records)))


def _flat(values: Values, prefix: str = "") -> Values:
    """One level of nested values: `score_mean`; lists as text, those of mappings key by key."""
    found: Values = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if key in ("setting", "at"):
            found[name] = "; ".join(f"{setting}={choice}" for setting, choice in value.items())
        elif isinstance(value, dict):
            found |= _flat(value, f"{name}_")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            columns = {column: [entry[column] for entry in value] for column in value[0]}
            found |= _flat(columns, f"{name}_")
        else:
            found[name] = _listed(value) if isinstance(value, list) else value
    return found


def _listed(value: Any) -> str:
    if isinstance(value, list):
        return "; ".join(map(_listed, value))
    return "" if value is None else str(value)


def _page(document: ReportDocument) -> str:
    """The page: style and charts are inside as data, scripts are forbidden by its policy; every
    value is escaped.

    By that policy nothing may load or run, except this very style sheet and pictures inside the
    page.
    """
    css = (files(HERE) / "page.css").read_text(encoding="utf-8")
    style = f"'sha256-{_base64(hashlib.sha256(css.encode()).digest())}'"
    return fill_template(
        HERE,
        "page.html.j2",
        document=document,
        css=Markup(css),
        policy=(
            f"default-src 'none'; img-src data:; style-src {style}; base-uri 'none'; "
            "form-action 'none'"
        ),
        picture=picture,
    )


def picture(content: bytes | Chart) -> Markup:
    """The address of a picture that lies in the page: a PNG file, or a chart."""
    if isinstance(content, Chart):
        return Markup(f"data:image/svg+xml;base64,{_base64(content.saved())}")
    return Markup(f"data:image/png;base64,{_base64(content)}")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _text(template: str, shown: Callable[[object], str], document: ReportDocument) -> str:
    return fill_template(HERE, template, shown, document=document)


FORMATS: Mapping[str, Callable[[ReportDocument], str]] = {
    "md": partial(_text, "report.md.j2", in_markdown),
    "csv": lambda document: as_csv(*sheet_of(document), line_end="\r\n"),
    "html": _page,
    "tex": partial(_text, "report.tex.j2", in_latex),
}
"""Format -> what renders it."""


def print_document(document: ReportDocument, console: Console, *, stats: bool = False) -> None:
    """Print what a reader sees first, in at most 100 columns of a pipe or file; with `stats` all
    sections too. Names are plain text: no markup, no escape sequences.
    """
    width = console.width if console.is_terminal else min(console.width, _PIPED)

    def say(lines: Iterable[str], style: str = "", width: int | None = None) -> None:
        for line in lines:
            console.print(Text(one_line(line), style=style), soft_wrap=width is None, width=width)

    say(document.lead, width=width)
    for section in document.overview:
        say([section.title], "bold", width)
        if section.table:
            print_cells(section.table, console, width)
            say(filter(None, [section.table.legend_text]), "dim", width)
            say([f"{letter} {note}" for note, letter in section.table.letters.items()], "dim")
        say(section.lines)
    say(document.summary, width=width)
    for section in document.sections if stats else ():
        if not (section.table or section.lines):
            continue
        console.print()
        say([section.title], "bold")
        if section.table:
            print_cells(section.table, console)
            say(filter(None, [section.table.note]), "dim")
        say(section.lines)
        say(section.notes, "dim")


def print_cells(table: Table, console: Console, width: int | None = None) -> None:
    """Print a table; columns that do not fit stand below, behind the first words of their lines
    again. No number is cut or broken over lines.

    Args:
        width: in characters; None: the console's.
    """
    width = width or console.width
    columns = [_column(table, place) for place in range(len(table.columns))]
    keys = list(takewhile(lambda column: column[0].justify == "left", columns))
    blocks = [[*keys]]
    for column in columns[len(keys) :]:
        if _needed([*blocks[-1], column]) > width and len(blocks[-1]) > len(keys):
            blocks.append([*keys])
        blocks[-1].append(column)
    for block in blocks:
        titles = [column.copy() for column, _ in block]
        grid = Grid(*titles, box=None, header_style="bold", pad_edge=False)
        for number, cells in enumerate(zip(*[cells for _, cells in block], strict=True)):
            grid.add_row(*cells, style="dim" if number in table.apart else "")
        console.print(grid, crop=False, width=max(width, _needed(block)))


def _column(table: Table, place: int) -> tuple[Column, list[Text]]:
    """A column and its cells: each text with its sign, or room for one, and its letters."""
    name = table.columns[place]
    is_numeric = name in table.numeric
    cells = []
    for number, line in enumerate(table.lines):
        sign = table.signs.get((number, place), "")
        text = one_line(line[place])
        if table.signs and is_numeric:
            text += f" {sign:1}"
        if letters := table.letters_at(number, place):
            text += f" {letters}"
        cells.append(Text(text, "bold" if sign == "*" else ""))
    longest = max(map(len, [*name.split(), *cells]))
    return (
        Column(
            Text(one_line(name)),
            justify="right" if is_numeric else "left",
            overflow="fold",
            min_width=longest if is_numeric else min(longest, _NARROW),
        ),
        cells,
    )


def _needed(block: Sequence[tuple[Column, list[Text]]]) -> int:
    """Characters that these columns take side by side."""
    return sum((column.min_width or 0) + 2 for column, _ in block) - 2
