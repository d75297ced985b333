"""`subquad paper`: a paper's tables, what of them is there, and training what is missing."""

from __future__ import annotations

import itertools
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from subquad.cli.folders import short
from subquad.cli.train import ADDRESS, JOBS
from subquad.errors import ConfigError, Interrupted, UserError, and_more
from subquad.output.terminal import console_of, print_line, print_table, quantity
from subquad.paper.file import Paper, Sizes, open_paper, refuse_unknown
from subquad.registry import recipes
from subquad.suggest import to_paste

if TYPE_CHECKING:
    from subquad.experiment import Study
    from subquad.reports import ReportDocument
    from subquad.session import Session

_SIZES = tuple(Sizes.model_fields)
_ALL = "all"


@click.command("paper")
@click.argument("paper", required=False)
@click.option("--table", "tables", metavar="NAMES", help="Train what these lack: 1,2 or all.")
@click.option("--size", type=click.Choice(_SIZES), default=_SIZES[0], show_default=True)
@click.option("--only-print", is_flag=True, help="Write the tables from what exists.")
@click.option("--from-published", is_flag=True, help="Write the printed numbers alone, tested.")
@click.option("--dry-run", is_flag=True, help="Count what is missing. Train nothing.")
@click.option("--local", is_flag=True, help="Train without Ray, on this machine.")
@ADDRESS
@JOBS
@click.option(
    "--root",
    type=click.Path(file_okay=False),
    default=".",
    help="Folder for runs/ and papers/. Default: this one.",
)
def paper_command(
    paper: str | None,
    tables: str | None,
    size: str,
    only_print: bool,
    from_published: bool,
    dry_run: bool,
    local: bool,
    address: str | None,
    jobs: int | None,
    root: str,
) -> int:
    """The tables of PAPER: a name, or a file such as ./mine.yaml. Without one, which there are.

    With PAPER alone it says what of each table is there. With --table it trains what is missing,
    once for all tables, and writes them to papers/. The same command goes on after a stop.

    \b
    subquad paper agf
    subquad paper agf --table 1,13 --size smoke
    subquad paper agf --from-published
    """
    if paper is None:
        _list_papers()
        return 0
    read = open_paper(paper)
    names = _chosen(read, tables)
    from subquad.paper.files import PUBLISHED, write_tables
    from subquad.session import Session

    failed: dict[str, str] = {}
    home = Path(root).absolute()
    if from_published:
        size = PUBLISHED
    elif not only_print:
        if tables is None and not dry_run:
            _show_state(read, size, names, home)
            return 0
        session = Session(root, local=local, address=address, jobs=jobs, trains=not dry_run)
        words = ("paper", paper, "--table", tables or _ALL, "--size", size)
        failed = _train(read, size, names, session, to_paste(*words), dry_run=dry_run)
        if dry_run:
            return 0
    folder, documents = write_tables(read, paper, size, names, home)
    _print_tables(documents)
    print_line(f"files   {short(folder)}")
    for name, reason in failed.items():
        print_line(f"{name}: {reason}", err=True)
    return int(bool(failed))


def _list_papers() -> None:
    papers = [open_paper(name) for name in recipes(below="papers")]
    rows = [(paper.name, paper.said.title, ", ".join(paper.tables)) for paper in papers]
    print_table(("paper", "title", "tables"), rows, cut="title")


def _print_tables(documents: list[ReportDocument]) -> None:
    from subquad.reports import print_document

    for document in documents:
        print_line(document.title)
        print_document(document, console_of())


def _chosen(paper: Paper, tables: str | None) -> list[str]:
    """Tables by name, in the paper's order.

    Raises:
        ConfigError: it has no such table, or one is named twice.
    """
    if tables in (None, _ALL):
        return list(paper.tables)
    words = [word.strip() for word in tables.split(",")]
    for name in words:
        refuse_unknown(name, paper.tables, "table")
        if words.count(name) > 1:
            raise ConfigError(f"--table: {name} is named twice; name it once")
    return [name for name in paper.tables if name in words]


def _show_state(paper: Paper, size: str, names: list[str], root: Path) -> None:
    """Print what of each table is there, and why the rest is not."""
    from subquad.experiment import load_study
    from subquad.paper.grid import STATES, fill
    from subquad.paper.runs import Wanted, missing_runs, runs_on_disk

    wanted = Wanted(paper, size, names, load_study)
    there = runs_on_disk(root)
    rows = []
    for name, grid in fill(paper, names, wanted, there).items():
        entries = grid.shown.values()
        states = Counter(entry.state for entry in entries)
        notes = Counter(note for entry in entries for note in entry.notes)
        why = "; ".join(f"{count} {note}" for note, count in notes.most_common(2))
        why += and_more(len(notes) - 2)
        counts = [*map(states.get, STATES), sum(entry.is_comparable for entry in entries)]
        rows.append(
            (name, len(entries), *[count or "" for count in counts], why or grid.table.command)
        )
    print_table(("table", "cells", *STATES, "comparable", "why not"), rows, cut="why not")
    left = sum(map(len, missing_runs(wanted, there).values()))
    words = to_paste("paper", paper.name, "--size", size, "--dry-run")
    print_line(f"{quantity(left, 'run')} to train, each experiment once; the cost: {words}")


def _train(
    paper: Paper, size: str, names: list[str], session: Session, again: str, *, dry_run: bool
) -> dict[str, str]:
    """Say what the missing runs cost, and train them. Returns what could not be done, by study.

    Raises:
        Interrupted: a signal stopped it.
    """
    from subquad.experiment.folder import reopen
    from subquad.paper.runs import Wanted, begun, cost_words, missing_runs, part_of, runs_on_disk
    from subquad.preparation.costs import StudyCosts

    wanted = Wanted(paper, size, names, session.load)
    there = runs_on_disk(session.root)
    missing = missing_runs(wanted, there)
    runs = list(itertools.chain.from_iterable(missing.values()))
    if not runs:
        print_line("nothing is missing")
        return {}
    costs = session.executor.there(StudyCosts, runs[0].experiment.resources)
    print_line(cost_words(runs, there, costs))
    failed: dict[str, str] = {}
    for name in () if dry_run else missing:
        study = wanted.studies[name]
        try:
            for folder in begun(missing[name], there, study.name):
                failed |= _drive(reopen(folder), session, again)
            new = [run for run in missing[name] if run.digest not in runs_on_disk(session.root)]
            if new:
                failed |= _drive(session.begin(part_of(study, new)), session, again)
        except UserError as error:
            failed[name] = str(error)
    return failed


def _drive(study: Study, session: Session, again: str) -> dict[str, str]:
    """Train a study; returns the runs that failed."""
    from subquad.cli.study import make_report
    from subquad.execution.drive import drive
    from subquad.output.progress import Display

    console = console_of()
    print_line(f"{quantity(len(study.pending), 'run')} in {short(study.folder)}")
    outcome = drive(study, Display(console), session.executor, partial(make_report, [], console))
    if outcome.signum and outcome.unfinished:
        options = to_paste(*session.executor.options).removeprefix("subquad")
        raise Interrupted(outcome.signum, f"stopped; go on with: {again}{options}")
    return dict(outcome.failed)
