"""`subquad resume`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("resume")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--local", is_flag=True, help="Train without Ray: in this process, or on local processes.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end, nothing else.")
@click.option("--debug", is_flag=True, hidden=True)
def resume_command(run: Path, local: bool, as_json: bool, debug: bool) -> int:
    """Go on with RUN, the folder of a run or a study.

    It starts at the newest checkpoint, and the result is the same as without the stop. Runs of a study that are
    finished are not run again.

    \b
    subquad resume runs/quickstart/20260101-101500-ab12cd34
    """
    from subquad.cli.conduct import conduct
    from subquad.drivers.folder import reopen

    return conduct(reopen(run), local=local, as_json=as_json)
