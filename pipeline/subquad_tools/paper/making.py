"""What of a paper's tables is there, and making what is missing."""

from __future__ import annotations

import itertools
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from subquad.cli.folders import short
from subquad.cli.study import make_report
from subquad.errors import ConfigError, Interrupted, UserError, and_more
from subquad.execution.drive import drive
from subquad.experiment import Study, load_study
from subquad.experiment.folder import reopen
from subquad.output.progress import Display
from subquad.output.terminal import console_of, print_line, print_table, quantity
from subquad.preparation.costs import StudyCosts
from subquad.registry import recipes
from subquad.reports import print_document
from subquad.session import Session
from subquad.suggest import to_paste
from subquad_tools.paper import Size
from subquad_tools.paper.file import Paper, open_paper, refuse_unknown
from subquad_tools.paper.files import measurements_in, tables_folder, write_tables
from subquad_tools.paper.grid import STATES, fill
from subquad_tools.paper.runs import (
    Wanted,
    begun,
    cost_words,
    missing_runs,
    part_of,
    runs_on_disk,
)

_ALL = "all"


def list_papers() -> None:
    """Print which there are."""
    rows = [
        (paper.name, paper.said.title, ", ".join(paper.tables))
        for paper in map(open_paper, recipes(below="papers"))
    ]
    print_table(("paper", "title", "tables"), rows, cut="title")


def show_state(target: str, size: Size, root: str) -> None:
    """Print what of each table is there, and why the rest is not."""
    paper = open_paper(target)
    wanted = Wanted(paper, size, paper.tables, load_study)
    home = Path(root).absolute()
    there = runs_on_disk(home)
    measured = measurements_in(tables_folder(paper, size, home), there)
    rows = []
    for name, grid in fill(paper, paper.tables, wanted, there, measured).items():
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
    left = quantity(sum(map(len, missing_runs(wanted, there).values())), "run")
    print_line(
        f"{left} to train, each experiment once; the cost: "
        + to_paste("paper", target, "--size", size, "--dry-run")
    )


def write_and_print(target: str, tables: str | None, size: str, root: str) -> None:
    """Write tables from what exists, and print them.

    Args:
        tables: their names, as `--table` has them; None: all.
        size: of the runs, or `PUBLISHED`.
    """
    paper = open_paper(target)
    folder, documents = write_tables(
        paper, target, size, _chosen(paper, tables), Path(root).absolute()
    )
    for document in documents:
        print_line(document.title)
        print_document(document, console_of())
    print_line(f"files   {short(folder)}")


def make_missing(
    target: str, tables: str | None, size: Size, where: dict[str, Any], *, dry_run: bool
) -> dict[str, str]:
    """Say what missing runs cost, train them, and measure what is measured of them. Returns what
    could not be done, by name.

    Args:
        where: see `Session`.

    Raises:
        Interrupted: a signal stopped it.
    """
    paper = open_paper(target)
    session = Session(**where, trains=not dry_run)
    wanted = Wanted(paper, size, _chosen(paper, tables), session.load)
    there = runs_on_disk(session.root)
    missing = missing_runs(wanted, there)
    runs = list(itertools.chain.from_iterable(missing.values()))
    failed: dict[str, str] = {}
    if not runs:
        print_line("no run is missing")
    else:
        costs = session.executor.there(StudyCosts, runs[0].experiment.resources)
        print_line(cost_words(runs, there, costs))
    if dry_run:
        return {}
    again = to_paste("paper", target, "--table", tables or _ALL, "--size", size)
    for name in missing:
        study = wanted.studies[name]
        try:
            for folder in begun(missing[name], there, study.name):
                failed |= _drive(reopen(folder), session, again)
            begun_now = runs_on_disk(session.root)
            if new := [run for run in missing[name] if run.digest not in begun_now]:
                failed |= _drive(session.begin(part_of(study, new)), session, again)
        except UserError as error:
            failed[name] = str(error)
    measured = measurements_in(tables_folder(paper, size, session.root), runs_on_disk(session.root))
    return failed | measured.make(
        itertools.chain.from_iterable(cell.measurements for cell in wanted.cells.values())
    )


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


def _drive(study: Study, session: Session, again: str) -> dict[str, str]:
    """Train a study; returns the runs that failed."""
    console = console_of()
    print_line(f"{quantity(len(study.pending), 'run')} in {short(study.folder)}")
    outcome = drive(study, Display(console), session.executor, partial(make_report, [], console))
    if outcome.signum and outcome.unfinished:
        options = to_paste(*session.executor.options).removeprefix("subquad")
        raise Interrupted(outcome.signum, f"stopped; go on with: {again}{options}")
    return dict(outcome.failed)
