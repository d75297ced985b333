"""`subquad report`: tables, intervals and published rows of runs, on the terminal and as files."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

    from subquad.report import Report
    from subquad.search.report import SearchReport


@click.command("report")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the files; default: the run's or study's own.")
@click.option("--format", "formats", default="md,csv,html", show_default=True, help="Files to write.")
@click.option("--baseline", default="identity", show_default=True, help="The control mixer others are held against.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
def report_command(runs: tuple[Path, ...], out: Path | None, formats: str, baseline: str, as_json: bool) -> None:
    """Report on RUNS: directories of runs or studies, or that of one search."""
    from subquad.errors import RunError
    from subquad.report.files import parse_formats

    chosen = parse_formats(formats)
    report = _read(runs, baseline)
    folder = out or (runs[0] if len(runs) == 1 else Path("report"))
    to_json, to_terminal, write = _writers(report)
    try:
        written = write(report, folder, chosen)
    except OSError as error:
        raise RunError(f"--out {folder}: cannot be written ({error.strerror})") from error
    if as_json:
        click.echo(json.dumps({**to_json(report), "files": [str(path) for path in written]}, indent=2, allow_nan=False))
        return
    _print(report, to_terminal, written)


def _read(runs: tuple[Path, ...], baseline: str) -> Report | SearchReport:
    from subquad.errors import RunError
    from subquad.report import build
    from subquad.runs import SEARCH

    searches = [one for one in runs if (one / SEARCH).exists()]
    if not searches:
        return build(runs, baseline=baseline)
    if len(runs) > 1:
        raise RunError(
            f"{searches[0]}: is a search, which is reported alone; beside other runs give its final study, "
            f"{searches[0] / 'final'}"
        )
    from subquad.search.report import read_search_report

    return read_search_report(searches[0], baseline=baseline)


def _writers(
    report: Report | SearchReport,
) -> tuple[Callable[..., Any], Callable[..., None], Callable[..., list[Path]]]:
    """What makes JSON of a report, prints it, and writes its files."""
    from subquad import report as of_runs

    if isinstance(report, of_runs.Report):
        return of_runs.to_json, of_runs.to_terminal, of_runs.write
    from subquad.search import report as of_searches

    return of_searches.to_json, of_searches.to_terminal, of_searches.write


def _print(report: Any, to_terminal: Callable[[Any, Console], None], written: list[Path]) -> None:
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    to_terminal(report, console)
    for path in written:
        console.print(str(path), markup=False, soft_wrap=True, style="dim")
