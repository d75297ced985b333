"""`subquad report`: tables, intervals and published rows of runs, on the terminal and as files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from subquad.report import Report


@click.command("report")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the files; default: the run's or study's own.")
@click.option("--format", "formats", default="md,csv,html", show_default=True, help="Files to write.")
@click.option("--baseline", default="identity", show_default=True, help="The control mixer others are held against.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
def command(runs: tuple[Path, ...], out: Path | None, formats: str, baseline: str, as_json: bool) -> None:
    """Report on RUNS: directories of runs or studies."""
    from subquad.errors import RunError
    from subquad.report import build, to_json, write
    from subquad.report.files import parse_formats

    chosen = parse_formats(formats)
    report = build(runs, baseline=baseline)
    folder = out or (runs[0] if len(runs) == 1 else Path("report"))
    try:
        written = write(report, folder, chosen)
    except OSError as error:
        raise RunError(f"--out {folder}: cannot be written ({error.strerror})") from error
    if as_json:
        click.echo(json.dumps({**to_json(report), "files": [str(path) for path in written]}, indent=2, allow_nan=False))
        return
    _print(report, written)


def _print(report: Report, written: list[Path]) -> None:
    from rich.console import Console

    from subquad.report import to_terminal

    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    to_terminal(report, console)
    for path in written:
        console.print(str(path), markup=False, soft_wrap=True, style="dim")
