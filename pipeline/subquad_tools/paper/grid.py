"""From cells to a table: what each cell's runs say, beside the printed number, and the columns that
are computed from others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from subquad.errors import RunError
from subquad.plugin.metric import Metric, metric_of
from subquad.reports import read_report
from subquad.reports.published import PublishedRow, published_tables
from subquad.reports.reported_run import ReportedRun
from subquad.reports.rows import TableRow
from subquad.reports.text import Spread, score_text
from subquad_tools.paper.file import Derived, Paper, PaperLine, PaperTable
from subquad_tools.paper.measured import Measurements
from subquad_tools.paper.runs import DIAGNOSED, MEASURED, TRANSFERRED, CellRuns, OnDisk, Wanted

STATES = ("ours", "stand-in", "unfinished", "missing")
Key = tuple[str, str]
"""A cell's row and column."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What stands in a cell.

    Attributes:
        spread: in the unit of print, over the seeds; None where there is no value.
        by_seed: what that is made of.
        mode: whether the "max" or the "min" is best; "" where none is.
        digits: of its print.
        missing: why there is no value.
        unfinished: seeds that are not there, in words.
        is_stand_in: its data only stand in for the real ones.
        printed: the paper's number.
        differs: why it cannot be compared with that; "" where it can, or where none is printed.
        runs: what it was made of.
        sources: files of measurements that it was made of.
    """

    spread: Spread | None = None
    by_seed: Mapping[int, float] = field(default_factory=dict)
    mode: str = "max"
    digits: int
    missing: str = ""
    unfinished: str = ""
    is_stand_in: bool = False
    printed: PublishedRow | None = None
    differs: str = ""
    runs: tuple[ReportedRun, ...] = ()
    sources: tuple[Mapping[str, str], ...] = ()

    @property
    def value(self) -> float:
        """NaN where there is none."""
        return self.spread.mean if self.spread else math.nan

    @property
    def state(self) -> str:
        """One of `STATES`."""
        if self.spread is None:
            return "missing"
        if self.unfinished:
            return "unfinished"
        return "stand-in" if self.is_stand_in else "ours"

    @property
    def is_ours(self) -> bool:
        """Whether it is a whole number of real data."""
        return self.state == "ours"

    @property
    def is_comparable(self) -> bool:
        return self.printed is not None and self.is_ours and not self.differs

    @property
    def text(self) -> str:
        """`84.2 ± 0.3`."""
        return score_text(Metric(digits=self.digits), self.spread)

    @property
    def notes(self) -> list[str]:
        """What is to be known of it."""
        if self.missing:
            return [f"missing: {self.missing}"]
        told = {
            f"unfinished: {self.unfinished}": self.unfinished,
            "stand-in data": self.is_stand_in,
            f"not comparable: {self.differs}": self.printed and self.differs,
        }
        return [text for text, is_so in told.items() if is_so]


@dataclass(frozen=True)
class Grid:
    """A table with what is known of it.

    Attributes:
        paper: its name.
        name: in the paper's file.
        printed_in: where the paper prints it.
        columns: in print, in order.
        entries: by row and column, hidden ones too.
    """

    paper: str
    name: str
    table: PaperTable
    printed_in: str
    columns: tuple[str, ...]
    entries: Mapping[Key, Entry]

    @property
    def rows(self) -> list[str]:
        """In print, in order."""
        return [row for row, line in self.table.rows.items() if not line.hidden]

    @property
    def shown(self) -> dict[Key, Entry]:
        """The entries in print."""
        return {key: self.entries[key] for key in itertools.product(self.rows, self.columns)}

    @property
    def lines(self) -> dict[str, list[Key]]:
        """The lines in print, each with its cells."""
        if self.table.transposed:
            return {column: [(row, column) for row in self.rows] for column in self.columns}
        return {row: [(row, column) for column in self.columns] for row in self.rows}


_BESIDE = {**MEASURED, **DIAGNOSED, **TRANSFERRED}
"""What no task declares."""
_Ledger = Mapping[tuple[str, str, str, str], PublishedRow]
_MODES = {"rank": "min", "inverse": "max", "wilcoxon": ""}
"""What is best of computed columns, where that is not as of what they are computed from."""


def fill(
    paper: Paper,
    tables: Iterable[str],
    wanted: Wanted | None = None,
    there: Mapping[str, OnDisk] | None = None,
    measured: Measurements | None = None,
) -> dict[str, Grid]:
    """Tables with what their runs say.

    Args:
        tables: their names.
        wanted: what they need; None: the printed numbers alone.
        there: runs by their digest.
        measured: what is measured of them.

    Raises:
        RunError: a file of a finished run is not as its result says.
    """
    ledger = {
        (row.table, row.model, row.benchmark, row.metric): row
        for table in published_tables()
        for row in table.rows
        if row.source == paper.said.source
    }
    results = None
    if wanted and there is not None and measured:
        results = _Results(wanted, there, measured)
    return {name: _grid(paper, name, ledger, results) for name in tables}


def _grid(paper: Paper, name: str, ledger: _Ledger, results: _Results | None) -> Grid:
    table = paper.tables[name]
    printed_in = table.published or f"Table {name}"
    conditions = (printed_in, *table.conditions)
    entries = {}
    for row, column in itertools.product(table.rows, table.columns):
        place = table.columns[column]
        benchmark = place.published or place.runs.get("dataset", column)
        number = ledger.get(
            (printed_in, table.rows[row].published or row, benchmark, _metric(table, place))
        )
        entry = Entry(
            printed=number,
            differs=table.never,
            digits=table.digits if place.digits is None else place.digits,
            mode=metric_of(_BESIDE, place.metric or table.metric).mode,
        )
        if results:
            entries[row, column] = results.entry((name, row, column), entry, place, conditions)
        elif number is None:
            entries[row, column] = replace(entry, missing="not printed")
        else:
            std = float(number.std) if number.std else None
            entries[row, column] = replace(entry, spread=Spread(number.value, std, 1))
    shown = tuple(column for column, place in table.columns.items() if not place.hidden)
    grid = Grid(paper.name, name, table, printed_in, shown, entries)
    for column, derived in table.derived.items():
        entries |= _computed(grid, column, derived, ledger)
    return replace(grid, columns=(*shown, *table.derived))


def _metric(table: PaperTable, place: PaperLine | Derived) -> str:
    """What the printed table calls a metric."""
    return place.published_metric or getattr(place, "metric", None) or table.metric


class _Results:
    """What the runs of some cells say, read from their folders once."""

    def __init__(self, wanted: Wanted, there: Mapping[str, OnDisk], measured: Measurements):
        self._cells = wanted.cells
        self._measured = measured
        runs = itertools.chain.from_iterable(cell.runs for cell in wanted.cells.values())
        self._there = {run.digest: there[run.digest] for run in runs if run.digest in there}
        if not self._there:
            return
        self._report = read_report(sorted(known.folder for known in self._there.values()))
        for run in self._report.runs:
            if run.faults:
                raise RunError(f"{run.folder}: {run.faults[0]}; no table is made of it")
        self._runs = {run.folder: run for run in self._report.runs}

    def entry(
        self, key: tuple[str, str, str], entry: Entry, place: PaperLine, conditions: tuple[str, ...]
    ) -> Entry:
        """What a cell's runs say.

        Args:
            entry: with the printed number.
            conditions: tables whose conditions hold for it.
        """
        cell = self._cells[key]
        entry = replace(entry, mode=cell.shown.mode)
        known = [self._there[run.digest] for run in cell.runs if run.digest in self._there]
        runs = tuple(self._runs[run.folder] for run in known if run.is_finished)
        if cell.measurements:
            entry, values = self._measured_of(cell, entry)
        else:
            values = {run.seed: _value(run, cell.metric) for run in runs}
        by_seed = {
            seed: place.scale * cell.shown.scaled(value)
            for seed, value in values.items()
            if value is not None and not math.isnan(value)
        }
        spread = Spread.of(by_seed.values())
        if spread is None:
            reasons = {
                f"{run.status}: {run.reason or 'no value yet'}": None
                for run in [self._runs[one.folder] for one in known]
            }
            return replace(entry, missing="; ".join(reasons) or cell.reason)
        rows = [row for row in self._report.rows if runs[0] in row.runs] if runs else []
        wanted = len(cell.measurements or cell.runs)
        return replace(
            entry,
            spread=spread,
            by_seed=by_seed,
            differs=self._difference(entry, rows, conditions),
            unfinished="" if spread.count == wanted else f"{spread.count} of {wanted} seeds",
            is_stand_in=entry.is_stand_in or any(row.is_stand_in for row in rows),
            runs=runs,
        )

    def _difference(
        self, entry: Entry, rows: Iterable[TableRow], conditions: tuple[str, ...]
    ) -> str:
        """Why a cell of these rows cannot be compared with its printed number; "" where it can."""
        if entry.differs or not entry.printed:
            return entry.differs
        reasons = [
            "; ".join(beside.reasons)
            for row in rows
            for beside in self._report.beside[row]
            if beside.published.table in conditions
        ]
        return [*reasons, f"conditions of {entry.printed.table} unknown"][0]

    def _measured_of(self, cell: CellRuns, entry: Entry) -> tuple[Entry, dict[int, float | None]]:
        """Values of a cell by seed, and an entry with the files that say them."""
        values: dict[int, float | None] = {}
        for wanted in cell.measurements:
            if measured := self._measured.find(wanted):
                of_layers = dict(enumerate(measured.values.get(cell.metric, ()), 1))
                values[wanted.run.experiment.train.seed] = of_layers.get(cell.layer or 1)
                entry = replace(
                    entry,
                    sources=(*entry.sources, self._measured.source(wanted)),
                    is_stand_in=any("stand-in" in note for note in measured.notes),
                )
        return entry, values


def _value(run: ReportedRun, metric: str) -> float | None:
    """A task's metric, or what was measured."""
    if metric not in MEASURED:
        return run.score(metric)
    if metric != "seconds_per_epoch":
        return getattr(run, metric)
    if not (run.seconds_per_step and run.steps and run.epochs):
        return None
    return run.seconds_per_step * run.steps / run.epochs


def _computed(grid: Grid, name: str, derived: Derived, ledger: _Ledger) -> dict[Key, Entry]:
    """The entries of a column that is computed from others: missing where one of those is."""
    columns = derived.of or list(grid.table.columns)
    rows = list(grid.table.rows)
    frame = pd.DataFrame(
        {column: [grid.entries[row, column].value for row in rows] for column in columns},
        index=rows,
    )
    values = _derive(frame, derived, grid)
    entries = {}
    for row, line in grid.table.rows.items():
        parts = [grid.entries[row, column] for column in columns]
        model = derived.published_row.format(row=line.published or row)
        table = derived.table or grid.printed_in
        metric = _metric(grid.table, derived)
        entry = Entry(
            digits=parts[0].digits if derived.digits is None else derived.digits,
            mode=_MODES.get(derived.kind, parts[0].mode),
            printed=ledger.get((table, model, derived.published or "average", metric)),
            is_stand_in=any(part.is_stand_in for part in parts),
            unfinished=next((part.unfinished for part in parts if part.unfinished), ""),
            differs=next((part.differs for part in parts if part.differs), ""),
            missing="a cell of it is missing",
        )
        if not math.isnan(values[row]):
            spread = Spread(values[row], None, 1)
            seeds = {tuple(part.by_seed) for part in parts}
            if derived.kind == "mean" and len(seeds) == 1:
                spread = Spread.of(pd.DataFrame([part.by_seed for part in parts]).mean()) or spread
            entry = replace(entry, spread=spread, missing="")
        entries[row, name] = entry
    return entries


def _derive(frame: pd.DataFrame, derived: Derived, grid: Grid) -> dict[str, float]:
    """A column from others; NaN where one of them is, and for a row against itself."""
    if derived.kind == "wilcoxon":
        return {row: _wilcoxon(frame.loc[derived.to] - frame.loc[row]) for row in frame.index}
    if derived.kind == "rank":
        for column in frame:
            is_least = grid.entries[grid.rows[0], column].mode == "min"
            frame[column] = frame[column].rank(ascending=is_least)
    elif derived.kind == "ratio":
        frame = frame / frame.loc[derived.to]
    elif derived.kind == "inverse":
        frame = frame.rdiv(frame.loc[derived.to])
    return frame.mean(axis=1, skipna=False).to_dict()


def _wilcoxon(gaps: pd.Series) -> float:
    """p, two-sided, as SciPy takes it: exact unless differences are equal or zero."""
    from scipy.stats import wilcoxon

    gaps = gaps.round(9)
    if gaps.isna().any() or not gaps.any():
        return math.nan
    result: Any = wilcoxon(gaps)
    return float(result.pvalue)
