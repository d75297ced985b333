"""`subquad tune`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from subquad.api import executor_of
from subquad.cli.tables import LocalPath
from subquad.cli.train import ADDRESS
from subquad.reach import Reach


@click.command("tune")
@click.argument("target", required=False)
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option(
    "--space",
    metavar="NAME[+NAME]",
    help="What is searched: names of spaces (see: subquad list space), files, or auto.",
)
@click.option("--sampler", metavar="NAME", help="What suggests points: random, grid, tpe or gp.  [default: random]")
@click.option("--pruner", metavar="NAME", help="What ends trials early: none, median or asha.")
@click.option("--budget", metavar="AMOUNT", help="For each candidate: 20-trials, 2h, 1e15flops.  [default: 20-trials]")
@click.option(
    "--match",
    metavar="NAME",
    help="Make all trials of all candidates equal in: flops.  [default: none]",
)
@click.option(
    "--cost",
    metavar="NAME",
    help="Second objective of tpe and gp, less is better: seconds or flops.  [default: none]",
)
@click.option("--seeds-per-trial", type=int, metavar="N", help="Runs of each trial; their mean counts.  [default: 1]")
@click.option(
    "--points",
    multiple=True,
    metavar="POINTS",
    help="Points to try first: a YAML file with a list, or 'KEY=VALUE KEY=VALUE'. May be given several times.",
)
@click.option(
    "--final-seeds",
    type=int,
    help="Number of seeds that each winner is trained with again, before its test.  [default: 5]",
)
@click.option("--seed", type=int, help="Seed of the search. Trials have the experiment's own.  [default: 0]")
@click.option(
    "--local",
    is_flag=True,
    help="Run one trial after the other in this process, without Ray. Default: as many at once as fit.",
)
@ADDRESS
@click.option("--dry-run", is_flag=True, help="Show points and expected costs; train and write nothing.")
@click.option(
    "--resume",
    metavar="RUN",
    help="Go on with a search, by its folder or its address in storage. A larger --budget extends it.",
)
@click.option(
    "--export", metavar="RUN", type=LocalPath(path_type=Path), help="Print all trials of a search as CSV, and exit."
)
@click.option(
    "--root",
    type=click.Path(file_okay=False),
    default=".",
    help="Folder for runs/ and MLflow. An address, s3://..., sets resources.storage.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end, nothing else.")
@click.option("--debug", is_flag=True, hidden=True)
@Reach(
    reads="TARGET, its data and weights, --space, --points, --resume, --export",
    runs="plugin files that TARGET names; with --dry-run nothing",
    writes="a new folder in --root, --resume, prepared data",
    sends="metrics to addresses that you gave; files to storage in TARGET; requests for data",
)
def tune_command(
    target: str | None,
    overrides: tuple[str, ...],
    local: bool,
    address: str | None,
    dry_run: bool,
    resume: str | None,
    export: Path | None,
    root: str,
    as_json: bool,
    debug: bool,
    **given: Any,
) -> int:
    """Search the settings of TARGET: an experiment or study file, or a recipe by name.

    Each trial trains with other settings and sees the validation split only. The best trial is then trained again
    with several seeds, and only then meets the test split. In a study, each run (seeds aside) is a candidate. All
    candidates get the same budget, and the same space as far as it fits them.

    KEY=VALUE changes a setting of TARGET, as in `train`, or a setting of the pruner by Optuna's name, as in
    pruner.reduction_factor=4.

    The folder runs/NAME-search/STAMP has all trials and pictures. Its folder best/ has each winner as a file for
    `train`. `subquad report` shows a search, even while it runs. --dry-run says what a search would cost.

    \b
    subquad tune quickstart --space agf+optimizer --dry-run
    subquad tune quickstart --space agf+optimizer --budget 20-trials --local
    subquad tune controls --space optimizer --pruner asha --match flops --budget 1e15flops
    subquad tune --resume runs/quickstart-search/20261121-101500-ab12cd34 --budget 40-trials
    subquad tune --export runs/quickstart-search/20261121-101500-ab12cd34 > trials.csv
    """
    from subquad.cli.conduct import found
    from subquad.cli.tune_text import export_trials, resume_search, start_search
    from subquad.storage import root_of

    if export is not None:
        return export_trials(export)
    if resume is not None and target is not None and "=" in target:
        target, overrides = None, (target, *overrides)  # a search knows its target, so none was given
    overrides, options = search_options(overrides, {name: one for name, one in given.items() if one not in (None, ())})
    executor, (folder, storage) = executor_of(local, address), root_of(root)
    if resume is None:
        return start_search(target, (*overrides, *storage), options, executor, folder, dry_run=dry_run, as_json=as_json)
    if dry_run:
        raise click.UsageError("--dry-run has no effect with --resume")
    return resume_search(found(resume, folder), target, overrides, options, executor, as_json=as_json)


def is_of_pruner(override: str) -> bool:
    """Whether a `KEY=VALUE` is a setting of the pruner, not of the experiment."""
    return override.startswith("pruner.")


def search_options(overrides: tuple[str, ...], given: dict[str, Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Overrides of the experiment; the options, with points read, and settings of the pruner as one more."""
    from subquad.experiment.sources import parse_overrides
    from subquad.search.settings import parse_points

    own = [text for text in overrides if is_of_pruner(text)]
    if "points" in given:
        given["points"] = parse_points(given["points"], Path.cwd())
    for text in own:
        (setting,) = parse_overrides([text], Path.cwd())
        _, *name = map(str, setting.path)
        given.setdefault("pruner_settings", {})[".".join(name)] = setting.value
    return tuple(text for text in overrides if text not in own), given
