"""`subquad train` and `subquad resume`."""

from __future__ import annotations

from pathlib import Path

import click

from subquad.api import among_ranks, executor_of
from subquad.cli.completion import run_folders, settings, targets
from subquad.record.names import SEARCH
from subquad.terminal import LocalPath

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


@click.command("train")
@click.argument("target", shell_complete=targets)
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...", shell_complete=settings)
@click.option("--local", is_flag=True, help="Train without Ray, on this machine.")
@ADDRESS
@JOBS
@click.option(
    "--dry-run",
    is_flag=True,
    help="Show the whole experiment and what it would cost. Train nothing.",
)
@click.option(
    "--root",
    type=click.Path(file_okay=False),
    default=".",
    help="Folder for runs/ and MLflow's files. Default: this one. An address, s3://..., "
    "sets resources.storage.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object at the end, and nothing else."
)
def train_command(
    target: str,
    overrides: tuple[str, ...],
    local: bool,
    address: str | None,
    jobs: int | None,
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
    from subquad.record.stores import root_of

    folder, storage = root_of(root)
    given = (*overrides, *storage)
    executor = None
    if among_ranks() and not dry_run:  # of which the first one alone says what is wrong
        executor = executor_of(local, address, jobs)
        given = executor.placed(given)
    # names and settings are looked at before torch is imported
    study = load_study(target, given)
    if dry_run:
        from subquad.cli.study import show_costs

        show_costs(study, as_json=as_json)
        return 0
    from subquad.cli.folders import writable
    from subquad.cli.study import run_study
    from subquad.drivers.folder import start
    from subquad.drivers.size import sized_there

    executor = executor or executor_of(local, address, jobs)
    executor.preflight(study)
    study = sized_there(study, executor)
    return run_study(start(study, writable(folder)), executor, as_json=as_json)


@click.command("resume")
@click.argument("run", shell_complete=run_folders)
@click.option("--local", is_flag=True, help="Train without Ray, on this machine.")
@ADDRESS
@JOBS
@click.option(
    "--budget",
    metavar="AMOUNT",
    help="Extend a search: 40-trials, 4h, 2e15flops.  [default: what it has]",
)
@click.option(
    "--root",
    type=LocalPath(file_okay=False),
    default=".",
    help="Where a run in storage is fetched to.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object at the end, and nothing else."
)
def resume_command(
    run: str,
    local: bool,
    address: str | None,
    jobs: int | None,
    budget: str | None,
    root: str,
    as_json: bool,
) -> int:
    """Go on with RUN, the folder of a run, a study or a search, or its address in storage.

    It starts at the newest checkpoint, and the result is the same as without the stop. Runs of a
    study and trials of a search that are finished are not run again.

    \b
    subquad resume runs/quickstart/20260101-101500-ab12cd34
    subquad resume runs/quickstart-search/20260101-101500-ab12cd34 --budget 40-trials
    subquad resume s3://bucket/lab/runs/quickstart/20260101-101500-ab12cd34
    """
    from subquad.cli.folders import found
    from subquad.drivers.folder import reopen

    executor = executor_of(local, address, jobs) if among_ranks() else None
    folder = found(run, Path(root))
    if (folder / SEARCH).exists():
        from subquad.cli.search import resume_search

        executor = executor or executor_of(local, address, jobs)
        return resume_search(folder, budget, executor, as_json=as_json)
    if budget is not None:
        raise click.UsageError(f"--budget: {run} is no search, which alone has one")
    study = reopen(folder)
    from subquad.cli.study import run_study

    executor = executor or executor_of(local, address, jobs)
    return run_study(study, executor, as_json=as_json)
