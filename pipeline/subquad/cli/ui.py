"""`subquad ui`: the MLflow pages of the runs in a folder."""

from __future__ import annotations

import signal
import webbrowser
from importlib.util import find_spec
from pathlib import Path

import click

from subquad.errors import RunError, SubquadError, UserError
from subquad.tracking.address import DATABASE
from subquad.tracking.server import serving


@click.command("ui")
@click.option(
    "--root", type=click.Path(path_type=Path), default=Path(), help="Folder that holds runs/ (default: this one)."
)
@click.option("--port", type=click.IntRange(1, 65535), help="Port on 127.0.0.1 (default: a free one).")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
def command(root: Path, port: int | None, no_browser: bool) -> int:
    """Open the MLflow pages of the runs until Ctrl-C."""
    if find_spec("mlflow") is None:
        raise UserError("subquad ui needs MLflow: pip install 'subquad[mlflow]'")
    if not (root / DATABASE).exists():
        raise RunError(
            f"no {DATABASE} in {root.resolve()}: make a run there first (`subquad train RECIPE`) or give --root"
        )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with serving(root, port) as (address, server):
            click.echo(f"{address}  (Ctrl-C stops it)")
            if not no_browser:
                webbrowser.open(address)
            code = server.wait()
    except KeyboardInterrupt:
        return 0
    raise SubquadError(f"the MLflow server ended by itself with exit code {code}")
