"""`subquad sync` and `subquad ui`: MLflow after training."""

from __future__ import annotations

import signal
import webbrowser
from importlib.util import find_spec
from pathlib import Path

import click

from subquad.errors import RunError, SubquadError, UserError
from subquad.output.terminal import LocalPath, print_line
from subquad.tracking.address import DATABASE
from subquad.tracking.publisher import sync
from subquad.tracking.server import USER, leading_page, newest_page, serving
from subquad.tracking.tensorboard import write_events


@click.command("sync")
@click.argument(
    "folders", metavar="FOLDER...", nargs=-1, required=True, type=LocalPath(path_type=Path)
)
@click.option(
    "--uri", help="Address of the MLflow store. Default: that of the experiment, see the docs."
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=600.0,
    show_default=True,
    help="Seconds for each folder.",
)
@click.option(
    "--to",
    "target",
    type=click.Choice(["mlflow", "tensorboard"]),
    default="mlflow",
    show_default=True,
    help="tensorboard: event files in tensorboard/ beside runs/, written anew.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each folder.")
def sync_command(
    folders: tuple[Path, ...], uri: str | None, timeout: float, target: str, as_json: bool
) -> int:
    """Send to MLflow what it does not have yet, or write TensorBoard's files.

    FOLDER is the folder of a run, a study or a search. Nothing is sent twice.

    \b
    subquad sync runs/quickstart/*
    subquad sync runs/quickstart/20260101-101500-ab12cd34 --uri http://mlflow.example.org:5000
    subquad sync runs/quickstart/* --to tensorboard
    """
    if target == "tensorboard":
        if uri or as_json:
            raise click.UsageError("--to tensorboard sends nothing: leave --uri and --json out")
        for folder in folders:
            print_line(f"{folder}: written to {write_events(folder)}")
        return 0
    undelivered = 0
    for folder in folders:
        summary = sync(folder, uri=uri, timeout=timeout)
        undelivered += not summary.delivered
        how = "delivered to" if summary.delivered else "not delivered to"
        error = "" if summary.delivered else f": {summary.error}"
        text = f"{folder}: {how} {summary.uri}{error}"
        print_line(summary.model_dump_json() if as_json else text)
    return int(undelivered > 0)


@click.command("ui")
@click.option(
    "--root",
    type=LocalPath(path_type=Path),
    default=".",
    show_default=True,
    help="Folder that holds runs/ and mlruns.db.",
)
@click.option(
    "--port", type=click.IntRange(1, 65535), help="Port on 127.0.0.1. Default: a free one."
)
@click.option("--no-browser", is_flag=True, help="Print the address and open no browser.")
def ui_command(root: Path, port: int | None, no_browser: bool) -> int:
    """Show the runs of a folder in MLflow's web pages.

    A server runs on this machine until you press Ctrl-C. It prints a password, without which it
    shows nothing, also to other users of the machine. It opens at the newest experiment. For
    another one, first switch MLflow from "GenAI" to "Model training"; the browser remembers it.

    \b
    subquad ui
    subquad ui --port 5000 --no-browser
    """
    if find_spec("mlflow") is None:
        raise UserError("subquad ui needs MLflow: pip install 'subquad[mlflow]'")
    if not (root / DATABASE).exists():
        raise RunError(
            f"no {DATABASE} in {root.resolve()}: make a run there first (`subquad "
            "train RECIPE`) or give --root"
        )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with serving(root, port) as (address, password, server):
            page = newest_page(root, address, password)
            print_line(f"{page}  (user {USER}, password {password}; Ctrl-C stops it)")
            with leading_page(page) as leading:
                if not no_browser:
                    webbrowser.open(leading)
                code = server.wait()
    except KeyboardInterrupt:
        return 0
    raise SubquadError(f"the MLflow server ended by itself with exit code {code}")
