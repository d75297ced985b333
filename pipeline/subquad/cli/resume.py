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
    """Go on with RUN, the folder of a run or a study, exactly where its newest checkpoint left it.

    Finished runs of a study are not run again.
    """
    from subquad.cli.conduct import conduct
    from subquad.drivers.session import reopen

    return conduct(reopen(run), local=local, as_json=as_json)
