"""What a report says, in tables and sentences: the same for every format."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from subquad.output.terminal import DASH
from subquad.reports.drawing import Chart
from subquad.reports.reported_run import ReportedRun
from subquad.reports.text import SPREAD_NOTE, Values

NEVER = 99
"""Rank of columns that a terminal never shows: its lines say the same."""


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        columns: their names.
        lines: the cells, row by row.
        numeric: columns that are aligned right.
        ranks: columns that a terminal may leave out, those of the highest rank first, until the
            rest fits.
        italic: lines that are shown apart.
        prose: columns of running text.
    """

    columns: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    numeric: Collection[str]
    ranks: Mapping[str, int]
    italic: Collection[int]
    prose: Collection[str] = ()

    @property
    def note(self) -> str:
        """What a sign in it means."""
        for line in self.lines:
            if "±" in "".join(line):
                return SPREAD_NOTE
        return ""

    @staticmethod
    def of(
        rows: Sequence[Mapping[str, str]],
        numeric: Collection[str],
        ranks: Mapping[str, int] | None = None,
        italic: Collection[int] = (),
        prose: Collection[str] = (),
    ) -> Table:
        """From cells by column, in the first row's order; columns that no row fills are left
        out.
        """
        filled: dict[str, list[str]] = {}
        for name in rows[0]:
            cells = [row.get(name, DASH) for row in rows]
            if set(cells) != {DASH}:
                filled[name] = cells
        lines = zip(*filled.values(), strict=True)
        return Table(
            columns=tuple(filled),
            lines=tuple(lines),
            numeric=numeric,
            ranks=ranks or {},
            italic=italic,
            prose=prose,
        )


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a document.

    Attributes:
        title: its heading.
        table: its table, if it has one.
        lines: what is to be said below it.
        headlines: the most important sentences; on a terminal they come last of all.
        notes: explanations, in a quieter voice.
        charts: beside the table.
        brief: what a terminal shows in place of all that, None for all of it; charts it never
            shows.
    """

    title: str
    table: Table | None = None
    lines: tuple[str, ...] = ()
    headlines: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = ()
    brief: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class ReportDocument:
    """Everything that a report says.

    Attributes:
        title: of the page.
        lead: lines above all sections.
        sections: the parts, in order.
        runs: where its numbers come from.
        pictures: PNG files, by name.
        records: for CSV, a mapping per row of the tables.
        values: for JSON.
    """

    title: str
    lead: tuple[str, ...] = ()
    sections: tuple[Section, ...]
    runs: tuple[ReportedRun, ...] = ()
    pictures: Mapping[str, bytes] = field(default_factory=dict)
    records: tuple[Values, ...] = ()
    values: Values = field(default_factory=dict)
