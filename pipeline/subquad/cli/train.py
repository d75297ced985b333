"""`subquad train` and `subquad resume`."""

from __future__ import annotations

from pathlib import Path

import click

from subquad.api import executor_of

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
    type=click.Path(file_okay=False, path_type=Path),
    default=".",
    help="Folder for runs/ and MLflow's files. Default: this one.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end, and nothing else.")
def train_command(
    target: str,
    overrides: tuple[str, ...],
    local: bool,
    address: str | None,
    dry_run: bool,
    root: Path,
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

    study = load_study(target, overrides)
    if dry_run:
        from subquad.cli.conduct import show_costs

        show_costs(study, as_json=as_json)
        return 0
    from subquad.cli.conduct import conduct, writable
    from subquad.drivers.folder import start

    executor = executor_of(local, address)
    executor.preflight(study)
    return conduct(start(study, writable(root)), executor, as_json=as_json)


@click.command("resume")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--local", is_flag=True, help="Train without Ray, on this machine.")
@ADDRESS
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end, and nothing else.")
def resume_command(run: Path, local: bool, address: str | None, as_json: bool) -> int:
    """Go on with RUN, the folder of a run or a study.

    It starts at the newest checkpoint, and the result is the same as without the stop. Runs of a study that are
    finished are not run again.

    \b
    subquad resume runs/quickstart/20260101-101500-ab12cd34
    """
    from subquad.cli.conduct import conduct
    from subquad.drivers.folder import reopen

    return conduct(reopen(run), executor_of(local, address), as_json=as_json)
