"""What a report says, in tables and sentences: the same for every format."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, count
from string import ascii_lowercase
from typing import Literal

from subquad.output.terminal import DASH
from subquad.reports.drawing import Chart
from subquad.reports.reported_run import ReportedRun
from subquad.reports.text import SPREAD_NOTE, Values

Sign = Literal["*", "_", "≈", "?"]
_SIGNS: Mapping[Sign, str] = {
    "*": "best",
    "_": "second",
    "≈": "not distinguishable from the best",
    "?": "not enough to tell from the best",
}
"""Beside a number, and what it means in its column."""


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        columns: their names.
        lines: the cells, row by row.
        numeric: columns that are aligned right.
        apart: lines that are shown in grey or italics.
        signs: of cells, by the numbers of line and column.
        notes: what must be known of cells; a letter stands for each.
        aside: which lines are shown apart, where that needs words.
    """

    columns: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    numeric: Collection[str] = ()
    apart: Collection[int] = ()
    signs: Mapping[tuple[int, int], Sign] = field(default_factory=dict)
    notes: Mapping[tuple[int, int], Sequence[str]] = field(default_factory=dict)
    aside: str = ""

    @cached_property
    def letters(self) -> dict[str, str]:
        """Each note's letter, in the order in which they come up."""
        letters = (letter * times for times in count(1) for letter in ascii_lowercase)
        return dict(
            zip(dict.fromkeys(chain.from_iterable(self.notes.values())), letters, strict=False)
        )

    def letters_at(self, line: int, column: int) -> str:
        """Those of a cell."""
        return ",".join(sorted(self.letters[note] for note in self.notes.get((line, column), ())))

    @property
    def note(self) -> str:
        """What a sign in it means; printed numbers stand apart, and may mean something else by
        it.
        """
        own = (line for number, line in enumerate(self.lines) if number not in self.apart)
        return SPREAD_NOTE if any("±" in "".join(line) for line in own) else ""

    @property
    def legend(self) -> dict[Sign, str]:
        """The signs that stand in it, with their meaning."""
        return {sign: words for sign, words in _SIGNS.items() if sign in self.signs.values()}

    @property
    def legend_text(self) -> str:
        """The same on one line; "" without signs."""
        return ", ".join(f"{sign} {words}" for sign, words in self.legend.items())

    @property
    def width(self) -> int:
        """Characters of its longest line, about."""
        return sum(
            max(map(len, column)) + 2 for column in zip(self.columns, *self.lines, strict=True)
        )

    @staticmethod
    def of(
        rows: Sequence[Mapping[str, str]],
        numeric: Collection[str],
        apart: Collection[int] = (),
    ) -> Table:
        """From cells by column, in the first row's order; empty ones are dashes, and columns that
        no row fills are left out.
        """
        columns = {name: [row.get(name) or DASH for row in rows] for name in rows[0]}
        filled = {name: cells for name, cells in columns.items() if set(cells) != {DASH}}
        return Table(tuple(filled), tuple(zip(*filled.values(), strict=True)), numeric, apart)


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a document.

    Attributes:
        title: its heading.
        name: by which LaTeX refers to its table, where that is not the title.
        table: its table, if it has one.
        lines: what is to be said below it.
        notes: explanations, in a quieter voice.
        charts: beside the table.
    """

    title: str
    name: str = ""
    table: Table | None = None
    lines: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = ()

    @property
    def label(self) -> str:
        """Its title as the label of a table: `test-accuracy-protocol-honest`."""
        return re.sub(r"[^a-z0-9]+", "-", (self.name or self.title).lower()).strip("-")


@dataclass(frozen=True, kw_only=True)
class ReportDocument:
    """Everything that a report says.

    Attributes:
        title: of the page.
        lead: lines above all sections.
        overview: what a reader sees first.
        summary: the sentences below that.
        sections: the details, in order.
        runs: where its numbers come from.
        pictures: PNG files, by name.
        records: for CSV, a mapping per row of the tables.
        values: for JSON.
    """

    title: str
    lead: tuple[str, ...] = ()
    overview: tuple[Section, ...] = ()
    summary: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()
    runs: tuple[ReportedRun, ...] = ()
    pictures: Mapping[str, bytes] = field(default_factory=dict)
    records: tuple[Values, ...] = ()
    values: Values = field(default_factory=dict)

    @property
    def charts(self) -> tuple[Chart, ...]:
        """Those of all sections."""
        sections = (*self.overview, *self.sections)
        return tuple(chart for section in sections for chart in section.charts)
