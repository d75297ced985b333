"""What a paper's file says: its studies, and its tables' rows, columns and printed numbers.

A built-in one is a YAML file in the folder `papers` of a package's recipes, a user's own has a
path. The format: docs/how-to/paper.md.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from subquad.errors import ConfigError
from subquad.experiment.axes import read_model
from subquad.experiment.refusals import Given, top_of
from subquad.experiment.sources import is_path, stem
from subquad.experiment.strict_yaml import parse_yaml, read_text
from subquad.plugin import Config
from subquad.registry import Recipe, recipes
from subquad.reports.published import published_tables
from subquad.suggest import did_you_mean

_Words = Annotated[str, Field(min_length=1, max_length=100)]


class Line(Config):
    """A row or a column.

    Attributes:
        runs: labels of its runs, by the axis of the study.
        published: what the printed table calls it; None: a row's own name, a column's data set.
        published_metric: of a column, what the printed table calls the metric.
        metric, digits, scale: of a column, in place of its table's.
        missing: why nothing can be trained for it.
        hidden: a column that only others are computed from.
    """

    runs: dict[str, str] = Field({})
    published: str | None = None
    published_metric: str | None = None
    metric: str | None = None
    digits: int | None = Field(None, ge=0, le=9)
    scale: float = 1.0
    missing: str = ""
    hidden: bool = False


class Derived(Config):
    """A column that is computed from others, row by row.

    Attributes:
        kind: mean; rank, the mean of the ranks in each column; ratio to a row, or its inverse, both
            the mean over the columns.
        of: these columns; none: all.
        to: the row of a ratio.
        published: what the printed table has in place of the data set.
        published_metric: and of the metric.
    """

    kind: Literal["mean", "rank", "ratio", "inverse"]
    of: tuple[str, ...] = ()
    to: str = ""
    published: str = "average"
    published_metric: str | None = None
    digits: int | None = Field(None, ge=0, le=9)


class Test(Config):
    """Wilcoxon's signed-rank test of a row against each other one, over the columns of a table.

    Attributes:
        of: the table.
        against: the row that the others are held against.
        published: what the printed table has in place of a data set.
        published_metric: and of a metric.
    """

    of: str
    against: str
    published: str
    published_metric: str


class Table(Config):
    """A table, or a figure's numbers.

    Attributes:
        title: its caption.
        study: where its runs come from; "" where nothing that is trained makes them.
        where: labels that all its runs have.
        rows, columns: their names in print, in order, with the label of a mixer or of a data set,
            or a `Line`.
        derived: columns behind these.
        transposed: it is printed with its columns as rows.
        metric: what a cell shows: one of the task, or of `MEASURED`.
        digits: after the point; None: the metric's.
        published: the table of the paper's source; None: `Table` and its name, "" for none.
        published_metric: what that calls the metric; None: by its own name.
        conditions: tables whose conditions hold for its numbers too.
        never: why no cell is comparable.
        tolerance: difference that still counts as reproduced, in the unit of print.
        test: it has a test of another table in place of rows and columns.
        command: what makes it where no study does.
    """

    title: _Words
    study: str = ""
    where: dict[str, str] = Field({})
    rows: dict[_Words, str | Line] = Field({})
    columns: dict[_Words, str | Line] = Field({})
    derived: dict[_Words, Literal["mean", "rank"] | Derived] = Field({})
    transposed: bool = False
    metric: str = "accuracy"
    digits: int | None = Field(None, ge=0, le=9)
    published: str | None = None
    published_metric: str | None = None
    conditions: tuple[str, ...] = ()
    never: str = ""
    tolerance: float = Field(1.0, ge=0)
    test: Test | None = None
    command: str = ""

    @property
    def lines(self) -> dict[str, Line]:
        """The rows."""
        return _lines(self.rows, "mixer")

    @property
    def places(self) -> dict[str, Line]:
        """The columns, without those that are computed."""
        return _lines(self.columns, "dataset")

    @property
    def computed(self) -> dict[str, Derived]:
        """Those."""
        return {
            name: Derived(kind=given) if isinstance(given, str) else given
            for name, given in self.derived.items()
        }


def _lines(given: dict[str, str | Line], axis: str) -> dict[str, Line]:
    return {
        name: Line(runs={axis: line}) if isinstance(line, str) else line
        for name, line in given.items()
    }


_Experiment = str | dict[str, Any] | None


class Sizes(Config):
    """A study in each size: a recipe's name, or what an experiment's file says."""

    full: _Experiment = None
    small: _Experiment = None
    smoke: _Experiment = None


class _Paper(Config):
    """All of it. A study that is one experiment is that of the full size."""

    format: Literal[1]
    title: _Words
    source: str = ""
    studies: dict[str, str | Sizes] = Field({})
    tables: dict[_Words, Table] = Field(min_length=1)


@dataclass(frozen=True)
class Paper:
    """A paper.

    Attributes:
        name: of its folder.
        title: whose tables these are.
        source: of published numbers; "" for none.
        studies: what an experiment's file would say, by study and size.
        tables: tables and figures, in order.
        place: the file's content, for messages.
        folder: what paths in it are relative to.
        sha256: of the file.
    """

    name: str
    title: str
    source: str
    studies: dict[str, dict[str, dict[str, Any]]]
    tables: dict[str, Table]
    place: Given
    folder: Path
    sha256: str

    def at(self, table: str) -> Given:
        """A table's place in the file."""
        return self.place.at("tables").at(table)


def known_papers() -> dict[str, Recipe]:
    """The files that packages ship, by name."""
    return recipes(below="papers")


def open_paper(target: str) -> Paper:
    """Read a file, of a package or at a path.

    Raises:
        ConfigError: there is none, or what is wrong with it, with line and key.
    """
    if is_path(target):
        path = Path(target)
        return _read(read_text(path, target), target, path.absolute().parent, stem(path.name))
    known = known_papers()
    if target not in known:
        there = did_you_mean(target, known) or f"; there is {', '.join(known) or 'none'}"
        raise ConfigError(f"paper {target!r}: no such paper{there}")
    return _read(known[target].text(), f"paper {target}", Path.cwd(), target)


def _read(text: str, source: str, folder: Path, name: str) -> Paper:
    place = top_of(parse_yaml(text, source, folder, aliases=True))
    read = read_model(_Paper, place)
    _refuse_names(name, place, read)
    studies = {key: _by_size(given) for key, given in read.studies.items()}
    for key, table in read.tables.items():
        _refuse_table(place.at("tables").at(key), table, read)
    if read.source:
        sources = {source for table in published_tables() for source in table.sources}
        expect_known(place.at("source"), read.source, sources, "source of published numbers")
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Paper(name, read.title, read.source, studies, read.tables, place, folder, digest)


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,39}")


def _refuse_names(name: str, place: Given, read: _Paper) -> None:
    """Refuse what cannot be the name of a file or folder."""
    if not _NAME.fullmatch(name):
        raise place.wrong(f"its name, {name!r}, must be at most 40 letters, digits, '.' and '-'")
    for key in (*read.tables, *read.studies):
        if not _NAME.fullmatch(key):
            raise place.wrong(f"{key!r}: a name must be at most 40 letters, digits, '.' and '-'")


def _by_size(given: str | Sizes) -> dict[str, dict[str, Any]]:
    sizes = Sizes(full=given) if isinstance(given, str) else given
    return {
        size: {"extends": experiment} if isinstance(experiment, str) else experiment
        for size, experiment in sizes
        if experiment is not None
    }


def _refuse_table(at: Given, table: Table, read: _Paper) -> None:
    """Refuse names that are not in the file, and a table that is of two kinds or of none."""
    if table.study:
        expect_known(at.at("study"), table.study, read.studies, "study")
    if table.test:
        other = read.tables.get(table.test.of)
        expect_known(at.at("test").at("of"), table.test.of, read.tables, "table")
        assert other is not None
        expect_known(at.at("test").at("against"), table.test.against, other.rows, "row")
    elif not (table.rows and table.columns) and not table.command:
        raise at.wrong("needs rows and columns, a test, or the command that makes it")
    for name, column in table.computed.items():
        place = at.at("derived").at(name)
        for other in column.of:
            expect_known(place.at("of"), other, table.columns, "column")
        if column.kind in ("ratio", "inverse"):
            expect_known(place.at("to"), column.to, table.rows, "row")
        if name in table.columns:
            raise place.wrong("is a column already; give it another name")


def expect_known(place: Given, name: str, known: Collection[str], kind: str) -> None:
    if name not in known:
        hint = did_you_mean(name, known) or f"; there is {', '.join(known) or 'none'}"
        raise place.wrong(f"no {kind} {name!r}{hint}")
