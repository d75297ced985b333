"""`subquad report`: tables, intervals and published rows of runs, on the terminal and as files."""

from __future__ import annotations

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

    chosen = parse_formats(formats)
    folders = _folders(runs)
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


@click.command("verify")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", shell_complete=run_folders)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each run.")
def verify_command(runs: tuple[str, ...], as_json: bool) -> int:
    """Check that RUN still says what its training found.

    RUN is the folder of a run, a study or a search, or its address in storage; or one of tables
    that `subquad paper` wrote, which are made again. Each result is held
    against the files it was made of. Checkpoints and records are read. Scores are computed again
    from the kept predictions, by the task's own metrics. No plugin's file runs.

    The exit code is 1 where something is wrong.

    \b
    subquad verify runs/quickstart/20260101-101500-ab12cd34
    """
    from dataclasses import asdict

    from subquad.output.terminal import print_line
    from subquad.paper.files import is_of_tables, verify_tables
    from subquad.trained.verify import verify

    is_wrong = False
    for run in _folders(runs):
        for finding in verify_tables(run) if is_of_tables(run) else verify(run):
            is_wrong = is_wrong or bool(finding.faults)
            if as_json:
                click.echo(json.dumps(asdict(finding)))
                continue
            if not finding.faults:
                print_line(f"{finding.name}: {finding.words}")
            for fault in finding.faults:
                print_line(f"{finding.name}: WRONG: {fault}")
    return int(is_wrong)


def _folders(runs: tuple[str, ...]) -> tuple[Path, ...]:
    if not any("://" in run for run in runs):
        return tuple(enter(Path(run)) for run in runs)  # without importing what fetches them
    from subquad.cli.folders import found

    return tuple(map(found, runs))
