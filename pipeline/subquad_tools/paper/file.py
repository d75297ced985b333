"""What a paper's file says: its studies, and its tables' rows, columns and printed numbers.

A built-in one is a YAML file in the folder `papers` of a package's recipes, a user's own has a
path. The format: docs/how-to/paper.md.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from subquad.errors import ConfigError
from subquad.experiment.axes import read_model
from subquad.experiment.refusals import Given, top_of
from subquad.experiment.sources import is_path, stem
from subquad.experiment.strict_yaml import parse_yaml, read_text
from subquad.plugin import Config
from subquad.registry import recipes
from subquad.registry.allowed import NAME_PATTERN
from subquad.reports.published import published_tables
from subquad.suggest import did_you_mean
from subquad_tools.paper import Size


def _short(key: str, *inner: str) -> BeforeValidator:
    """A mapping may be given as text alone: the value of this key."""

    def long(given: Any) -> Any:
        if not isinstance(given, str):
            return given
        for name in (*inner, key):
            given = {name: given}
        return given

    return BeforeValidator(long)


_Digits = Annotated[int, Field(ge=0, le=9)]


class _Printed(Config):
    """What the printed table calls a number, where that is not as here.

    Attributes:
        published: its row's or column's name.
        published_metric: its metric.
        digits: behind the point.
    """

    published: str | None = None
    published_metric: str | None = None
    digits: _Digits | None = None


class PaperLine(_Printed):
    """A row or a column.

    Attributes:
        runs: labels of its runs, by the axis of the study.
        transfer: labels in which the runs differ whose weights its runs get instead of training.
        untrained: those weights are the ones that training begins with.
        metric: of a column, in place of its table's.
        layer: of what is measured of each layer, from 1.
        scale: what a column's values are multiplied by.
        missing: why nothing can be trained for it.
        hidden: only what is computed from it is printed.
    """

    runs: dict[str, str] = Field({})
    transfer: dict[str, str] = Field({})
    untrained: bool = False
    metric: str | None = None
    layer: Annotated[int, Field(ge=1)] | None = None
    scale: float = 1.0
    missing: str = ""
    hidden: bool = False


class Derived(_Printed):
    """A column that is computed from others, row by row.

    Attributes:
        kind: mean; rank, the mean rank; ratio to a row, or its inverse, in the mean; wilcoxon, the
            p of the signed-rank test against a row.
        of: these columns; none: all.
        to: that row.
        table: where it is printed, if that is another table.
        published_row: what that calls a row, with `{row}` for its name.
    """

    kind: Literal["mean", "rank", "ratio", "inverse", "wilcoxon"]
    of: list[str] = Field([])
    to: str = ""
    table: str = ""
    published_row: str = "{row}"


class PaperTable(Config):
    """A table, or a figure's numbers.

    Attributes:
        title: its caption.
        study: where its runs come from; "" where nothing that is trained makes them.
        where: labels that all its runs have.
        rows, columns: in print, in order; a text is the label of a mixer, or of a data set.
        derived: columns behind these; a text is its kind.
        transposed: it is printed with its columns as rows.
        metric: what a cell shows: one of the task, or of `MEASURED`.
        published: the table of the paper's source; "" for `Table` and its name.
        conditions: tables whose conditions hold for its numbers too.
        never: why no cell is comparable.
        tolerance: difference that still counts as reproduced, in the unit of print.
        command: what makes it where no study does.
        chart: what is drawn of it: a line for each row over the columns, whose names are numbers;
            or a point for each row and two columns, x and y.
        axes: what its axes are called, x and y.
    """

    title: Annotated[str, Field(min_length=1)]
    study: str = ""
    where: dict[str, str] = Field({})
    rows: dict[str, Annotated[PaperLine, _short("runs", "mixer")]] = Field({})
    columns: dict[str, Annotated[PaperLine, _short("runs", "dataset")]] = Field({})
    derived: dict[str, Annotated[Derived, _short("kind")]] = Field({})
    transposed: bool = False
    metric: str = "accuracy"
    digits: _Digits = 2
    published: str = ""
    conditions: tuple[str, ...] = ()
    never: str = ""
    tolerance: float = Field(1.0, ge=0)
    command: str = ""
    chart: Literal["", "lines", "points"] = ""
    axes: tuple[str, str] = ("", "")


_Experiment = Annotated[dict[str, Any], _short("extends")]
"""A recipe's name, or what an experiment's file says."""


class _Said(Config):
    """All of it; a study has an experiment for each size, and one that is a text is that recipe, in
    full size.
    """

    format: Literal[1]
    title: Annotated[str, Field(min_length=1)]
    source: str = ""
    studies: dict[str, Annotated[dict[Size, _Experiment], _short("full")]] = Field({})
    tables: dict[str, PaperTable] = Field(min_length=1)


@dataclass(frozen=True)
class Paper:
    """A paper.

    Attributes:
        name: of its folder.
        said: by its file.
        place: the file's content, for messages.
        folder: what paths in it are relative to.
        sha256: of the file.
    """

    name: str
    said: _Said
    place: Given
    folder: Path
    sha256: str

    @property
    def tables(self) -> dict[str, PaperTable]:
        """In its order."""
        return self.said.tables

    def experiment(self, study: str, size: str) -> dict[str, Any] | None:
        """What an experiment's file would say; None where there is no such study or size."""
        return {**self.said.studies.get(study, {})}.get(size)


def open_paper(target: str) -> Paper:
    """Read a file, of a package or at a path.

    Raises:
        ConfigError: there is none, or what is wrong with it, with line and key.
    """
    if is_path(target):
        path = Path(target)
        text = read_text(path, target)
        folder = path.absolute().parent
    else:
        known = recipes(below="papers")
        refuse_unknown(target, known, "paper")
        text = known[target].text()
        folder = Path.cwd()
    place = top_of(parse_yaml(text, f"paper {target}", folder, aliases=True))
    said = read_model(_Said, place)
    if said.source:
        sources = {source for table in published_tables() for source in table.sources}
        refuse_unknown(said.source, sources, "source of published numbers", place.at("source"))
    for name in (*said.studies, *said.tables):
        if not re.fullmatch(NAME_PATTERN, name):
            raise place.wrong(
                f"{name!r}: a name of a study or table has letters, digits, '.' and '-' only"
            )
    for name, table in said.tables.items():
        _refuse(place.at("tables").at(name), table, said)
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", stem(Path(target).name))
    return Paper(name, said, place, folder, hashlib.sha256(text.encode()).hexdigest())


def _refuse(at: Given, table: PaperTable, said: _Said) -> None:
    """Refuse names that are not in the file, and a table that nothing makes."""
    if table.study:
        refuse_unknown(table.study, said.studies, "study", at.at("study"))
    elif not table.command:
        raise at.wrong("has neither a study nor the command that makes it")
    if table.chart == "lines" and not all(map(_is_number, table.columns)):
        raise at.at("chart").wrong("the columns of lines have numbers as names")
    if table.chart == "points" and len(table.columns) % 2:
        raise at.at("chart").wrong("points need columns in pairs, x and y")
    for name, derived in table.derived.items():
        place = at.at("derived").at(name)
        for column in derived.of:
            refuse_unknown(column, table.columns, "column", place)
        if derived.kind not in ("mean", "rank"):
            refuse_unknown(derived.to, table.rows, "row", place)
        if name in table.columns:
            raise place.wrong("is a column already; give it another name")


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def refuse_unknown(
    name: str, known: Collection[str], kind: str, place: Given | None = None
) -> None:
    """Refuse a name that is not known, with the nearest one.

    Raises:
        ConfigError: where it stands, and what there is.
    """
    if name in known:
        return
    message = f"no {kind} {name!r}"
    message += did_you_mean(name, known) or f"; there is {', '.join(known) or 'none'}"
    raise place.wrong(message) if place else ConfigError(message)
