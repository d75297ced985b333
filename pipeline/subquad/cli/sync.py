"""`subquad sync`: send MLflow what a run could not send."""

from __future__ import annotations

from pathlib import Path

import click

from subquad.tracking.publisher import sync
from subquad.tracking.upload import Summary


@click.command("sync")
@click.argument("folders", metavar="RUN|STUDY|SEARCH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--uri", help="MLflow store; default: where the run was tracked.")
@click.option("--timeout", type=click.FloatRange(min=1), default=600.0, show_default=True, help="Seconds for each.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def command(folders: tuple[Path, ...], uri: str | None, timeout: float, as_json: bool) -> int:
    """Send MLflow everything of these runs, studies and searches that it does not have yet."""
    delivered = True
    for folder in folders:
        summary = sync(folder, uri=uri, timeout=timeout)
        delivered = delivered and summary.delivered
        click.echo(summary.model_dump_json() if as_json else _line(folder, summary))
    return 0 if delivered else 1


def _line(folder: Path, summary: Summary) -> str:
    runs = len(summary.run_ids)
    if summary.delivered:
        return f"{folder}: delivered to {summary.uri} ({runs} run{'' if runs == 1 else 's'})"
    return f"{folder}: not delivered to {summary.uri}, {summary.pending} records left: {summary.error}"
