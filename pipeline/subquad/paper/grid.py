"""From cells to a table: what each cell's runs say, beside the printed number, and the columns that
are computed from others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd

from subquad.errors import RunError
from subquad.output.terminal import DASH
from subquad.paper.file import Derived, Paper, Table, Test
from subquad.paper.runs import MEASURED, Cell, OnDisk, Wanted
from subquad.plugin.metric import metric_of
from subquad.reports import Report, read_report
from subquad.reports.published import PublishedRow, published_tables
from subquad.reports.reported_run import ReportedRun
from subquad.reports.rows import TableRow
from subquad.reports.text import Spread


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What stands in a cell.

    Attributes:
        spread: in the unit of print, over the seeds; None where there is no value.
        by_seed: what that is made of.
        mode: whether the "max" or the "min" is best.
        digits: of its print.
        missing: why there is no value.
        unfinished: seeds that are not there, in words.
        is_stand_in: its data only stand in for the real ones.
        printed: the paper's number.
        differs: why it cannot be compared with that; "" where it can, or where none is printed.
        runs: what it was made of.
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

    @property
    def value(self) -> float:
        """NaN where there is none."""
        return self.spread.mean if self.spread else math.nan

    @property
    def can_be_best(self) -> bool:
        return self.spread is not None and not (self.unfinished or self.is_stand_in)

    @property
    def is_comparable(self) -> bool:
        return self.printed is not None and self.can_be_best and not self.differs

    @property
    def follows(self) -> bool:
        """Whether the printed number is the value, as far as its digits tell."""
        if self.printed is None:
            return False
        return abs(self.value - self.printed.value) <= 0.5000001 * 10.0 ** -_digits(self.printed)

    @property
    def text(self) -> str:
        """`84.2 ± 0.3`."""
        if self.spread is None:
            return DASH
        text = self.number(self.spread.mean)
        if self.spread.std is None:
            return text
        return f"{text} ± {self.number(self.spread.std)}"

    def number(self, value: float) -> str:
        """A value with its digits."""
        return f"{value:z.{self.digits}f}"


@dataclass(frozen=True)
class Grid:
    """A table with what is known of it.

    Attributes:
        name: in the paper's file.
        rows, columns: in order, those that are hidden left out.
        entries: by row and column.
    """

    name: str
    table: Table
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    entries: Mapping[tuple[str, str], Entry]

    def frame(self, columns: Iterable[str], seed: int | None = None) -> pd.DataFrame:
        """Values of some columns, of all seeds or of one; NaN where there is none."""
        values = {
            column: [self._value(row, column, seed) for row in self.rows] for column in columns
        }
        return pd.DataFrame(values, index=list(self.rows), dtype=float)

    def _value(self, row: str, column: str, seed: int | None) -> float:
        entry = self.entries[row, column]
        if seed is None:
            return entry.value
        return entry.by_seed.get(seed, math.nan)


class _Results:
    """What the runs of some cells say, read from their folders once.

    Raises:
        RunError: a file of a finished run is not as its result says.
    """

    def __init__(self, wanted: Wanted, there: Mapping[str, OnDisk]):
        digests = {
            run.digest
            for cells in wanted.cells.values()
            for cell in cells.values()
            for run in cell.runs
        }
        self._there = {digest: there[digest] for digest in digests & there.keys()}
        self._runs: dict[Path, ReportedRun] = {}
        self._rows: dict[Path, TableRow] = {}
        self._report: Report | None = None
        folders = sorted(known.folder for known in self._there.values())
        if not folders:
            return
        self._report = read_report(folders)
        for run in self._report.runs:
            if run.status == "finished" and run.faults:
                raise RunError(f"{run.folder}: {run.faults[0]}: the table is not made")
            self._runs[run.folder] = run
        for row in self._report.rows:
            self._rows |= dict.fromkeys([run.folder for run in row.runs], row)

    def entry(self, cell: Cell, entry: Entry, scale: float, conditions: tuple[str, ...]) -> Entry:
        """What a cell's runs say.

        Args:
            entry: with the printed number.
            scale: what a measured value is multiplied by.
            conditions: tables whose conditions hold for it.
        """
        runs = []
        reasons: dict[str, None] = {}
        for run in cell.runs:
            known = self._there.get(run.digest)
            if known is None:
                continue
            reported = self._runs[known.folder]
            if known.is_finished:
                runs.append(reported)
            else:
                reasons[f"{reported.status}: {reported.reason or 'can go on'}"] = None
        by_seed = {}
        for run in runs:
            value = _value(run, cell.metric)
            if value is not None:
                by_seed[run.seed] = scale * cell.shown.scaled(value)
        spread = Spread.of(by_seed.values())
        if spread is None:
            return replace(entry, missing="; ".join(reasons) or cell.reason or "no value")
        unfinished = ""
        if spread.count < len(cell.runs):
            unfinished = f"{spread.count} of {len(cell.runs)} seeds"
        row = self._rows[runs[0].folder]
        differs = entry.differs
        if entry.printed is not None and not differs:
            differs = self._differs(row, entry.printed, conditions)
        return replace(
            entry,
            spread=spread,
            by_seed=by_seed,
            missing="",
            unfinished=unfinished,
            is_stand_in=row.is_stand_in,
            differs=differs,
            runs=tuple(runs),
        )

    def _differs(self, row: TableRow, printed: PublishedRow, conditions: tuple[str, ...]) -> str:
        assert self._report is not None
        for beside in self._report.published(row):
            other = beside.published
            if other.source == printed.source and other.table in conditions:
                return "; ".join(beside.reasons)
        return f"conditions of {printed.table} unknown"


def _value(run: ReportedRun, metric: str) -> float | None:
    """A task's metric, or what was measured."""
    if metric not in MEASURED:
        return run.score(metric)
    if metric != "seconds_per_epoch":
        return getattr(run, metric)
    if run.seconds_per_step is None or not run.steps or not run.epochs:
        return None
    return run.seconds_per_step * run.steps / run.epochs


def fill(wanted: Wanted, there: Mapping[str, OnDisk]) -> dict[str, Grid]:
    """The tables with what their runs say."""
    results = _Results(wanted, there)
    maker = _Maker(wanted.paper)

    def entry(name: str, row: str, column: str) -> Entry:
        cell = wanted.cells[name][row, column]
        table = wanted.paper.tables[name]
        conditions = (printed_in(name, table), *table.conditions)
        return results.entry(
            cell, maker.empty(name, row, column, cell), table.places[column].scale, conditions
        )

    return maker.grids(wanted.tables, entry)


def fill_published(paper: Paper, tables: Iterable[str]) -> dict[str, Grid]:
    """The same of the printed numbers alone; what is computed from others is computed from them."""
    maker = _Maker(paper)

    def entry(name: str, row: str, column: str) -> Entry:
        table = paper.tables[name]
        metric = table.places[column].metric or table.metric
        empty = maker.empty(name, row, column, Cell(metric, metric_of(MEASURED, metric)))
        printed = empty.printed
        if printed is None:
            return replace(empty, missing="not printed")
        return replace(
            empty,
            spread=Spread(printed.value, float(printed.std) if printed.std else None, 1),
            digits=_digits(printed),
            missing="",
        )

    return maker.grids(tables, entry)


def _digits(printed: PublishedRow) -> int:
    _, _, behind = printed.printed.partition(".")
    return len(behind)


def printed_in(name: str, table: Table) -> str:
    """What the paper's source calls a table."""
    return f"Table {name}" if table.published is None else table.published


class _Maker:
    """Makes grids of a paper: entries with their printed numbers, then what is computed."""

    def __init__(self, paper: Paper):
        self._paper = paper
        self._printed: dict[tuple[str, str, str, str], PublishedRow] = {}
        for table in published_tables():
            for row in table.rows:
                if row.source == paper.source:
                    self._printed[row.table, row.model, row.benchmark, row.metric] = row

    def grids(
        self, tables: Iterable[str], entry: Callable[[str, str, str], Entry]
    ) -> dict[str, Grid]:
        """The tables, each entry as `entry` says it; those that test another one last."""
        made: dict[str, Grid] = {}

        def grid(name: str) -> Grid:
            table = self._paper.tables[name]
            cells = {
                (row, column): entry(name, row, column)
                for row in table.lines
                for column in table.places
            }
            shown = [column for column, place in table.places.items() if not place.hidden]
            whole = Grid(name, table, tuple(table.lines), tuple(shown), cells)
            for column, derived in table.computed.items():
                whole = self._with_column(whole, column, derived)
            return whole

        for name in tables:
            test = self._paper.tables[name].test
            made[name] = self._tested(name, test, grid(test.of)) if test else grid(name)
        return made

    def empty(self, name: str, row: str, column: str, cell: Cell) -> Entry:
        """An entry without runs."""
        table = self._paper.tables[name]
        line = table.lines[row]
        place = table.places[column]
        benchmark = place.published or place.runs.get("dataset", column)
        metric = place.published_metric or table.published_metric or cell.metric
        digits = table.digits if place.digits is None else place.digits
        if digits is None:
            digits = cell.shown.digits
        return Entry(
            digits=2 if digits is None else digits,
            mode=cell.shown.mode,
            missing=cell.reason,
            printed=self._number(name, line.published or row, benchmark, metric),
            differs=table.never,
        )

    def _number(self, name: str, model: str, benchmark: str, metric: str) -> PublishedRow | None:
        table = printed_in(name, self._paper.tables[name])
        return self._printed.get((table, model, benchmark, metric))

    def _with_column(self, grid: Grid, name: str, derived: Derived) -> Grid:
        columns = list(derived.of or grid.table.places)
        values = _derive(grid.frame(columns), derived, grid).to_dict()
        entries = dict(grid.entries)
        for row in grid.rows:
            parts = [grid.entries[row, column] for column in columns]
            first = parts[0]
            metric = derived.published_metric or grid.table.published_metric or grid.table.metric
            model = grid.table.lines[row].published or row
            entry = Entry(
                digits=first.digits if derived.digits is None else derived.digits,
                mode={"rank": "min", "inverse": "max"}.get(derived.kind, first.mode),
                printed=self._number(grid.name, model, derived.published, metric),
                is_stand_in=any(part.is_stand_in for part in parts),
                unfinished=next((part.unfinished for part in parts if part.unfinished), ""),
                differs=next((part.differs for part in parts if part.differs), ""),
            )
            value = values[row]
            if math.isnan(value):
                entry = replace(entry, missing="a cell of it is missing")
            else:
                entry = replace(entry, spread=_spread(grid, columns, derived, row, value))
            entries[row, name] = entry
        return replace(grid, columns=(*grid.columns, name), entries=entries)

    def _tested(self, name: str, test: Test, of: Grid) -> Grid:
        """The chance of a difference as large, for each row but the one that it is held against."""
        table = self._paper.tables[name]
        columns = list(of.table.places)
        frame = of.frame(columns)
        entries = {}
        for row in of.rows:
            if row == test.against:
                continue
            parts = [of.entries[line, column] for line in (row, test.against) for column in columns]
            entry = Entry(
                digits=3 if table.digits is None else table.digits,
                mode="min",
                printed=self._number(
                    name, f"{test.against} vs {row}", test.published, test.published_metric
                ),
                is_stand_in=any(part.is_stand_in for part in parts),
                unfinished=next((part.unfinished for part in parts if part.unfinished), ""),
                differs=next((part.differs for part in parts if part.differs), ""),
            )
            gaps = (frame.loc[test.against] - frame.loc[row]).round(9)
            if gaps.isna().any():
                entry = replace(entry, missing=f"a cell of Table {test.of} is missing")
            else:
                entry = replace(entry, spread=Spread(_wilcoxon(gaps), None, 1))
            entries[row, "p"] = entry
        rows = tuple(row for row, _ in entries)
        return Grid(name, table, rows, ("p",), entries)


def _derive(frame: pd.DataFrame, derived: Derived, grid: Grid) -> pd.Series:
    """A column from others; NaN where one of them is."""
    if derived.kind == "rank":
        modes = {column: grid.entries[grid.rows[0], column].mode for column in frame}
        frame = frame.apply(lambda column: column.rank(ascending=modes[column.name] == "min"))
    elif derived.kind == "ratio":
        frame = frame / frame.loc[derived.to]
    elif derived.kind == "inverse":
        frame = frame.loc[derived.to] / frame
    return frame.mean(axis=1, skipna=False)


def _spread(grid: Grid, columns: Sequence[str], derived: Derived, row: str, value: float) -> Spread:
    """Of a mean over columns with the same seeds, over these seeds."""
    seeds = {tuple(sorted(grid.entries[row, column].by_seed)) for column in columns}
    if derived.kind == "mean" and len(seeds) == 1:
        means = [grid.frame(columns, seed).loc[row].mean() for seed in seeds.pop()]
        if spread := Spread.of(means):
            return replace(spread, mean=value)
    return Spread(value, None, 1)


def _wilcoxon(gaps: pd.Series) -> float:
    """Two-sided, as SciPy takes it: exact unless differences are equal or zero."""
    from scipy.stats import wilcoxon

    if not gaps.any():
        return 1.0
    return float(wilcoxon(gaps).pvalue)
