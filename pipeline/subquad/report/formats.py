"""A document as files: Markdown, LaTeX, CSV, and one HTML page that loads nothing."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from subquad.errors import ConfigError
from subquad.report.charts import Chart
from subquad.report.document import ReportDocument, Table
from subquad.runs import write_text
from subquad.suggest import did_you_mean

_ACTIVE = re.compile(r"([\\`*_\[\]|~!])")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_LATEX = {**{one: f"\\{one}" for one in "&%$#_{}"}, "\\": r"\textbackslash{}", "~": r"\textasciitilde{}"}
_LATEX |= {"^": r"\textasciicircum{}", "±": r"$\pm$", "−": "$-$", "–": "--", "<": "$<$", ">": "$>$", "|": "$|$"}
_PICTURES = "curves"


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
    if "html" in formats:
        texts |= {folder / _PICTURES / name: chart.drawn() for name, chart in _named(document)}
    for path, content in texts.items():
        write_text(path, content)
    return list(texts)


def _named(document: ReportDocument) -> list[tuple[str, Chart]]:
    """Charts along settings with their files' names, each once."""
    found = dict[str, Chart]()
    for chart in (chart for section in document.sections for chart in section.charts if chart.names):
        again = sum(re.fullmatch(rf"{re.escape(chart.file_name)}(~\d+)?\.svg", name) is not None for name in found)
        found[f"{chart.file_name}{f'~{again + 1}' if again else ''}.svg"] = chart
    return list(found.items())


def _in_markdown(text: str) -> str:
    """`text` so that Markdown shows it as it is; links, emphasis, pipes and HTML do nothing."""
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _ACTIVE.sub(r"\\\1", plain)


def _markdown(document: ReportDocument) -> str:
    parts = [f"# {_in_markdown(document.title)}", *([_bullets(document.lead)] if document.lead else [])]
    for section in document.sections:
        content = [_markdown_table(section.table)] if section.table and section.table.lines else []
        content += [_bullets(lines) for lines in (section.lines, section.headlines, section.notes) if lines]
        parts += [f"## {_in_markdown(section.title)}", *content] if content else []
    return "\n\n".join(parts) + "\n"


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {_in_markdown(line)}" for line in lines)


def _markdown_table(table: Table) -> str:
    head = [_in_markdown(one.header) for one in table.columns]
    marks = ["---:" if one.numeric else "---" for one in table.columns]
    body = [[_in_markdown(cell) for cell in line] for line in table.lines]
    for index in table.italic:
        body[index] = [f"*{cell}*" for cell in body[index]]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, marks, *body))


def _in_latex(text: str) -> str:
    """`text` so that LaTeX sets it as it is."""
    return "".join(_LATEX.get(one, one) for one in text)


def _latex(document: ReportDocument) -> str:
    """A tabular for each table; needs the package booktabs."""
    parts = [f"% {document.title}. Needs \\usepackage{{booktabs}}."]
    for section in document.sections:
        if section.table and section.table.lines:
            parts += [f"% {section.title}\n{_tabular(section.table)}"]
    return "\n\n".join(parts) + "\n"


def _tabular(table: Table) -> str:
    kinds = "".join("r" if one.numeric else "l" for one in table.columns)
    body = [[_in_latex(cell) for cell in line] for line in table.lines]
    for index in table.italic:
        body[index] = [rf"\textit{{{cell}}}" for cell in body[index]]
    head = " & ".join(_in_latex(one.header) for one in table.columns)
    lines = [f"{' & '.join(cells)} \\\\" for cells in body]
    start = [rf"\begin{{tabular}}{{{kinds}}}", r"\toprule", rf"{head} \\", r"\midrule"]
    return "\n".join([*start, *lines, r"\bottomrule", r"\end{tabular}"])


def _neutral(value: Any) -> Any:
    """Text that a spreadsheet would run as a formula, behind an apostrophe; numbers stay numbers."""
    return f"'{value}" if isinstance(value, str) and value.lstrip().startswith(_FORMULA) else value


def _sheet(document: ReportDocument) -> str:
    """RFC 4180: records under the columns that any of them has, in the order in which they come up."""
    stream = io.StringIO()
    columns = list(dict.fromkeys(name for record in document.records for name in record))
    writer = csv.DictWriter(stream, columns, restval=None, lineterminator="\r\n")
    writer.writeheader()
    writer.writerows({name: _neutral(value) for name, value in record.items()} for record in document.records)
    return stream.getvalue()


def _page(document: ReportDocument) -> str:
    """The page: style and charts are inside as data, scripts are forbidden by its policy; every value is escaped."""
    css = _file("page.css")
    environment = Environment(loader=FunctionLoader(_file), autoescape=True, undefined=StrictUndefined)
    drawn = [_images(section.charts) for section in document.sections]
    pictures = [(name, _data(content, "png")) for name, content in document.pictures.items()]
    template = environment.get_template("page.html.j2")
    return template.render(document=document, css=Markup(css), policy=_policy(css), drawn=drawn, pictures=pictures)


def _images(charts: Sequence[Chart]) -> list[tuple[str, Markup]]:
    """(description, address) of each chart."""
    return [(one.description, _data(one.drawn().encode(), "svg+xml")) for one in charts]


def _data(content: bytes, kind: str) -> Markup:
    return Markup(f"data:image/{kind};base64,{base64.b64encode(content).decode()}")


def _policy(css: str) -> str:
    """Content security policy: nothing may load or run, except this very style sheet and pictures inside the page."""
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    return f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _file(name: str) -> str:
    return (files("subquad.report") / name).read_text(encoding="utf-8")


FORMATS: Mapping[str, Callable[[ReportDocument], str]] = {"md": _markdown, "csv": _sheet, "html": _page, "tex": _latex}
"""Format -> what renders it."""
