"""`subquad paper`: a paper's tables, what of them is there, and training what is missing."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from subquad.cli.train import ADDRESS, JOBS
from subquad.errors import ConfigError, Interrupted, UserError, and_more
from subquad.output.terminal import console_of, print_line, print_table
from subquad.paper.file import Paper, Sizes, known_papers, open_paper
from subquad.suggest import did_you_mean, to_paste

if TYPE_CHECKING:
    from subquad.experiment import Study
    from subquad.paper.runs import Wanted
    from subquad.paper.sheet import Sheet
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
        rows = [(name, open_paper(name)) for name in known_papers()]
        print_table(
            ("paper", "title", "tables"),
            [(name, read.title, ", ".join(read.tables)) for name, read in rows],
            cut="title",
        )
        return 0
    read = open_paper(paper)
    names = _chosen(read, tables)
    from subquad.paper.files import PUBLISHED
    from subquad.paper.runs import Wanted
    from subquad.session import Session

    folder = Path(root)
    if from_published:
        _write(read, paper, PUBLISHED, names, folder)
        return 0
    if only_print:
        _write(read, paper, size, names, folder)
        return 0
    if tables is None and not dry_run:
        _show_state(read, size, names, folder)
        return 0
    session = Session(root, local=local, address=address, jobs=jobs, trains=not dry_run)
    wanted = Wanted(read, size, names, session.load)
    again = to_paste(
        *("paper", paper, "--table", tables or _ALL, "--size", size, *session.executor.options)
    )
    failed = _train(wanted, session, again, dry_run=dry_run)
    if dry_run:
        return 0
    _write(read, paper, size, names, session.root, wanted)
    for name, reason in failed.items():
        print_line(f"{name}: {reason}", err=True)
    return int(bool(failed))


def _chosen(paper: Paper, tables: str | None) -> list[str]:
    """Tables by name, in the paper's order.

    Raises:
        ConfigError: it has no such table, or one is named twice.
    """
    if tables in (None, _ALL):
        return list(paper.tables)
    words = Counter(word.strip() for word in tables.split(","))
    for name, times in words.items():
        if name not in paper.tables:
            hint = did_you_mean(name, paper.tables) or f"; there is {', '.join(paper.tables)}"
            raise ConfigError(f"--table: paper {paper.name} has no table {name!r}{hint}")
        if times > 1:
            raise ConfigError(f"--table: {name} is named {times} times; name it once")
    return [name for name in paper.tables if name in words]


def _show_state(paper: Paper, size: str, names: list[str], root: Path) -> None:
    """Print what of each table is there, and why the rest is not."""
    from subquad.experiment import load_study
    from subquad.paper.grid import fill
    from subquad.paper.runs import Wanted, missing_runs, runs_on_disk
    from subquad.paper.sheet import STATES, notes_of, state_of

    wanted = Wanted(paper, size, names, load_study)
    there = runs_on_disk(root)
    rows = []
    for name, grid in fill(wanted, there).items():
        states = Counter(map(state_of, grid.entries.values()))
        notes = Counter(note for entry in grid.entries.values() for note in notes_of(entry))
        why = "; ".join(f"{note} ({count})" for note, count in notes.most_common(2))
        counts = [states[state] or "" for state in STATES]
        comparable = sum(entry.is_comparable for entry in grid.entries.values())
        more = and_more(len(notes) - 2)
        rows.append((name, len(grid.entries), *counts, comparable or "", f"{why}{more}"))
    print_table(("table", "cells", *STATES, "comparable", "why not"), rows, cut="why not")
    left = sum(map(len, missing_runs(wanted, there).values()))
    if left:
        again = to_paste("paper", paper.name, "--size", size, "--dry-run")
        print_line(f"{left} runs are missing, each counted once; what they cost: {again}")


def _train(wanted: Wanted, session: Session, again: str, *, dry_run: bool) -> dict[str, str]:
    """Say what the missing runs cost, and train them. Returns what could not be done, by study.

    Raises:
        Interrupted: a signal stopped it.
    """
    from subquad.experiment.folder import reopen
    from subquad.paper.runs import begun_with, estimate, missing_runs, part_of, runs_on_disk
    from subquad.preparation.costs import StudyCosts

    there = runs_on_disk(session.root)
    missing = missing_runs(wanted, there)
    resources = [run.experiment.resources for runs in missing.values() for run in runs]
    if not resources:
        print_line("nothing is missing")
        return {}
    costs = session.executor.there(StudyCosts, resources[0])
    print_line(estimate([run for runs in missing.values() for run in runs], there, costs))
    failed: dict[str, str] = {}
    for name in () if dry_run else missing:
        study = wanted.studies[name]
        try:
            for folder in begun_with(missing[name], there, study.name):
                failed |= _drive(reopen(folder), session, again)
            runs = missing_runs(wanted, runs_on_disk(session.root)).get(name, [])
            new = [run for run in runs if run.digest not in there]
            if new:
                failed |= _drive(session.begin(part_of(study, new)), session, again)
        except UserError as error:
            failed[name] = str(error)
    return failed


def _drive(study: Study, session: Session, again: str) -> dict[str, str]:
    from subquad.cli.study import make_report
    from subquad.execution.drive import drive
    from subquad.output.progress import Display

    console = console_of()
    print_line(f"{len(study.pending)} runs in {study.folder}, {session.executor.words}")
    report = partial(make_report, [], console)
    outcome = drive(study, Display(console), session.executor, report)
    if outcome.signum and outcome.unfinished:
        raise Interrupted(outcome.signum, f"stopped; go on with: {again}")
    return dict(outcome.failed)


def _write(
    paper: Paper, target: str, size: str, names: list[str], root: Path, wanted: Wanted | None = None
) -> None:
    """Write tables, with those that are in their folder already, and print them."""
    from subquad.paper.files import (
        PUBLISHED,
        contents,
        folder_of,
        grids_of,
        listed_in,
        write_tables,
    )
    from subquad.paper.sheet import sheet_of

    folder = folder_of(paper, size, root)
    before = listed_in(folder)
    tables = list(names)
    if before and before.sha256 == paper.sha256:
        tables = [name for name in paper.tables if name in names or name in before.tables]
    if tables != names:
        wanted = None
    grids = grids_of(paper, size, tables, root.absolute(), wanted)
    write_tables(folder, contents(paper, target, size, grids, root.absolute()))
    for name in names:
        _print_sheet(sheet_of(grids[name], only_published=size == PUBLISHED))
    print_line(f"files   {folder}")


def _print_sheet(sheet: Sheet) -> None:
    """The table on the terminal: `*` is the best, `_` the second."""
    signs = {"best": "*", "second": "_"}
    print_line(f"\n{sheet.name}  {sheet.title}")
    rows = []
    for name, is_printed, cells in sheet.lines:
        texts = [f"{cell.text}{signs.get(cell.mark, '')} {cell.letters}".strip() for cell in cells]
        rows.append((f"{name} †" if is_printed else name, *texts))
    if rows:
        print_table(("", *sheet.columns), rows)
    print_line("* best, _ second; †: as printed")
    for text in (*sheet.sentences, *(f"{letter} {text}" for letter, text in sheet.notes.items())):
        print_line(text)
