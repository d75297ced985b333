"""`subquad train` and `subquad resume`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from subquad.cli.options import ADDRESS, JOBS, JSON, LOCAL
from subquad.completion import run_folders, settings, targets
from subquad.output.terminal import LocalPath
from subquad.record.names import SEARCH


@click.command("train")
@click.argument("target", shell_complete=targets)
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...", shell_complete=settings)
@LOCAL
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
@JSON
def train_command(
    target: str, overrides: tuple[str, ...], dry_run: bool, as_json: bool, **where: Any
) -> int:
    """Train TARGET: an experiment file, a recipe by name (see `subquad list recipes`), or
    `./study.py:NAME`, a function that returns experiments.

    KEY=VALUE changes a setting by its dotted path. Results go to a new folder below runs/.

    \b
    subquad train quickstart
    subquad train quickstart --dry-run
    subquad train experiment.yaml train.lr=3e-4 train.seed=1
    """
    from subquad.session import Session

    session = Session(**where, trains=not dry_run)
    study = session.load(target, overrides)
    from subquad.cli.study import run_study, show_costs

    if dry_run:
        show_costs(study, as_json=as_json)
        return 0
    return run_study(session.begin(study), session.executor, as_json=as_json)


@click.command("resume")
@click.argument("run", shell_complete=run_folders)
@LOCAL
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
@JSON
def resume_command(run: str, budget: str | None, root: str, as_json: bool, **where: Any) -> int:
    """Go on with RUN, the folder of a run, a study or a search, or its address in storage.

    It starts at the newest checkpoint, and the result is the same as without the stop. Runs of a
    study and trials of a search that are finished are not run again.

    \b
    subquad resume runs/quickstart/20260101-101500-ab12cd34
    subquad resume runs/quickstart-search/20260101-101500-ab12cd34 --budget 40-trials
    subquad resume s3://bucket/lab/runs/quickstart/20260101-101500-ab12cd34
    """
    from subquad.cli.folders import found
    from subquad.experiment.folder import reopen
    from subquad.session import Session

    session = Session(root, **where)
    folder = found(run, Path(root))
    if (folder / SEARCH).exists():
        from subquad.cli.search import resume_search

        return resume_search(folder, budget, session.executor, as_json=as_json)
    if budget is not None:
        raise click.UsageError(f"--budget: {run} is no search, which alone has one")
    study = reopen(folder)
    from subquad.cli.study import run_study

    return run_study(study, session.executor, as_json=as_json)
