"""A search's report as files, and as JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from subquad import report as reports
from subquad.report import files, markdown, sheet
from subquad.report.sheet import Value
from subquad.runs import plain
from subquad.search import words
from subquad.search.report import page
from subquad.search.report.read import SearchReport

FORMAT = 1


def to_json(report: SearchReport) -> dict[str, Any]:
    """What search.json has, and everything in the report of the final study."""
    return plain(
        {
            "format": FORMAT,
            "search": report.summary,
            "finished": report.finished,
            "final": reports.to_json(report.final) if report.final else None,
            "pictures": [str(path) for path in report.pictures],
        }
    )


def write(report: SearchReport, folder: Path, formats: Sequence[str] = files.FORMATS) -> list[Path]:
    """Write `report.<format>` files; see `subquad.report.write`."""
    return files.write_with({"md": _markdown, "csv": _sheet, "html": page.render}, report, folder, formats)


def _markdown(report: SearchReport) -> str:
    parts = [markdown.bullets(report.lines), "## Subjects", markdown.grid(words.table(report.summary))]
    if said := page.said(report):
        parts += [markdown.bullets(said)]
    final = ["## Final study", *markdown.sections(report.final)] if report.final else []
    return markdown.page(f"Search {report.name}", [*parts, *final])


def _sheet(report: SearchReport) -> str:
    """A record of each subject, with columns of its own, before those of the final study."""
    settings = report.summary["settings"]
    records = [_record(one, settings["searcher"], settings["scheduler"]) for one in report.summary["subjects"]]
    return sheet.lines([*records, *(sheet.records(report.final) if report.final else [])])


def _record(one: dict[str, Any], searcher: str, scheduler: str) -> dict[str, Value]:
    best = one["best"] or {}
    return {
        "kind": "search",
        "subject": one["label"],
        "searcher": searcher,
        "scheduler": scheduler,
        "dimensions": one["dimensions"],
        **{f"trials_{state}": count for state, count in one["trials"].items()},
        "steps": one["steps"],
        "flops": one["flops"],
        "training_seconds": one["seconds"],
        "metric": one["metric"],
        "best_validation": best.get("value"),
        "best_trial": best.get("number"),
        "best_point": words.point_text(best["point"]) if best else None,
        "over": one["over"] or None,
    }
