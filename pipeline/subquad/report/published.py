"""Published rows beside our own: comparable, or not and why. The rows are other packages' (group `subquad.published`).

A package offers a folder of YAML files, each a table of printed numbers with the conditions they were obtained under.
The format: docs/how-to/published-table.md. No code of the package runs.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from subquad.registry.files import Recipe, yaml_files
from subquad.registry.found import Found
from subquad.report.rows import TableRow
from subquad.report.run import ReportedRun

_SELECTION = {
    "honest": "checkpoint chosen on validation",
    "fixed": "last epoch of a fixed length",
    "paper": "best test accuracy over epochs",
}


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Caution(_Strict):
    """What a reader of the rows that fit every given key must know; `target`: whether anybody should aim at them."""

    source: str | None = None
    table: str | None = None
    model: str | None = None
    benchmark: str | None = None
    value: float | None = None
    text: str
    target: bool = True


class _Conditions(_Strict):
    """How the rows of some tables were obtained."""

    source: str
    tables: list[str]
    models: list[str] | None = None
    protocol: tuple[str, str]
    protocols: dict[str, tuple[str, str]] = Field(default_factory=dict)
    expect: dict[str, tuple[str, Any]] = Field(default_factory=dict)
    exceptions: dict[str, dict[str, tuple[str, Any]]] = Field(default_factory=dict, alias="except")
    samples: dict[str, int]
    mixer: dict[str, dict[str, list[dict[str, Any]]]] = Field(default_factory=dict)
    seeds: int | None = None
    never: str = ""


class _Varied(_Strict):
    """A table that changes one setting around the chosen ones; `variants`: of the main row's so many count."""

    source: str
    table: str
    model: str
    main: dict[str, str]
    variants: int | None = None


class _File(_Strict):
    """A published table as its YAML file has it; `rows` is CSV, or lies beside the file as NAME.csv."""

    format: Literal[1]
    sources: dict[str, str] = Field(default_factory=dict)
    models: dict[str, list[str]]
    tables: dict[str, list[str]]
    varied: dict[str, dict[str, list[_Varied]]] = Field(default_factory=dict)
    conditions: list[_Conditions] = Field(default_factory=list)
    cautions: list[_Caution] = Field(default_factory=list)
    rows: str = ""


class _PublishedRow(_Strict):
    """One printed number.

    Attributes:
        value: as printed, in `unit`.
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
    std: str = ""
    unit: str
    cautions: tuple[str, ...] = ()
    target: bool = True

    @property
    def reference(self) -> str:
        """`doe2026 Table 1`."""
        return f"{self.source} {self.table}"


@dataclass(frozen=True, kw_only=True)
class Beside:
    """A published row and whether a run's row may be held against it.

    Attributes:
        reasons: every condition that differs; empty where comparable.
    """

    published: _PublishedRow
    reasons: tuple[str, ...]

    @property
    def in_short(self) -> str:
        """`98.7 (not comparable)`."""
        return f"{self.published.value:g} ({'not ' if self.reasons else ''}comparable)"

    def verdict(self, limit: int | None = None) -> str:
        """Comparable, or not and why; with a limit the first reasons, and how many more there are."""
        if not self.reasons:
            return "comparable"
        left = len(self.reasons) - (limit or len(self.reasons))
        more = [f"and {left} more"] if left > 0 else []
        return f"not comparable: {'; '.join([*self.reasons[:limit], *more])}"


@dataclass(frozen=True)
class _PublishedTable:
    """What one file says.

    Attributes:
        rows: every printed number.
        rules: all else.
    """

    rows: tuple[_PublishedRow, ...]
    rules: _File

    def find(self, mixer: str, benchmark: str, metric: str) -> list[_PublishedRow]:
        """Rows of a mixer on a benchmark, from the tables that report results."""
        models, tables = self.rules.models.get(mixer, []), self.rules.tables
        return [
            row
            for row in self.rows
            if row.model in models
            and (row.benchmark, row.metric) == (benchmark, metric)
            and row.table in tables.get(row.source, [])
        ]

    def find_varied(self, mixer: str, key: str, benchmark: str, metric: str) -> list[tuple[float, _PublishedRow]]:
        """Rows for values of one setting of a mixer, with the values, from the tables that change it alone."""
        found = [
            (float(row.model.removeprefix(rule.model)), row)
            for rule in self.rules.varied.get(mixer, {}).get(key, [])
            for row in self.rows
            if (row.source, row.table, row.benchmark, row.metric) == (rule.source, rule.table, benchmark, metric)
            and row.model.startswith(rule.model)
        ]
        return sorted(found, key=lambda one: one[0])

    def beside(self, row: TableRow, published: _PublishedRow) -> Beside:
        """A row beside one of `find`."""
        rule = self.conditions(published)
        variants = rule.mixer.get(row.mixer, {}).get(published.benchmark, []) if rule else []
        return Beside(published=published, reasons=tuple(_reasons(row, published, rule, variants)))

    def beside_varied(self, row: TableRow, key: str, value: float, published: _PublishedRow) -> Beside:
        """A row beside one of `find_varied`: the main table's conditions, with the value in place of the chosen one."""
        varied = next(
            one
            for one in self.rules.varied[row.mixer][key]
            if (one.source, one.table) == (published.source, published.table)
        )
        rule = self.conditions(published.model_copy(update=varied.main))
        known = rule.mixer.get(row.mixer, {}).get(published.benchmark, []) if rule else []
        variants = [{**one, key.removeprefix("mixer.params."): value} for one in known[: varied.variants]]
        return Beside(published=published, reasons=tuple(_reasons(row, published, rule, variants)))

    def conditions(self, row: _PublishedRow) -> _Conditions | None:
        """How a row was obtained, None where that is not known: the first entry that names it."""
        for rule in self.rules.conditions:
            named = rule.source == row.source and row.table in rule.tables and row.benchmark in rule.samples
            if named and row.model in (rule.models or [row.model]):
                return rule
        return None


def published_beside(row: TableRow) -> list[Beside]:
    """Published rows of the row's mixer on its data set, each with its verdict."""
    where = (row.mixer, _benchmark(row), row.metric)
    return [table.beside(row, one) for table in published_tables() for one in table.find(*where)]


def varied_beside(row: TableRow, key: str) -> list[Beside]:
    """Published rows for the row's value of one setting, from the tables that change it alone."""
    value, where = _first_run(row).experiment.get(key), (row.mixer, key, _benchmark(row), row.metric)
    return [
        table.beside_varied(row, key, printed, one)
        for table in published_tables()
        for printed, one in table.find_varied(*where)
        if printed == value and isinstance(value, int | float)
    ]


def printed_values(row: TableRow, key: str) -> list[tuple[float, _PublishedRow]]:
    """Every published value of one setting of the row's mixer on its data set."""
    where = (row.mixer, key, _benchmark(row), row.metric)
    return [one for table in published_tables() for one in table.find_varied(*where)]


def source_title(source: str) -> str:
    """The paper behind a source's short name."""
    return next((table.rules.sources[source] for table in published_tables() if source in table.rules.sources), source)


def published_tables() -> list[_PublishedTable]:
    """The tables of all installed packages; those that cannot be used are left out (`published_faults`)."""
    return [found for _, found in _found() if isinstance(found, _PublishedTable)]


def published_faults(plugin: Found | None = None) -> list[str]:
    """What is wrong with the files of all packages, or of one, a line each."""
    return [found for file, found in _found() if isinstance(found, str) and plugin in (None, file.found)]


def _found() -> list[tuple[Recipe, _PublishedTable | str]]:
    return [(file, _read(file.path, str(file.found))) for file in yaml_files("published")]


@cache
def _read(path: Path, owner: str) -> _PublishedTable | str:
    """A published table, or in one line what is wrong with its file."""
    try:
        rules = _File.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
        text = rules.rows or path.with_suffix(".csv").read_text(encoding="utf-8")
        rows = [_PublishedRow.model_validate(record) for record in csv.DictReader(text.splitlines())]
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return f"{owner}: {path.name}: {where}: {first['msg'].lower()}"
    except (OSError, ValueError, yaml.YAMLError) as error:
        return f"{owner}: {path.name}: {' '.join(str(error).split())}"
    return _PublishedTable(tuple(_cautioned(row, rules.cautions) for row in rows), rules)


def _cautioned(row: _PublishedRow, cautions: list[_Caution]) -> _PublishedRow:
    fitting = [one for one in cautions if _fits(one, row)]
    told = {"cautions": tuple(one.text for one in fitting), "target": all(one.target for one in fitting)}
    return row.model_copy(update=told)


def _fits(caution: _Caution, row: _PublishedRow) -> bool:
    given = caution.model_dump(include={"source", "table", "benchmark", "model", "value"}, exclude_none=True)
    return all(getattr(row, key) == value for key, value in given.items())


def _first_run(row: TableRow) -> ReportedRun:
    return next(iter(row.counted or row.runs))


def _benchmark(row: TableRow) -> str:
    result = _first_run(row).result
    return result.published_keys.get("benchmark", row.dataset) if result else row.dataset


def _reasons(
    row: TableRow, published: _PublishedRow, rule: _Conditions | None, variants: list[dict[str, Any]]
) -> Iterator[str]:
    if rule is None:
        yield "conditions unknown"
    elif rule.never:
        yield rule.never
    else:
        yield from _differences(row, published.benchmark, rule, variants)
    if not row.counted:
        yield "no finished run"
    if any("stand-in" in note for note in row.notes):
        yield "stand-in data, published: the real data"
    if not published.target:
        yield from published.cautions[:1]


def _differences(row: TableRow, benchmark: str, rule: _Conditions, variants: list[dict[str, Any]]) -> Iterator[str]:
    run, own = _first_run(row), rule.exceptions.get(benchmark, {})
    expect = {**own, **rule.expect, **own}  # the benchmark's own come first
    protocol, words = rule.protocols.get(benchmark, rule.protocol)
    if row.protocol != protocol:
        for key, (_, value) in expect.items():
            words = words.replace(f"{{{key}}}", str(value))
        yield f"{_SELECTION.get(row.protocol, row.protocol)}, published: {words}"
    yield from _unlike(run, expect)
    params = [{f"mixer.params.{key}": (key, value) for key, value in one.items()} for one in variants]
    yield from min((list(_unlike(run, one)) for one in params), key=len, default=[])
    samples, printed = run.test_samples, rule.samples[benchmark]
    if samples is not None and samples != printed:
        yield f"{samples} test samples, published {printed}"
    if row.counted and rule.seeds is not None and len(row.seeds) < rule.seeds:
        yield f"{len(row.seeds)} of the {rule.seeds} seeds that the published mean has"


def _unlike(run: ReportedRun, expect: Mapping[str, tuple[str, Any]]) -> Iterator[str]:
    for key, (word, value) in expect.items():
        if key not in run.experiment:
            yield f"{word} not stated, published {_said(value)}"
        elif not _same(run.experiment[key], value):
            yield f"{word} {_said(run.experiment[key])}, published {_said(value)}"


def _same(found: Any, value: Any) -> bool:
    if isinstance(value, list):  # any of them
        return any(_same(found, one) for one in value)
    if isinstance(found, bool) or isinstance(value, bool):
        return found is value
    numbers = isinstance(found, int | float) and isinstance(value, int | float)
    return found == value if numbers else str(found) == str(value)


def _said(value: Any) -> str:
    if isinstance(value, list):
        return _said(value[0])
    if value is None or isinstance(value, bool):
        return {None: "none", True: "on", False: "off"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)
