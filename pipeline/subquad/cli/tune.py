"""`subquad tune`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from subquad.cli.options import ADDRESS, JOBS, JSON, LOCAL
from subquad.completion import settings, spaces, targets


@click.command("tune")
@click.argument("target", shell_complete=targets)
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...", shell_complete=settings)
@click.option(
    "--space",
    metavar="NAME[+NAME]",
    shell_complete=spaces,
    help="What is searched: names of spaces (see: subquad list space), files, or auto.",
)
@click.option(
    "--sampler",
    metavar="NAME",
    help="What suggests points: random, grid, tpe or gp.  [default: random]",
)
@click.option("--pruner", metavar="NAME", help="What ends trials early: none, median or asha.")
@click.option(
    "--budget",
    metavar="AMOUNT",
    help="For each candidate: 20-trials, 2h, 1e15flops.  [default: 20-trials]",
)
@click.option(
    "--cost",
    metavar="NAME",
    help="Second objective of tpe and gp, less is better: seconds or flops.  [default: none]",
)
@click.option(
    "--points",
    multiple=True,
    metavar="POINTS",
    help="Points to try first: a YAML file with a list, or 'KEY=VALUE KEY=VALUE'. May "
    "be given several times.",
)
@LOCAL
@ADDRESS
@JOBS
@click.option(
    "--dry-run", is_flag=True, help="Show points and expected costs; train and write nothing."
)
@click.option(
    "--root",
    type=click.Path(file_okay=False),
    default=".",
    help="Folder for runs/ and MLflow. An address, s3://..., sets resources.storage.",
)
@JSON
@click.option("--debug", is_flag=True, hidden=True)
def tune_command(
    target: str,
    overrides: tuple[str, ...],
    local: bool,
    address: str | None,
    jobs: int | None,
    dry_run: bool,
    root: str,
    as_json: bool,
    debug: bool,
    **given: Any,
) -> int:
    """Search the settings of TARGET: an experiment or study file, or a recipe by name.

    Each trial trains with other settings and sees the validation split only. The best trial is then
    trained again with several seeds, and only then meets the test split. In a study, each run
    (seeds aside) is a candidate. All candidates get the same budget, and the same space as far as
    it fits them.

    KEY=VALUE changes a setting of TARGET, as in `train`, or one of the search: sampler.seed;
    trial.seeds, the runs of a trial, whose mean counts; trial.match=flops, which gives all trials
    equally many; final.seeds, of the runs of each winner; and the pruner's own, by Optuna's name,
    as in pruner.reduction_factor=4.

    The folder runs/NAME-search/STAMP has all trials, as folders and in trials.csv, and pictures.
    Its folder best/ has each winner as a file for `train`. `subquad report` shows a search, even
    while it runs, and `subquad resume` goes on with one that was stopped. --dry-run says what a
    search would cost.

    \b
    subquad tune quickstart --space agf+optimizer --dry-run
    subquad tune quickstart --space agf+optimizer --budget 20-trials --local
    subquad tune controls --space optimizer --pruner asha --budget 1e15flops trial.match=flops
    """
    from subquad.search.settings import Settings
    from subquad.session import Session
    from subquad.space import find_space

    overrides, options = search_options(
        overrides, {name: value for name, value in given.items() if value not in (None, ())}
    )
    if "space" not in options:
        raise click.UsageError("Missing option '--space', such as --space auto+optimizer")
    session = Session(root, local=local, address=address, jobs=jobs)
    study = session.load(target, overrides)
    search_settings = Settings(**options)
    find_space(search_settings.space, study.runs[0])
    from subquad.cli.search import start_search

    return start_search(session, study, search_settings, dry_run=dry_run, as_json=as_json)


def is_of_search(override: str) -> bool:
    """Whether a `KEY=VALUE` is a setting of the search, not of the experiment."""
    from subquad.search.settings import KEYS, PRUNER

    section, _, _ = override.partition(".")
    return section in (PRUNER, *[key.partition(".")[0] for key in KEYS])


def search_options(
    overrides: tuple[str, ...], given: dict[str, Any]
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Overrides of the experiment; the options, with points read, and the search's own settings
    beside them.
    """
    from subquad.experiment.sources import parse_overrides
    from subquad.search.settings import parse_points, parse_settings

    cwd = Path.cwd()
    own = [text for text in overrides if is_of_search(text)]
    others = [text for text in overrides if text not in own]
    if "points" in given:
        given["points"] = parse_points(given["points"], cwd)
    given |= parse_settings(parse_overrides(own, cwd))
    return tuple(others), given
