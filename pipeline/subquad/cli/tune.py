"""`subquad tune`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from subquad.api import executor_of


@click.command("tune")
@click.argument("target", required=False)
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option(
    "--space", metavar="NAME[+NAME]", help="What is searched: spaces by name (see: subquad list space), files, or auto."
)
@click.option("--sampler", metavar="NAME", help="What suggests points: random, grid, tpe or gp.  [default: random]")
@click.option("--pruner", metavar="NAME", help="What ends trials early: none, median, asha or hyperband.")
@click.option("--budget", metavar="AMOUNT", help="Of each candidate: 20-trials, 2h, 1e15flops.  [default: 20-trials]")
@click.option(
    "--match",
    metavar="NAME",
    help="Give all trials of all candidates the same: flops, params or time.  [default: none]",
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
@click.option("--warm-start", metavar="RUN", help="Tell the sampler the trials of another search with the same space.")
@click.option(
    "--final-seeds",
    type=int,
    help="Number of seeds that each winner is trained with anew, before it is tested.  [default: 5]",
)
@click.option("--seed", type=int, help="Of the search; trials have the experiment's own.  [default: 0]")
@click.option(
    "--local",
    is_flag=True,
    help="One trial after the other in this process, without Ray; else as many at once as there is room for.",
)
@click.option("--dry-run", is_flag=True, help="Show points and expected costs; train and write nothing.")
@click.option(
    "--resume",
    metavar="RUN",
    type=click.Path(path_type=Path),
    help="Go on with a search that was stopped or killed, by its folder; with a larger --budget, extend it.",
)
@click.option("--retry-failed", is_flag=True, help="With --resume: train trials that failed once more.")
@click.option(
    "--export", metavar="RUN", type=click.Path(path_type=Path), help="Print all trials of a search as CSV, and exit."
)
@click.option(
    "--root", type=click.Path(file_okay=False, path_type=Path), default=".", help="Folder for runs/ and MLflow."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end, nothing else.")
@click.option("--debug", is_flag=True, hidden=True)
def tune_command(
    target: str | None,
    overrides: tuple[str, ...],
    local: bool,
    dry_run: bool,
    resume: Path | None,
    retry_failed: bool,
    export: Path | None,
    root: Path,
    as_json: bool,
    debug: bool,
    **given: Any,
) -> int:
    """Search the settings of TARGET: an experiment or study file, or a recipe by name.

    Each trial trains with other settings and sees the validation split only. The best trial is then trained anew
    with several seeds, and only then meets the test split. Of a study every cell, seeds aside, is a candidate: all get
    the same budget and the same space, as far as it suits them.

    KEY=VALUE overrides a setting of TARGET, as in `train`, or of the sampler or pruner, as in
    pruner.reduction_factor=4: their names are Optuna's.

    The folder runs/NAME-search/STAMP has all trials, pictures and, in best/, each winner as a file for `train`;
    `subquad report` shows it, also while it grows. --dry-run tells first what a search would cost.

    \b
    subquad tune quickstart --space agf+optimizer --dry-run
    subquad tune quickstart --space agf+optimizer --budget 20-trials --local
    subquad tune methods-copy --space optimizer --sampler tpe --pruner asha --match flops
    subquad tune --resume runs/quickstart-search/20261121-101500-ab12cd34 --budget 40-trials
    subquad tune --export runs/quickstart-search/20261121-101500-ab12cd34 > trials.csv
    """
    if export is not None:
        return _export(export)
    if resume is not None and target is not None and "=" in target:
        target, overrides = None, (target, *overrides)  # a search knows its target, so none was given
    overrides, own = _own_settings(overrides)
    options = {name: value for name, value in given.items() if value not in (None, ())} | own
    if "points" in options:
        from subquad.search.settings import parse_points

        options["points"] = parse_points(options["points"], Path.cwd())
    if resume is not None:
        if dry_run:
            raise click.UsageError("--dry-run has no effect with --resume")
        more = {"retry": retry_failed, "local": local, "as_json": as_json}
        return _resume(resume, target, overrides, options, **more)
    if retry_failed:
        raise click.UsageError("--retry-failed needs --resume RUN")
    return _start(target, overrides, options, root, dry_run=dry_run, local=local, as_json=as_json)


def _export(folder: Path) -> int:
    from subquad.search.search import read_search
    from subquad.search.summary import trials_csv

    search = read_search(folder)
    click.echo(trials_csv(search, search.trials(folder)), nl=False)
    return 0


def _own_settings(overrides: tuple[str, ...]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Overrides of the experiment, and settings of the sampler and the pruner among them."""
    from subquad.experiment.sources import parse_overrides

    found: dict[str, Any] = {}
    rest: list[str] = []
    for text in overrides:
        if not text.startswith(("sampler.", "pruner.")):
            rest.append(text)
            continue
        (setting,) = parse_overrides([text], Path.cwd())
        role, name = str(setting.path[0]), ".".join(map(str, setting.path[1:]))
        found.setdefault(f"{role}_settings", {})[name] = setting.value
    return tuple(rest), found


def _start(
    target: str | None,
    overrides: tuple[str, ...],
    options: dict[str, Any],
    root: Path,
    *,
    dry_run: bool,
    local: bool,
    as_json: bool,
) -> int:
    if target is None:
        raise click.UsageError("Missing argument 'TARGET', or --resume RUN")
    if "space" not in options:
        raise click.UsageError("Missing option '--space', such as --space auto+optimizer")
    from subquad.experiment import load_study
    from subquad.search.prepare import prepare
    from subquad.search.search import plan_search, write_search
    from subquad.search.settings import Settings

    settings = Settings(**options)
    prepared = prepare(plan_search(load_study(target, overrides), settings), executor_of(local=local), measure=dry_run)
    if dry_run:
        from subquad.cli.tune_text import show_estimate
        from subquad.search.prepare import estimate

        show_estimate(estimate(prepared), as_json=as_json)
        return 0
    from subquad.cli.conduct import writable
    from subquad.cli.tune_text import conduct_search

    folder = write_search(prepared.search, writable(root))
    return conduct_search(prepared, folder, executor_of(local=local), as_json=as_json)


def _resume(
    folder: Path,
    target: str | None,
    overrides: tuple[str, ...],
    options: dict[str, Any],
    *,
    retry: bool,
    local: bool,
    as_json: bool,
) -> int:
    if overrides and target is None:
        raise click.UsageError(
            f"{overrides[0]} has no effect with --resume, which goes on with what the search was started with"
        )
    from subquad.cli.tune_text import conduct_search
    from subquad.search.prepare import prepare
    from subquad.search.resume import reopened, same_settings, same_target
    from subquad.search.search import read_search

    folder = folder.resolve()
    search = read_search(folder)
    budget = options.pop("budget", None)
    same_settings(search.settings, options)
    if target is not None:
        same_target(search, target, overrides)
    search = reopened(folder, search, budget=budget, retry_failed=retry)
    return conduct_search(
        prepare(search, executor_of(local=local), fresh=False), folder, executor_of(local=local), as_json=as_json
    )
