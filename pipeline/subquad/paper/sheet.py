"""A grid as it is printed: texts, marks, letters with their meaning, and sentences below."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from subquad.output.terminal import quantity
from subquad.paper.grid import STATES, Entry, Grid

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

    text: str = ""
    letters: str = ""
    mark: str = ""
    is_quiet: bool = False

    def __str__(self) -> str:
        signs = {"best": "*", "second": "_"}
        return f"{self.text}{signs.get(self.mark, '')} {self.letters}".strip()


@dataclass(frozen=True)
class Sheet:
    """A table in print.

    Attributes:
        grid: what it shows.
        columns: their names.
        lines: the name of each, whether it has the printed numbers, and its cells.
        notes: what the letters mean.
        sentences: below it.
    """

    grid: Grid
    columns: tuple[str, ...]
    lines: tuple[tuple[str, bool, tuple[Shown, ...]], ...]
    notes: dict[str, str]
    sentences: tuple[str, ...]

    @property
    def text(self) -> str:
        """All of it, as plain text."""
        lines = [f"{self.grid.name}  {self.grid.table.title}"]
        if self.lines:
            frame = pd.DataFrame([map(str, cells) for _, _, cells in self.lines])
            frame.index = [
                f"{name} †" if is_printed else name for name, is_printed, _ in self.lines
            ]
            lines.append(frame.to_string(header=list(self.columns)))
            lines.append("* best, _ second, of ours and of the printed ones (†) apart")
        notes = [f"{letter} {text}" for letter, text in self.notes.items()]
        return "\n".join([*lines, *self.sentences, *notes, "\n"])

    @property
    def width(self) -> int:
        """Characters of its longest line, about."""
        return len(self.text.splitlines()[1]) if self.lines else 0


def printed_sheet(grid: Grid, *, only_published: bool = False) -> Sheet:
    """A table in print: printed numbers below ours, never in one mean or mark with them.

    Args:
        only_published: its numbers are the printed ones, or computed from them.
    """
    own = {key: entry.value for key, entry in grid.shown.items() if entry.state == "ours"}
    printed = {key: entry.printed for key, entry in grid.shown.items() if entry.printed}
    cautions = [set(number.cautions) for number in printed.values()]
    common = set[str]().union(*cautions).intersection(*cautions)
    marks = _marks(grid, own)
    printed_marks = _marks(grid, {key: number.value for key, number in printed.items()})
    letters: dict[str, str] = {}

    def noted(texts: list[str]) -> str:
        for text in texts:
            number = len(letters)
            letters.setdefault(text, _LETTERS[number % 26] * (1 + number // 26))
        return ",".join(sorted(letters[text] for text in texts))

    def ours(key: tuple[str, str]) -> Shown:
        entry = grid.entries[key]
        is_quiet = entry.state in ("missing", "stand-in")
        return Shown(entry.text, noted([*entry_notes(entry)]), marks.get(key, ""), is_quiet)

    def published(key: tuple[str, str]) -> Shown:
        if key not in printed:
            return Shown()
        number = printed[key]
        texts = [f"printed: {text}" for text in number.cautions if text not in common]
        spread = f" ± {number.std}" if number.std else ""
        return Shown(f"{number.printed}{spread}", noted(texts), printed_marks.get(key, ""))

    lines: list[tuple[str, bool, tuple[Shown, ...]]] = []
    is_shown = not only_published or not set(grid.columns) & grid.table.columns.keys()
    for name, keys in _lines(grid):
        if is_shown:
            lines.append((name, False, tuple(map(ours, keys))))
        if any(key in printed for key in keys):
            lines.append((name, True, tuple(map(published, keys))))
    sentences = [*_sentences(grid, only_published)]
    sentences += [f"Printed numbers: {text}." for text in sorted(common)]
    columns = tuple(grid.rows) if grid.table.transposed else grid.columns
    notes = {letter: text for text, letter in letters.items()}
    return Sheet(grid, columns, tuple(lines), notes, tuple(sentences))


def _lines(grid: Grid) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The lines in print, each with its cells."""
    if grid.table.transposed:
        for column in grid.columns:
            yield column, [(row, column) for row in grid.rows]
        return
    for row in grid.rows:
        yield row, [(row, column) for column in grid.columns]


def _marks(grid: Grid, values: dict[tuple[str, str], float]) -> dict[tuple[str, str], str]:
    """The best and the second value of each column, as far as their digits tell."""
    marks: dict[tuple[str, str], str] = {}
    for column in grid.columns:
        own = {key: value for key, value in values.items() if key[1] == column}
        if len(own) > 1 and column not in _tests(grid):
            first = grid.entries[next(iter(own))]
            values_of = pd.Series(own).round(first.digits)
            ranks = values_of.rank(method="dense", ascending=first.mode == "min").to_dict()
            words = {1.0: "best", 2.0: "second"}
            marks |= {key: words.get(rank, "") for key, rank in ranks.items()}
    return marks


def _tests(grid: Grid) -> list[str]:
    return [name for name, column in grid.table.derived.items() if column.kind == "wilcoxon"]


def entry_notes(entry: Entry) -> Iterator[str]:
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
        for key, entry in grid.shown.items():
            if number := entry.printed:
                _, _, digits = number.printed.partition(".")
                if abs(entry.value - number.value) > 0.5000001 * 10.0 ** -len(digits):
                    words = f"printed {number.printed}, its cells give {entry.text}"
                    yield f"{' '.join(key)}: {words}."
        return
    states = Counter(entry.state for entry in grid.shown.values())
    counts = [f"{states[state]} {state}" for state in STATES if states[state]]
    yield f"{quantity(len(grid.shown), 'cell')}: {', '.join(counts) or 'none'}."
    compared = [entry for entry in grid.shown.values() if entry.is_comparable]
    pairs = [entry.value - entry.printed.value for entry in compared if entry.printed]
    gaps = pd.Series(pairs, dtype=float).round(9)
    near = gaps.between(-grid.table.tolerance, grid.table.tolerance)
    words = f"{near.sum()} within {grid.table.tolerance:.1f} points"
    words += f", {(gaps[~near] < 0).sum()} below, {(gaps[~near] > 0).sum()} above"
    yield f"{quantity(len(gaps), 'comparable cell')}: {words}."
