"""`subquad train`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("train")
@click.argument("target")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--local", is_flag=True, help="Train without Ray: in this process, or on local processes.")
@click.option("--dry-run", is_flag=True, help="Show the resolved experiment and its costs; train nothing.")
@click.option(
    "--root", type=click.Path(file_okay=False, path_type=Path), default=".", help="Folder for runs/ and MLflow."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end, nothing else.")
@click.option("--debug", is_flag=True, hidden=True)
def train_command(
    target: str,
    overrides: tuple[str, ...],
    local: bool,
    dry_run: bool,
    root: Path,
    as_json: bool,
    debug: bool,
) -> int:
    """Train TARGET: an experiment file, or a recipe by name (see `subquad list recipe`).

    KEY=VALUE overrides a setting by its dotted path, such as train.lr=3e-4 or mixer=softmax.

    \b
    subquad train quickstart
    subquad train experiment.yaml mixer.params.order=5 train.seed=1
    subquad train lra-agf-smoke
    """
    from subquad.experiment import load

    study = load(target, overrides)
    if dry_run:
        from subquad.cli.dry_run import show_costs

        show_costs(study, as_json=as_json)
        return 0
    from subquad.cli.conduct import conduct, writable
    from subquad.drivers.folder import start
    from subquad.drivers.preflight import preflight

    preflight(study, local=local)
    return conduct(start(study, writable(root)), local=local, as_json=as_json)
