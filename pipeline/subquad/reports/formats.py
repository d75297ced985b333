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
from itertools import chain
from pathlib import Path
from typing import Any

from markupsafe import Markup
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from subquad.errors import ConfigError
from subquad.output.markup import as_csv, fill_template, in_latex, in_markdown, one_line
from subquad.record.files import write_text
from subquad.reports.document import NEVER, ReportDocument, Table
from subquad.reports.drawing import Chart
from subquad.reports.text import Values
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
    chosen: dict[str, None] = {}
    for part in text.split(","):
        if word := part.strip():
            chosen[words.get(word, word)] = None
    for name in chosen or ("",):
        if name not in FORMATS:
            known = ", ".join(FORMATS)
            raise ConfigError(f"--format: {name!r} is none of {known}{did_you_mean(name, FORMATS)}")
    return tuple(chosen)


def write_document(document: ReportDocument, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write `report.<format>` files; the same runs give the same bytes.

    Returns:
        the files written, in the order of `formats`; with the page, charts along settings after
        them.
    """
    texts = {}
    for name in formats:
        texts[folder / f"report.{name}"] = FORMATS[name](document)
    if "html" in formats:
        for name, chart in _kept_charts(document).items():
            texts[folder / _PICTURES / f"{name}.svg"] = chart.drawn()
    for path, content in texts.items():
        write_text(path, content)
    return list(texts)


def _kept_charts(document: ReportDocument) -> dict[str, Chart]:
    """Those that are files beside the page, by name."""
    times = Counter[str]()
    charts = {}
    for section in document.sections:
        for chart in section.charts:
            if not chart.is_kept:
                continue
            name = chart.file_name
            times[name] += 1
            count = times[name]
            if count > 1:
                name += f"~{count}"
            charts[name] = chart
    return charts


def sheet_of(document: ReportDocument) -> tuple[list[Values], list[str]]:
    """Flat records, and the columns that any of them has, in the order in which they come up."""
    records = [_flat(record) for record in document.records]
    return records, list(dict.fromkeys(chain.from_iterable(records)))


def _sheet(document: ReportDocument) -> str:
    records, columns = sheet_of(document)
    return as_csv(records, columns, line_end="\r\n")


def _flat(values: Values, prefix: str = "") -> Values:
    """One level of nested values: `score_mean`; lists as text, those of mappings key by key."""
    found: Values = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if key in ("setting", "at"):
            found[name] = "; ".join([f"{setting}={choice}" for setting, choice in value.items()])
        elif isinstance(value, dict):
            found |= _flat(value, f"{name}_")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for column in value[0]:
                found[f"{name}_{column}"] = _listed([entry[column] for entry in value])
        elif isinstance(value, list):
            found[name] = _listed(value)
        else:
            found[name] = value
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
    digest = _base64(hashlib.sha256(css.encode()).digest())
    sources = f"img-src data:; style-src 'sha256-{digest}'"
    policy = f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'"
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
    kind = "png"
    if isinstance(content, Chart):
        kind = "svg+xml"
        content = content.drawn().encode()
    return Markup(f"data:image/{kind};base64,{_base64(content)}")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


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
            if section.table.note:
                say([section.table.note], "dim")
        say(section.lines)
        say(section.notes, "dim")
    for section in document.sections:
        say(section.headlines, "bold")


def print_cells(table: Table, console: Console) -> None:
    """Print the columns that fit, of the others the most important ones. No number is cut or broken
    over lines.

    Where even these do not fit, long words are broken over lines, and in the end lines are longer
    than the terminal.
    """
    cells = dict(zip(table.columns, zip(*table.lines, strict=True), strict=True))
    least = {}
    for name, column in cells.items():
        least[name] = max(map(len, [*name.split(), *column]))
    shown = _shown(table, least, console.width)
    fits = _width(shown, least) <= console.width
    if not fits:
        for name in shown:
            if name not in table.numeric:
                least[name] = min(least[name], _NARROW)
    width = _width(shown, least)
    grid = Grid(
        box=None,
        header_style="bold",
        pad_edge=False,
        width=width if width > console.width else None,
    )
    for name in shown:
        is_number = name in table.numeric
        is_fixed = is_number and not fits
        grid.add_column(
            Text(one_line(name)),
            justify="right" if is_number else "left",
            overflow="fold",
            min_width=least[name],
            width=least[name] if is_fixed else None,
        )
    for number in range(len(table.lines)):
        texts = []
        for name in shown:
            texts.append(Text(one_line(cells[name][number])))
        grid.add_row(*texts, style="italic" if number in table.italic else "")
    console.print(grid, crop=False)


def _shown(table: Table, least: Mapping[str, int], width: int) -> list[str]:
    """The columns that fit, or those that are never left out."""
    ranks = table.ranks
    shown = [name for name in table.columns if ranks.get(name) != NEVER]
    for name in sorted(shown, key=lambda name: -ranks.get(name, 0)):
        if name in ranks and _width(shown, least) > width:
            shown.remove(name)
    return shown


def _width(columns: Iterable[str], least: Mapping[str, int]) -> int:
    """Characters that columns take, with the space between them."""
    return sum(least[name] + 2 for name in columns)
