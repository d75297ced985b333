"""The report as GitHub Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable

from subquad.report import sensitivity_words, table
from subquad.report.build import Report
from subquad.report.method import METHOD
from subquad.report.table import Table

_ACTIVE = re.compile(r"([\\`*_\[\]|~!])")


def escape(text: str) -> str:
    """`text` so that Markdown shows it as it is; links, emphasis, pipes and HTML do nothing."""
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _ACTIVE.sub(r"\\\1", plain)


def render(report: Report) -> str:
    """The whole page."""
    return page("Report", sections(report))


def page(title: str, parts: Iterable[str]) -> str:
    """A page of parts, one below the other."""
    return "\n\n".join([f"# {title}", *parts]) + "\n"


def sections(report: Report) -> list[str]:
    """The parts of the page below its title."""
    parts = [bullets(report.headlines), "## Results", grid(table.results(report))]
    if report.means:
        parts += ["## Means over data sets", grid(table.means(report))]
    parts += [bullets(f"{name}: {label}" for name, label in table.protocols(report))]
    if notes := table.notes(report):
        parts += ["Notes:", bullets(notes)]
    if report.sensitivities:
        parts += ["## Sensitivity"]
        for one in report.sensitivities:
            parts += [f"### {escape(one.title)}", grid(table.sensitivity(one)), bullets(sensitivity_words.lines(one))]
        parts += [sensitivity_words.NOTE]
    if (published := table.published(report)).lines:
        parts += ["## Beside published rows", grid(published)]
    if (pairs := table.comparisons(report)).lines:
        parts += ["## Differences between mixers", grid(pairs), METHOD]
    return parts


def bullets(lines: Iterable[str]) -> str:
    """A list of foreign text."""
    return "\n".join(f"- {escape(line)}" for line in lines)


def grid(content: Table) -> str:
    """A table of foreign text."""
    marks = ["---:" if index in content.numeric else "---" for index in range(len(content.headers))]
    head = [[escape(header) for header in content.headers], marks]
    body = [[escape(cell) for cell in line] for line in content.lines]
    for index in content.oracles:
        body[index] = [f"*{cell}*" for cell in body[index]]
    return "\n".join(_line(cells) for cells in [*head, *body])


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
