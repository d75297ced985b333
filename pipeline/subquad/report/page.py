"""The report as one HTML page that loads nothing: style and charts are inside, scripts are forbidden by its policy."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from subquad.report import ledger, sensitivity_plot, svg, table
from subquad.report.build import Report
from subquad.report.curves import Chart, Panel, panels
from subquad.report.method import METHOD
from subquad.report.provenance import source_of
from subquad.report.sensitivity_words import NOTE, lines


def render(report: Report) -> str:
    """The whole page."""
    return fill("page.html.j2", title=_title(report), **content(report))


def content(report: Report) -> dict[str, Any]:
    """What `results.html.j2` shows."""
    return {
        "report": report,
        "results": table.results(report),
        "means": table.means(report),
        "published": table.published(report),
        "comparisons": table.comparisons(report),
        "protocols": table.protocols(report),
        "notes": table.notes(report),
        "sources": _sources(report),
        "method": METHOD,
        "sensitivities": [
            (one, table.sensitivity(one), sensitivity_plot.draw(one, f"sensitivity-{index}"), lines(one))
            for index, one in enumerate(report.sensitivities)
        ],
        "sensitivity_note": NOTE,
        "panels": [(panel, _draw(panel, index)) for index, panel in enumerate(panels(report))],
        "provenance": [source_of(cell) for cell in report.cells],
    }


def fill(template: str, *, pictures: bool = False, **values: Any) -> str:
    """A page that extends `layout.html.j2`; every value is escaped.

    Args:
        pictures: whether it holds some, as data.
    """
    css = _file("page.css")
    environment = Environment(loader=FunctionLoader(_file), autoescape=True, undefined=StrictUndefined)
    return environment.get_template(template).render(css=Markup(css), policy=policy(css, pictures=pictures), **values)


def policy(css: str, *, pictures: bool = False) -> str:
    """Content security policy: nothing may load or run, except this very style sheet and pictures inside the page."""
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    images = "img-src data:; " if pictures else ""
    return f"default-src 'none'; {images}style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _draw(panel: Panel, index: int) -> list[tuple[Chart, Markup]]:
    return [(chart, svg.draw(chart, f"chart-{index}-{number}")) for number, chart in enumerate(panel.charts)]


def _sources(report: Report) -> list[tuple[str, str]]:
    """Short name and paper of every published row shown."""
    values = [value.published for one in report.sensitivities for value in one.values]
    shown = sorted({one.published.source for beside in (*report.published, *values) for one in beside})
    return [(name, ledger.source_title(name)) for name in shown]


def _title(report: Report) -> str:
    datasets = list(dict.fromkeys(row.dataset for row in report.rows))
    shown = ", ".join(datasets[:3]) + (f" and {len(datasets) - 3} more" if len(datasets) > 3 else "")
    return f"Token mixers on {shown}"


def _file(name: str) -> str:
    return (files("subquad.report") / name).read_text(encoding="utf-8")
