"""Published rows, and how they were obtained. They are other packages' (group
`subquad.published`).

A package offers a folder of YAML files, each a table of printed numbers with the conditions they
were obtained under. The format: docs/how-to/published-table.md. No code of the package runs.
"""

from __future__ import annotations

import csv
from collections import ChainMap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from subquad.errors import ConfigError, in_one_line
from subquad.experiment.strict_yaml import parse_yaml, read_text
from subquad.record.models import Part
from subquad.registry.found import Found
from subquad.registry.shipped import folders


class _Strict(Part, extra="forbid"):
    """A part of a published table."""


class _Caution(_Strict):
    """What a reader of the rows that fit every given key must know; `target`: whether anybody
    should aim at them.
    """

    source: str | None = None
    table: str | None = None
    model: str | None = None
    benchmark: str | None = None
    value: float | None = None
    text: str
    target: bool = True

    def fits(self, row: PublishedRow) -> bool:
        given = self.model_dump(exclude={"text", "target"}, exclude_none=True)
        return given.items() <= vars(row).items()


class Conditions(_Strict):
    """How the rows of some tables were obtained."""

    source: str
    tables: list[str]
    models: list[str] | None = None
    protocol: tuple[str, str]
    protocols: dict[str, tuple[str, str]] = Field({})
    expect: dict[str, tuple[str, Any]] = Field({})
    exceptions: dict[str, dict[str, tuple[str, Any]]] = Field({}, alias="except")
    samples: dict[str, int | None]
    mixer: dict[str, dict[str, list[dict[str, Any]]]] = Field({})
    seeds: int | None = None
    never: str = ""


class Varied(_Strict):
    """A table that changes one setting around the chosen ones; `variants`: of the main row's so
    many count.
    """

    source: str
    table: str
    model: str
    main: dict[str, str]
    variants: int | None = None


class PublishedRow(_Strict):
    """One printed number.

    Attributes:
        value: in `unit`.
        printed: the same with the digits of the paper: 38.0 is not 38.
        std: as printed; "" where none is.
        cautions: what a reader of it must know.
        target: False for a number nobody should try to reach.
    """

    source: str
    table: str
    model: str
    benchmark: str
    metric: str
    value: float
    printed: str
    std: str = ""
    unit: str
    cautions: tuple[str, ...] = ()
    target: bool = True

    @property
    def text(self) -> str:
        """As printed: `84.2 ± 0.3`."""
        return f"{self.printed} ± {self.std}" if self.std else self.printed

    @property
    def reference(self) -> str:
        """`doe2026 Table 1`."""
        return f"{self.source} {self.table}"


@dataclass(frozen=True, kw_only=True)
class Beside:
    """A published row, and every condition in which a run's row differs: none where they are
    comparable.
    """

    published: PublishedRow
    reasons: tuple[str, ...]

    @property
    def in_short(self) -> str:
        """`98.0 (not comparable)`."""
        return f"{self.published.printed} ({'not ' if self.reasons else ''}comparable)"

    @property
    def verdict(self) -> str:
        """Comparable, or not and why."""
        return f"not comparable: {'; '.join(self.reasons)}" if self.reasons else "comparable"


class PublishedTable(_Strict):
    """What one file says; its `rows` are CSV there, or lie beside it as NAME.csv.

    Attributes:
        no_mixer: why names of rows stand in no entry of `models`.
    """

    format: Literal[1]
    sources: dict[str, str] = Field({})
    models: dict[str, list[str]]
    no_mixer: dict[str, list[str]] = Field({})
    tables: dict[str, list[str]]
    varied: dict[str, dict[str, list[Varied]]] = Field({})
    conditions: list[Conditions] = Field([])
    cautions: list[_Caution] = Field([])
    rows: tuple[PublishedRow, ...]

    def find(self, mixer: str, benchmark: str, metric: str, label: str = "") -> list[PublishedRow]:
        """Rows of a mixer on a benchmark, from the tables that report results; those of a label,
        where it has some.

        What a paper prints again in a later of these tables is left out.
        """
        found = [
            row
            for row in self.rows
            if row.benchmark == benchmark
            and row.metric == metric
            and row.model in self.models.get(label, self.models.get(mixer, []))
        ]
        first = {}
        for source, tables in self.tables.items():
            printed = {row.table for row in found if row.source == source}
            first[source] = next(filter(printed.__contains__, tables), None)
        return [row for row in found if row.table == first.get(row.source)]

    def find_varied(
        self, mixer: str, key: str, benchmark: str, metric: str
    ) -> list[tuple[float, PublishedRow, Varied]]:
        """Rows for values of one setting of a mixer, with the values, from the tables that
        change it alone.
        """
        found = [
            (float(row.model.removeprefix(rule.model)), row, rule)
            for rule in self.varied.get(mixer, {}).get(key, [])
            for row in self.rows
            if (row.source, row.table, row.benchmark, row.metric)
            == (rule.source, rule.table, benchmark, metric)
            and row.model.startswith(rule.model)
        ]
        return sorted(found, key=lambda printed: printed[0])

    def conditions_of(self, row: PublishedRow) -> Conditions | None:
        """How a row was obtained, None where that is not known: the first entry that names it."""
        for rule in self.conditions:
            is_of_table = rule.source == row.source and row.table in rule.tables
            is_of_model = not rule.models or row.model in rule.models
            if is_of_table and is_of_model and row.benchmark in rule.samples:
                return rule
        return None


def source_title(source: str) -> str:
    """The paper behind a source's short name."""
    titles = ChainMap(*[table.sources for table in published_tables()])
    return titles.get(source, source)


def published_tables() -> list[PublishedTable]:
    """The tables of all installed packages; those that cannot be used are left out
    (`published_faults`).
    """
    return [found for _, found in _files() if isinstance(found, PublishedTable)]


def published_faults(plugin: Found | None = None) -> list[str]:
    """What is wrong with the files of all packages, or of one, a line each."""
    return [
        found for owner, found in _files() if isinstance(found, str) and plugin in (None, owner)
    ]


def _files() -> Iterator[tuple[Found, PublishedTable | str]]:
    for owner, folder in folders("published"):
        for path in sorted(folder.glob("*.yaml")):
            yield owner, _read(path, str(owner))


@cache
def _read(path: Path, owner: str) -> PublishedTable | str:
    """A published table, or in one line what is wrong with its file."""
    try:
        data = parse_yaml(read_text(path, path.name), path.name, aliases=True).data
        if isinstance(data, dict):
            text = data.get("rows") or path.with_suffix(".csv").read_text(encoding="utf-8")
            data["rows"] = [
                {**row, "printed": row.get("value")}
                for row in csv.DictReader(str(text).splitlines())
            ]
        table = PublishedTable.read(data)
    except (OSError, ValueError, ConfigError) as error:
        return f"{owner}: {path.name}: {in_one_line(error)}"
    rows = []
    for row in table.rows:
        fitting = [caution for caution in table.cautions if caution.fits(row)]
        update = {
            "cautions": tuple(caution.text for caution in fitting),
            "target": all(caution.target for caution in fitting),
        }
        rows.append(row.model_copy(update=update))
    return table.model_copy(update={"rows": tuple(rows)})
