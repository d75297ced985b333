"""`subquad report`: tables, intervals and published rows of runs, on the terminal and as files."""

from __future__ import annotations

import gc
import json
from pathlib import Path

import click

from subquad.completion import run_folders
from subquad.errors import RunError
from subquad.output.terminal import LocalPath
from subquad.record.layout import enter


@click.command("report")
@click.argument("runs", nargs=-1, required=True, shell_complete=run_folders)
@click.option(
    "--out",
    type=LocalPath(path_type=Path),
    help="Folder of the files. Default: the run's or study's own.",
)
@click.option(
    "--format",
    "formats",
    default="md,csv,html",
    show_default=True,
    help="Files: md, csv, html, tex.",
)
@click.option(
    "--baseline",
    help="Label of the mixer that others are compared with. Default: the one the study names.",
)
@click.option("--stats", is_flag=True, help="Print costs, tests and published rows too.")
@click.option("--charts", is_flag=True, help="Draw all charts as SVG and PDF, in charts/.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
def report_command(
    runs: tuple[str, ...],
    out: Path | None,
    formats: str,
    baseline: str | None,
    stats: bool,
    charts: bool,
    as_json: bool,
) -> None:
    """Write the results of RUNS as tables and one HTML page.

    RUNS are folders of runs or studies, or that of one search, or their addresses in storage.

    \b
    subquad report runs/quickstart/20260101-101500-ab12cd34
    subquad report runs/quickstart/* --out tables --format md,csv,tex --charts
    """
    from subquad.reports import parse_formats, print_document, write_document
    from subquad.results import document_of_folders

    # a report keeps what it makes until it is written: looking for circles takes a sixth of it
    gc.set_threshold(100_000)
    chosen = parse_formats(formats)
    folders = folders_of(runs)
    document = document_of_folders(folders, baseline)
    if out is None:
        out = folders[0] if len(folders) == 1 else Path("report")
    try:
        written = write_document(document, out, chosen, charts=charts)
    except RunError as error:
        raise RunError(f"--out: {error}") from error
    if as_json:
        values = {**document.values, "files": [str(path) for path in written]}
        click.echo(json.dumps(values, indent=2, allow_nan=False))
        return
    from subquad.output.terminal import console_of

    console = console_of()
    print_document(document, console, stats=stats)
    names = ", ".join(path.name for path in written[: len(chosen)])
    drawn = f", and {len(written) - len(chosen)} pictures in charts" if charts else ""
    where = f"{out}: {names}{drawn}"
    console.print(f"Files in {where}", markup=False, soft_wrap=True, style="dim")


def folders_of(runs: tuple[str, ...]) -> tuple[Path, ...]:
    """Folders of runs, those of addresses as copies."""
    if not any("://" in run for run in runs):
        return tuple(enter(Path(run)) for run in runs)  # without importing what fetches them
    from subquad.cli.folders import found

    return tuple(map(found, runs))
