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
from pathlib import Path
from typing import Any

from markupsafe import Markup
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from subquad.errors import ConfigError
from subquad.markup import as_csv, fill_template, in_latex, in_markdown, one_line
from subquad.reports.document import NEVER, ReportDocument, Table
from subquad.reports.drawing import Chart
from subquad.reports.text import Values
from subquad.runs import write_text
from subquad.suggest import did_you_mean

HERE = "subquad.reports"
_PICTURES = "charts"
_NARROW = 16
"""Characters of a word that a narrow terminal keeps on one line."""


def parse_formats(text: str) -> tuple[str, ...]:
    """Formats from `md,csv,html`; `markdown` and `latex` are known too.

    Raises:
        ConfigError: one is unknown, or there is none.
    """
    words = {"markdown": "md", "latex": "tex"}
    given = [part.strip() for part in text.split(",") if part.strip()]
    chosen = tuple(dict.fromkeys(words.get(part, part) for part in given))
    for name in chosen or ("",):
        if name not in FORMATS:
            raise ConfigError(
                f"--format: {name!r} is none of {', '.join(FORMATS)}{did_you_mean(name, FORMATS)}"
            )
    return chosen


def write_document(document: ReportDocument, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write `report.<format>` files; the same runs give the same bytes.

    Returns:
        the files written, in the order of `formats`; with the page, charts along settings after
        them.
    """
    texts = {folder / f"report.{name}": FORMATS[name](document) for name in formats}
    charts = [chart for section in document.sections for chart in section.charts if chart.is_kept]
    names = Counter[str]()
    for chart in charts if "html" in formats else ():
        names[chart.file_name] += 1
        again = f"~{names[chart.file_name]}" if names[chart.file_name] > 1 else ""
        texts[folder / _PICTURES / f"{chart.file_name}{again}.svg"] = chart.drawn()
    for path, content in texts.items():
        write_text(path, content)
    return list(texts)


def sheet_of(document: ReportDocument) -> tuple[list[Values], list[str]]:
    """Flat records, and the columns that any of them has, in the order in which they come up."""
    records = [_flat(record) for record in document.records]
    columns = list(dict.fromkeys(name for record in records for name in record))
    return records, columns


def _sheet(document: ReportDocument) -> str:
    records, columns = sheet_of(document)
    return as_csv(records, columns, line_end="\r\n")


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
            found |= {
                f"{name}_{column}": _listed(entry[column] for entry in value) for column in value[0]
            }
        else:
            found[name] = _listed(value) if isinstance(value, list) else value
    return found


def _listed(values: Iterable[Any]) -> str:
    texts = [_listed(value) if isinstance(value, list) else value for value in values]
    return "; ".join("" if text is None else str(text) for text in texts)


def _page(document: ReportDocument) -> str:
    """The page: style and charts are inside as data, scripts are forbidden by its policy; every
    value is escaped.

    By that policy nothing may load or run, except this very style sheet and pictures inside the
    page.
    """
    css = (files(HERE) / "page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri "
        "'none'; form-action 'none'"
    )
    return fill_template(
        HERE,
        "page.html.j2",
        document=document,
        css=Markup(css),
        policy=policy,
        picture=picture,
    )


def picture(content: bytes | Chart) -> Markup:
    """The address of a picture that lies in the page: a PNG file, or a chart."""
    kind, data = (
        ("svg+xml", content.drawn().encode()) if isinstance(content, Chart) else ("png", content)
    )
    return Markup(f"data:image/{kind};base64,{base64.b64encode(data).decode()}")


def _text(template: str, shown: Callable[[object], str], document: ReportDocument) -> str:
    return fill_template(HERE, template, shown, document=document)


FORMATS: Mapping[str, Callable[[ReportDocument], str]] = {
    "md": partial(_text, "report.md.j2", in_markdown),
    "csv": _sheet,
    "html": _page,
    "tex": partial(_text, "report.tex.j2", in_latex),
}
"""Format -> what renders it."""


def print_document(document: ReportDocument, console: Console) -> None:
    """Print the sections, then the headlines. Names are plain text: no markup, no escape
    sequences.
    """

    def say(lines: Iterable[str], style: str = "") -> None:
        for line in lines:
            console.print(Text(one_line(line), style=style), soft_wrap=True)

    say(document.lead)
    for number, section in enumerate(document.sections):
        if section.brief is not None:
            say(section.brief, "dim")
            continue
        if number:
            console.print()
            say([section.title], "bold")
        if section.table:
            print_cells(section.table, console)
            say([section.table.note] if section.table.note else [], "dim")
        say(section.lines)
        say(section.notes, "dim")
    say((line for section in document.sections for line in section.headlines), "bold")


def print_cells(table: Table, console: Console) -> None:
    """Print the columns that fit, of the others the most important ones. No number is cut or broken
    over lines.

    Where even these do not fit, long words are broken over lines, and in the end lines are longer
    than the terminal.
    """
    cells = dict(zip(table.columns, zip(*table.lines, strict=True), strict=True))
    least = {name: max(map(len, (*name.split(), *cells[name]))) for name in table.columns}
    shown = [name for name in table.columns if table.ranks.get(name) != NEVER]
    for name in sorted(shown, key=lambda name: -table.ranks.get(name, 0)):
        if name in table.ranks and _width(shown, least) > console.width:
            shown.remove(name)
    fits = _width(shown, least) <= console.width
    for name in () if fits else set(shown) - set(table.numeric):
        least[name] = min(least[name], _NARROW)
    narrow = _width(shown, least)
    grid = Grid(
        box=None,
        header_style="bold",
        pad_edge=False,
        width=narrow if narrow > console.width else None,
    )
    for name in shown:
        width, number = least[name], name in table.numeric
        grid.add_column(
            Text(one_line(name)),
            justify="right" if number else "left",
            overflow="fold",
            min_width=width,
            width=width if number and not fits else None,
        )
    for number, line in enumerate(zip(*(cells[name] for name in shown), strict=True)):
        style = "italic" if number in table.italic else ""
        grid.add_row(*(Text(one_line(cell)) for cell in line), style=style)
    console.print(grid, crop=False)


def _width(columns: Iterable[str], least: Mapping[str, int]) -> int:
    """Characters that columns take, with the space between them."""
    return sum(least[name] + 2 for name in columns)
