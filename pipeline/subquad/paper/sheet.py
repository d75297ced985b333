"""A grid as it is printed: texts, marks, letters with their meaning, and sentences below."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from subquad.output.terminal import quantity
from subquad.paper.grid import Entry, Grid

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Shown:
    """A cell in print.

    Attributes:
        text: the number.
        letters: of what is to be known of it.
        mark: "best", "second" or "".
        is_quiet: of stand-in data, or missing.
    """

    text: str
    letters: str = ""
    mark: str = ""
    is_quiet: bool = False


@dataclass(frozen=True)
class Sheet:
    """A table in print.

    Attributes:
        name, title: of the table.
        columns: their names.
        lines: the name of each, whether it has the printed numbers, and its cells.
        notes: what the letters mean.
        sentences: below it.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    lines: tuple[tuple[str, bool, tuple[Shown, ...]], ...]
    notes: dict[str, str]
    sentences: tuple[str, ...]

    @property
    def width(self) -> int:
        """Characters of its longest line, about."""
        widths = [max(len(name) for name, _, _ in self.lines) if self.lines else 0]
        for number, column in enumerate(self.columns):
            widths.append(
                max(len(column), *(len(cells[number].text) for _, _, cells in self.lines))
            )
        return sum(widths) + 2 * len(widths)


def sheet_of(grid: Grid, *, only_published: bool = False) -> Sheet:
    """A table in print, the printed numbers below ours, and never in one mean or mark with them.

    Args:
        only_published: its numbers are the printed ones, or computed from them.
    """
    printer = _Printer(grid)
    is_computed = grid.table.test is not None
    lines: list[tuple[str, bool, tuple[Shown, ...]]] = []
    for name, keys in _lines(grid):
        if is_computed or not only_published:
            lines.append((name, False, tuple(map(printer.own, keys))))
        if any(grid.entries[key].printed for key in keys):
            lines.append((name, True, tuple(map(printer.printed, keys))))
    return Sheet(
        grid.name,
        grid.table.title,
        grid.rows if grid.table.transposed else grid.columns,
        tuple(lines),
        {letter: text for text, letter in printer.notes.items()},
        (*_sentences(grid, only_published), *printer.sentences),
    )


_Key = tuple[str, str]


def _lines(grid: Grid) -> Iterator[tuple[str, list[_Key]]]:
    """The lines in print, each with its cells."""
    if grid.table.transposed:
        for column in grid.columns:
            yield column, [(row, column) for row in grid.rows]
        return
    for row in grid.rows:
        yield row, [(row, column) for column in grid.columns]


class _Printer:
    """Sets cells, and gathers what the letters beside them mean.

    Attributes:
        notes: letters by their meaning.
        sentences: what holds for all printed numbers.
    """

    def __init__(self, grid: Grid):
        self._grid = grid
        self.notes: dict[str, str] = {}
        own = {}
        printed = {}
        cautions: list[tuple[str, ...]] = []
        for key, entry in grid.entries.items():
            if entry.can_be_best:
                own[key] = entry.value
            if entry.printed:
                printed[key] = entry.printed.value
                cautions.append(entry.printed.cautions)
        self._marks = self._best(own)
        self._printed_marks = self._best(printed)
        first = cautions[0] if cautions else ()
        self._common = [text for text in first if all(text in others for others in cautions)]
        self.sentences = [f"Printed numbers: {text}." for text in self._common]

    def _best(self, values: Mapping[_Key, float]) -> dict[_Key, str]:
        """The best and the second value of each column, as far as their digits tell."""
        marks: dict[_Key, str] = {}
        for column in () if self._grid.table.test else self._grid.columns:
            rounded = {}
            for row in self._grid.rows:
                if (row, column) in values:
                    digits = self._grid.entries[row, column].digits
                    rounded[row] = round(values[row, column], digits)
            if len(rounded) < 2:
                continue
            is_least = self._grid.entries[self._grid.rows[0], column].mode == "min"
            order = sorted(set(rounded.values()), reverse=not is_least)
            words = dict(zip(order, ("best", "second"), strict=False))
            marks |= {(row, column): words.get(value, "") for row, value in rounded.items()}
        return marks

    def _letters(self, notes: Iterable[str]) -> str:
        found = []
        for text in notes:
            number = len(self.notes)
            letter = _LETTERS[number % 26] * (1 + number // 26)
            found.append(self.notes.setdefault(text, letter))
        return ",".join(found)

    def own(self, key: _Key) -> Shown:
        """Our number."""
        entry = self._grid.entries[key]
        letters = self._letters(notes_of(entry))
        is_quiet = entry.is_stand_in or entry.spread is None
        return Shown(entry.text, letters, self._marks.get(key, ""), is_quiet)

    def printed(self, key: _Key) -> Shown:
        """The paper's."""
        printed = self._grid.entries[key].printed
        if printed is None:
            return Shown("", is_quiet=True)
        text = printed.printed
        if printed.std:
            text += f" ± {printed.std}"
        cautions = [text for text in printed.cautions if text not in self._common]
        letters = self._letters(f"printed: {caution}" for caution in cautions)
        return Shown(text, letters, self._printed_marks.get(key, ""))


def notes_of(entry: Entry) -> Iterator[str]:
    """What is to be known of our number."""
    if entry.missing:
        yield f"missing: {entry.missing}"
        return
    if entry.unfinished:
        yield f"unfinished: {entry.unfinished}"
    if entry.is_stand_in:
        yield "stand-in data"
    if entry.printed and entry.differs:
        yield f"not comparable: {entry.differs}"


def _sentences(grid: Grid, only_published: bool) -> Iterator[str]:
    if grid.table.command:
        yield f"Made by: {grid.table.command}."
    if only_published:
        yield from _of_printed(grid)
        return
    yield _counted(grid)
    yield verdict(grid)


def _counted(grid: Grid) -> str:
    """`110 cells: 8 ours, 2 unfinished, 100 missing.`"""
    states = Counter(state_of(entry) for entry in grid.entries.values())
    counts = ", ".join(f"{states[state]} {state}" for state in STATES if states[state])
    return f"{quantity(len(grid.entries), 'cell')}: {counts or 'none'}."


STATES = ("ours", "stand-in", "unfinished", "missing")


def state_of(entry: Entry) -> str:
    """One of `STATES`."""
    if entry.spread is None:
        return "missing"
    if entry.unfinished:
        return "unfinished"
    return "stand-in" if entry.is_stand_in else "ours"


def verdict(grid: Grid) -> str:
    """How many comparable cells are near the printed number, below or above it."""
    near = below = above = 0
    for entry in grid.entries.values():
        if not entry.is_comparable or entry.printed is None:
            continue
        gap = round(entry.value - entry.printed.value, 9)
        near += abs(gap) <= grid.table.tolerance
        below += gap < -grid.table.tolerance
        above += gap > grid.table.tolerance
    count = near + below + above
    if not count:
        return "No cell is comparable with a printed number."
    words = f"{near} within {grid.table.tolerance:.1f} points, {below} below, {above} above"
    return f"{quantity(count, 'comparable cell')}: {words}."


def _of_printed(grid: Grid) -> Iterator[str]:
    """Whether what is computed from printed numbers is what is printed."""
    names = ["p"] if grid.table.test else grid.table.computed
    for name in names:
        kept = 0
        other = []
        for row in grid.rows:
            entry = grid.entries[row, name]
            if entry.printed is None or entry.spread is None:
                continue
            if entry.follows:
                kept += 1
            else:
                other.append(f"{row} prints {entry.printed.printed}, its cells give {entry.text}")
        if kept or other:
            words = f"{name}: {kept} of {kept + len(other)} printed numbers follow from their cells"
            yield f"{'; '.join([words, *other])}."
