"""A grid as a section of a document: texts, signs, notes on cells, and sentences below."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import cycle

import pandas as pd

from subquad.output.terminal import quantity
from subquad.reports.document import Section, Sign, Table
from subquad.reports.drawing import COLOURS, Line, LineChart
from subquad.reports.text import near_published
from subquad_tools.paper.grid import STATES, Grid, Key


def section_of(grid: Grid, *, only_published: bool = False) -> Section:
    """A table in print: printed numbers below ours, never in one mean or mark with them.

    Args:
        only_published: its numbers are the printed ones, or computed from them.
    """
    shown = grid.shown
    printed = {key: entry.printed for key, entry in shown.items() if entry.printed}
    cautions = [set(number.cautions) for number in printed.values()]
    common = set[str]().union(*cautions).intersection(*cautions)
    own_signs = _signs(grid, {key: entry.value for key, entry in shown.items() if entry.is_ours})
    ours = {key: (entry.text, entry.notes, own_signs.get(key)) for key, entry in shown.items()}
    signs = _signs(grid, {key: number.value for key, number in printed.items()})
    theirs = {}
    for key, number in printed.items():
        notes = [f"printed: {text}" for text in number.cautions if text not in common]
        theirs[key] = (number.text, notes, signs.get(key))
    layers = {"": ours, " †": theirs}
    if only_published and set(grid.columns) & grid.table.columns.keys():
        del layers[""]
    sentences = [*_sentences(grid, only_published)]
    if printed:
        sources = sorted({number.reference for number in printed.values()})
        sentences.append(f"†: {', '.join(sources)}, as printed; their best are marked apart.")
    return Section(
        title=grid.table.title,
        name=f"{grid.paper}-{grid.name}",
        table=_table(grid, layers),
        lines=(*sentences, *[f"Printed numbers: {text}." for text in sorted(common)]),
        charts=tuple(_charts(grid)) if grid.table.chart else (),
    )


def _charts(grid: Grid) -> Iterator[LineChart]:
    """The picture of a figure, of the numbers that are there."""
    table = grid.table
    columns = list(table.columns)
    values = {key: entry.value for key, entry in grid.entries.items()}
    is_lines = table.chart == "lines"
    lines = []
    for row, colour in zip(grid.rows, cycle(COLOURS), strict=False):
        if is_lines:
            points = [(float(column), values[row, column]) for column in columns]
        else:
            points = sorted(
                (values[row, x], values[row, y])
                for x, y in zip(columns[::2], columns[1::2], strict=True)
            )
        there = tuple(point for point in points if not any(map(math.isnan, point)))
        if there:
            lines.append(Line(row, colour, there, style="line" if is_lines else "full marks"))
    if lines:
        yield LineChart(f"{grid.paper}: {grid.name}", *table.axes, tuple(lines))


_Cells = Mapping[Key, tuple[str, list[str], Sign | None]]
"""Texts, with what must be known of them and their signs."""


def _table(grid: Grid, layers: Mapping[str, _Cells]) -> Table | None:
    """A line for each of the grid's in each layer that has some of it; the second stands apart."""
    lines: list[tuple[str, ...]] = []
    apart = []
    signs: dict[tuple[int, int], Sign] = {}
    notes = {}
    for name, keys in grid.lines.items():
        for mark, cells in layers.items():
            if not cells.keys() & set(keys):
                continue
            if mark:
                apart.append(len(lines))
            texts = [name + mark]
            for place, key in enumerate(keys, 1):
                text, notes[len(lines), place], sign = cells.get(key, ("", [], None))
                texts.append(text)
                if sign:
                    signs[len(lines), place] = sign
            lines.append(tuple(texts))
    columns = grid.rows if grid.table.transposed else grid.columns
    return Table(("", *columns), tuple(lines), columns, apart, signs, notes) if lines else None


def _signs(grid: Grid, values: Mapping[Key, float]) -> dict[Key, Sign]:
    """Of the best and the second value of each column, as far as their digits tell."""
    places = {}
    for column in grid.columns:
        own = {key: value for key, value in values.items() if key[1] == column}
        if len(own) > 1:
            first = grid.entries[next(iter(own))]
            if first.mode:
                rounded = pd.Series(own).round(first.digits)
                places |= rounded.rank(method="dense", ascending=first.mode == "min").to_dict()
    signs: dict[float, Sign] = {1.0: "*", 2.0: "_"}
    return {key: signs[place] for key, place in places.items() if place in signs}


def _sentences(grid: Grid, only_published: bool) -> Iterator[str]:
    entries = grid.shown
    if grid.table.command:
        yield f"Made by: {grid.table.command}."
    if only_published:
        for key, entry in entries.items():
            if number := entry.printed:
                _, _, digits = number.printed.partition(".")
                if abs(entry.value - number.value) > 0.5000001 * 10.0 ** -len(digits):
                    yield (
                        f"{' '.join(key)}: printed {number.printed}, its cells give {entry.text}."
                    )
        return
    if any(line.transfer for line in (*grid.table.rows.values(), *grid.table.columns.values())):
        yield "Nothing is trained where weights are transferred; TEST is opened for it."
    states = Counter(entry.state for entry in entries.values())
    counts = [f"{states[state]} {state}" for state in STATES if states[state]]
    yield f"{quantity(len(entries), 'cell')}: {', '.join(counts) or 'none'}."
    gaps = [
        entry.value - entry.printed.value
        for entry in entries.values()
        if entry.printed and entry.is_comparable
    ]
    if any(entry.printed for entry in entries.values()):
        yield f"{near_published(gaps, grid.table.tolerance)}."
