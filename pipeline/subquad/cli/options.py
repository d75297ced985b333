"""Options that several commands have."""

from __future__ import annotations

import click

LOCAL = click.option("--local", is_flag=True, help="Train without Ray, on this machine.")
ADDRESS = click.option(
    "--address",
    metavar="ADDRESS",
    help="Train on a Ray cluster that this machine is part of: auto, or HOST:PORT.  "
    "[default: $RAY_ADDRESS]",
)
JOBS = click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Runs at once.  [default: as many as fit]",
)
JSON = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object at the end, and nothing else."
)
