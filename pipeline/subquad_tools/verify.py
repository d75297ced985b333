"""`subquad verify`: whether folders still say what was found."""

from __future__ import annotations

import json

import click

from subquad.completion import run_folders


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

    from subquad.cli.report import folders_of
    from subquad.output.terminal import print_line
    from subquad.trained.verify import verify
    from subquad_tools.paper.files import is_of_tables, verify_tables

    is_wrong = False
    for run in folders_of(runs):
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
