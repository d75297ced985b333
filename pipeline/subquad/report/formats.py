"""A document on a terminal, and as files: Markdown, LaTeX, CSV, and one HTML page that loads nothing."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from subquad.errors import ConfigError
from subquad.markup import as_csv, in_latex, in_markdown, one_line
from subquad.report.charts import Chart
from subquad.report.document import NEVER, ReportDocument, Table
from subquad.runs import write_text
from subquad.suggest import did_you_mean

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
            raise ConfigError(f"--format: {name!r} is none of {', '.join(FORMATS)}{did_you_mean(name, FORMATS)}")
    return chosen


def write_document(document: ReportDocument, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write `report.<format>` files; the same runs give the same bytes.

    Returns:
        the files written, in the order of `formats`; with the page, charts along settings after them.
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


def _filled(template: str, document: ReportDocument, shown: Callable[[object], str] | None = None, **more: Any) -> str:
    """A template of this package; `shown` makes every value but those marked as safe harmless, None: HTML's escapes."""
    environment = Environment(
        loader=FunctionLoader(_file),
        autoescape=shown is None,
        finalize=lambda value: value if isinstance(value, Markup) else (shown or one_line)(value),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(document=document, **more)


def _sheet(document: ReportDocument) -> str:
    """Records under the columns that any of them has, in the order in which they come up."""
    records = [_flat(record) for record in document.records]
    columns = list(dict.fromkeys(name for record in records for name in record))
    return as_csv(records, columns, line_end="\r\n")


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """One level of nested values: `score_mean`; lists as text, those of mappings key by key."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if key in ("setting", "at"):
            found[name] = "; ".join(f"{one}={other}" for one, other in value.items())
        elif isinstance(value, Mapping):
            found |= _flat(value, f"{name}_")
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            found |= {f"{name}_{one}": _listed(each[one] for each in value) for one in value[0]}
        else:
            found[name] = _listed(value) if isinstance(value, list) else value
    return found


def _listed(values: Iterable[Any]) -> str:
    return "; ".join(_listed(one) if isinstance(one, list) else "" if one is None else str(one) for one in values)


def _page(document: ReportDocument) -> str:
    """The page: style and charts are inside as data, scripts are forbidden by its policy; every value is escaped.

    By that policy nothing may load or run, except this very style sheet and pictures inside the page.
    """
    css = _file("page.css")
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return _filled("page.html.j2", document, css=Markup(css), policy=policy, picture=_picture)


def _picture(content: bytes | Chart) -> Markup:
    """The address of a picture that lies in the page: a PNG file, or a chart."""
    kind, data = ("svg+xml", content.drawn().encode()) if isinstance(content, Chart) else ("png", content)
    return Markup(f"data:image/{kind};base64,{base64.b64encode(data).decode()}")


def _file(name: str) -> str:
    return (files("subquad.report") / name).read_text(encoding="utf-8")


FORMATS: Mapping[str, Callable[[ReportDocument], str]] = {
    "md": partial(_filled, "report.md.j2", shown=in_markdown),
    "csv": _sheet,
    "html": _page,
    "tex": partial(_filled, "report.tex.j2", shown=in_latex),
}
"""Format -> what renders it."""


def print_document(document: ReportDocument, console: Console) -> None:
    """Print the sections, then the headlines. Names are plain text: no markup, no escape sequences."""

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
    """Print the columns that fit, of the others the most important ones. No number is cut or broken over lines.

    Where even these do not fit, long words are broken over lines, and in the end lines are longer than the terminal.
    """
    cells = dict(zip(table.columns, zip(*table.lines, strict=True), strict=True))
    least = {name: max(map(len, (*name.split(), *cells[name]))) for name in table.columns}
    shown = [name for name in table.columns if table.ranks.get(name) != NEVER]
    for name in sorted(shown, key=lambda name: -table.ranks.get(name, 0)):
        if name in table.ranks and sum(least[one] + 2 for one in shown) > console.width:
            shown.remove(name)
    fits = sum(least[one] + 2 for one in shown) <= console.width
    least = {one: least[one] if fits or one in table.numeric else min(least[one], _NARROW) for one in shown}
    narrow = sum(width + 2 for width in least.values())
    grid = Grid(box=None, header_style="bold", pad_edge=False, width=narrow if narrow > console.width else None)
    for name, width in least.items():
        number = name in table.numeric
        fixed = width if number and not fits else None
        side = "right" if number else "left"
        grid.add_column(Text(one_line(name)), justify=side, overflow="fold", min_width=width, width=fixed)
    for number, line in enumerate(zip(*(cells[name] for name in shown), strict=True)):
        grid.add_row(*(Text(one_line(cell)) for cell in line), style="italic" if number in table.italic else "")
    console.print(grid, crop=False)
