"""`subquad train` and `subquad resume`."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import click

from subquad.api import executor_of
from subquad.cli.tables import LocalPath
from subquad.reach import Reach

ADDRESS = click.option(
    "--address",
    metavar="ADDRESS",
    help="Train on a Ray cluster that this machine is part of: auto, or HOST:PORT.  [default: $RAY_ADDRESS]",
)


@click.command("train")
@click.argument("target")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--local", is_flag=True, help="Train without Ray, on this machine.")
@ADDRESS
@click.option("--dry-run", is_flag=True, help="Show the whole experiment and what it would cost. Train nothing.")
@click.option(
    "--root",
    type=click.Path(file_okay=False),
    default=".",
    help="Folder for runs/ and MLflow's files. Default: this one. An address, s3://..., sets resources.storage.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end, and nothing else.")
@Reach(
    reads="TARGET, its data and weights",
    runs="plugin files that TARGET names; with --dry-run nothing",
    writes="a new folder in --root, prepared data",
    sends="metrics to addresses that you gave; files to storage in TARGET; requests for data",
)
def train_command(
    target: str,
    overrides: tuple[str, ...],
    local: bool,
    address: str | None,
    dry_run: bool,
    root: str,
    as_json: bool,
) -> int:
    """Train TARGET: an experiment file, or a recipe by name (see `subquad list recipes`).

    KEY=VALUE changes a setting by its dotted path. Results go to a new folder below runs/.

    \b
    subquad train quickstart
    subquad train quickstart --dry-run
    subquad train experiment.yaml train.lr=3e-4 train.seed=1
    """
    from subquad.experiment import load_study
    from subquad.storage import root_of
    from subquad.trust import training

    folder, storage = root_of(root)
    with nullcontext() if dry_run else training():
        study = load_study(target, (*overrides, *storage))
    if dry_run:
        from subquad.cli.conduct import show_costs

        show_costs(study, as_json=as_json)
        return 0
    from subquad.cli.conduct import conduct, writable
    from subquad.drivers.folder import start
    from subquad.search.size import sized_there

    executor = executor_of(local, address)
    executor.preflight(study)
    study = sized_there(study, executor)
    return conduct(start(study, writable(folder)), executor, as_json=as_json)


@click.command("resume")
@click.argument("run")
@click.option("--local", is_flag=True, help="Train without Ray, on this machine.")
@ADDRESS
@click.option("--root", type=LocalPath(file_okay=False), default=".", help="Where a run in storage is fetched to.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end, and nothing else.")
@Reach(
    reads="RUN, its data",
    writes="RUN, the copy in --root of a RUN in storage, prepared data",
    sends="metrics to addresses that you gave; files to storage that you gave; requests for data",
)
def resume_command(run: str, local: bool, address: str | None, root: str, as_json: bool) -> int:
    """Go on with RUN, the folder of a run or a study, or its address in storage.

    It starts at the newest checkpoint, and the result is the same as without the stop. Runs of a study that are
    finished are not run again.

    \b
    subquad resume runs/quickstart/20260101-101500-ab12cd34
    subquad resume s3://bucket/lab/runs/quickstart/20260101-101500-ab12cd34
    """
    from subquad.cli.conduct import conduct, found
    from subquad.drivers.folder import reopen

    return conduct(reopen(found(run, Path(root))), executor_of(local, address), as_json=as_json)
