"""A search's report as one HTML page: its pictures are inside, as data."""

from __future__ import annotations

import base64

from markupsafe import Markup

from subquad.report import page
from subquad.report.text import clean
from subquad.search import words
from subquad.search.report.read import SearchReport


def render(report: SearchReport) -> str:
    """The whole page."""
    return page.fill(
        "search.html.j2",
        pictures=True,
        title=f"Search {clean(report.name)}",
        lines=report.lines,
        subjects=words.table(report.summary),
        said=said(report),
        drawn=[(clean(path.stem), _data(path.read_bytes())) for path in report.pictures],
        final=report.final is not None,
        **(page.content(report.final) if report.final else {}),
    )


def said(report: SearchReport) -> list[str]:
    """What is to be said of subjects below their table."""
    return [f"{clean(one['label'])}: {text}" for one in report.summary["subjects"] for text in words.other_lines(one)]


def _data(picture: bytes) -> Markup:
    return Markup(f"data:image/png;base64,{base64.b64encode(picture).decode()}")
