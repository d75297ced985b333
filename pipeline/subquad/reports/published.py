"""Published rows beside our own: comparable, or not and why. The rows are other packages' (group
`subquad.published`).

A package offers a folder of YAML files, each a table of printed numbers with the conditions they
were obtained under. The format: docs/how-to/published-table.md. No code of the package runs.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from subquad.errors import ConfigError
from subquad.experiment.strict_yaml import parse_yaml, read_text
from subquad.registry.found import Found
from subquad.registry.shipped import folders
from subquad.reports.reported_run import FilePart
from subquad.reports.rows import TableRow
from subquad.reports.text import Values

_SELECTION = {
    "honest": "checkpoint chosen on validation",
    "fixed": "last epoch of a fixed length",
    "paper": "best test accuracy over epochs",
}


class _Strict(FilePart, extra="forbid"):
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


class _Conditions(_Strict):
    """How the rows of some tables were obtained."""

    source: str
    tables: list[str]
    models: list[str] | None = None
    protocol: tuple[str, str]
    protocols: dict[str, tuple[str, str]] = Field({})
    expect: dict[str, tuple[str, Any]] = Field({})
    exceptions: dict[str, dict[str, tuple[str, Any]]] = Field({}, alias="except")
    samples: dict[str, int | None]
    mixer: dict[str, dict[str, list[Values]]] = Field({})
    seeds: int | None = None
    never: str = ""


class _Varied(_Strict):
    """A table that changes one setting around the chosen ones; `variants`: of the main row's so
    many count.
    """

    source: str
    table: str
    model: str
    main: dict[str, str]
    variants: int | None = None


class _PublishedRow(_Strict):
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
    def reference(self) -> str:
        """`doe2026 Table 1`."""
        return f"{self.source} {self.table}"


@dataclass(frozen=True, kw_only=True)
class Beside:
    """A published row, and every condition in which a run's row differs: none where they are
    comparable.
    """

    published: _PublishedRow
    reasons: tuple[str, ...]

    @property
    def in_short(self) -> str:
        """`98.0 (not comparable)`."""
        return f"{self.published.printed} ({'not ' if self.reasons else ''}comparable)"

    def verdict(self, limit: int | None = None) -> str:
        """Comparable, or not and why; with a limit the first reasons, and how many more there
        are.
        """
        if not self.reasons:
            return "comparable"
        left = len(self.reasons[limit:]) if limit else 0
        more = [f"and {left} more"] if left else []
        return f"not comparable: {'; '.join([*self.reasons[:limit], *more])}"


class _PublishedTable(_Strict):
    """What one file says; its `rows` are CSV there, or lie beside it as NAME.csv.

    Attributes:
        no_mixer: why names of rows stand in no entry of `models`.
    """

    format: Literal[1]
    sources: dict[str, str] = Field({})
    models: dict[str, list[str]]
    no_mixer: dict[str, list[str]] = Field({})
    tables: dict[str, list[str]]
    varied: dict[str, dict[str, list[_Varied]]] = Field({})
    conditions: list[_Conditions] = Field([])
    cautions: list[_Caution] = Field([])
    rows: tuple[_PublishedRow, ...]

    def find(self, mixer: str, benchmark: str, metric: str, label: str = "") -> list[_PublishedRow]:
        """Rows of a mixer on a benchmark, from the tables that report results; those of a label,
        where it has some.

        What a paper prints again in a later of these tables is left out.
        """
        names = self.models.get(label, self.models.get(mixer, []))
        found: list[_PublishedRow] = []
        first: dict[str, int] = {}
        for row in self.rows:
            tables = self.tables.get(row.source, [])
            is_wanted = (row.benchmark, row.metric) == (benchmark, metric)
            if is_wanted and row.model in names and row.table in tables:
                found.append(row)
                place = tables.index(row.table)
                first[row.source] = min(place, first.get(row.source, place))
        return [row for row in found if row.table == self.tables[row.source][first[row.source]]]

    def find_varied(
        self, mixer: str, key: str, benchmark: str, metric: str
    ) -> list[tuple[float, _PublishedRow, _Varied]]:
        """Rows for values of one setting of a mixer, with the values, from the tables that
        change it alone.
        """
        found = []
        for rule in self.varied.get(mixer, {}).get(key, []):
            where = (rule.source, rule.table, benchmark, metric)
            for row in self.rows:
                is_there = (row.source, row.table, row.benchmark, row.metric) == where
                if is_there and row.model.startswith(rule.model):
                    found.append((float(row.model.removeprefix(rule.model)), row, rule))
        return sorted(found, key=lambda printed: printed[0])

    def beside(
        self,
        row: TableRow,
        published: _PublishedRow,
        varied: _Varied | None = None,
        *,
        value: Mapping[str, float] | None = None,
    ) -> Beside:
        """A row beside a published one; with `varied` it is one of `find_varied`.

        Its conditions are then those of the main table, with the setting's value in place of the
        chosen one.
        """
        rule = self.conditions_of(published.model_copy(update=varied.main if varied else {}))
        chosen = rule.mixer.get(row.mixer, {}).get(published.benchmark, []) if rule else []
        counted = chosen[: varied.variants if varied else None]
        variants = [{**variant, **(value or {})} for variant in counted]
        return Beside(published=published, reasons=tuple(_reasons(row, published, rule, variants)))

    def conditions_of(self, row: _PublishedRow) -> _Conditions | None:
        """How a row was obtained, None where that is not known: the first entry that names it."""
        for rule in self.conditions:
            named = (
                rule.source == row.source
                and row.table in rule.tables
                and row.benchmark in rule.samples
            )
            if named and row.model in (rule.models or [row.model]):
                return rule
        return None


def published_beside(row: TableRow, key: str = "") -> list[Beside]:
    """Published rows of the row's mixer on its data set, each with its verdict.

    Args:
        row: of a report.
        key: a setting: from the tables that change it alone, the rows for its value in `row`.
    """
    if not key:
        where = (row.mixer, row.benchmark, row.metric, row.label)
        return [
            table.beside(row, printed)
            for table in published_tables()
            for printed in table.find(*where)
        ]
    name, value = key.removeprefix("mixer.params."), row.first.leaves.get(key)
    return [
        table.beside(row, published, rule, value={name: printed})
        for printed, published, table, rule in printed_values(row, key)
        if printed == value and isinstance(value, int | float)
    ]


def printed_values(
    row: TableRow, key: str
) -> Iterator[tuple[float, _PublishedRow, _PublishedTable, _Varied]]:
    """Every published value of one setting of the row's mixer on its data set, with its row and
    where it stands.
    """
    for table in published_tables():
        for value, printed, rule in table.find_varied(row.mixer, key, row.benchmark, row.metric):
            yield value, printed, table, rule


def source_title(source: str) -> str:
    """The paper behind a source's short name."""
    for table in published_tables():
        if source in table.sources:
            return table.sources[source]
    return source


def published_tables() -> list[_PublishedTable]:
    """The tables of all installed packages; those that cannot be used are left out
    (`published_faults`).
    """
    return [found for _, found in _files() if isinstance(found, _PublishedTable)]


def published_faults(plugin: Found | None = None) -> list[str]:
    """What is wrong with the files of all packages, or of one, a line each."""
    faults = []
    for owner, found in _files():
        if isinstance(found, str) and plugin in (None, owner):
            faults.append(found)
    return faults


def _files() -> Iterator[tuple[Found, _PublishedTable | str]]:
    for owner, folder in folders("published"):
        for path in sorted(folder.glob("*.yaml")):
            yield owner, _read(path, str(owner))


@cache
def _read(path: Path, owner: str) -> _PublishedTable | str:
    """A published table, or in one line what is wrong with its file."""
    try:
        data = parse_yaml(read_text(path, path.name), path.name, aliases=True).data
        if isinstance(data, dict):
            text = data.get("rows") or path.with_suffix(".csv").read_text(encoding="utf-8")
            rows = csv.DictReader(str(text).splitlines())
            data["rows"] = [{**row, "printed": row.get("value")} for row in rows]
        table = _PublishedTable.read(data)
    except (OSError, ValueError, ConfigError) as error:
        return f"{owner}: {path.name}: {' '.join(str(error).split())}"
    return table.model_copy(
        update={"rows": tuple(_cautioned(row, table.cautions) for row in table.rows)}
    )


def _cautioned(row: _PublishedRow, cautions: Sequence[_Caution]) -> _PublishedRow:
    texts, target = [], True
    for caution in cautions:
        given = caution.model_dump(exclude={"text", "target"}, exclude_none=True)
        if all(getattr(row, key) == value for key, value in given.items()):
            texts.append(caution.text)
            target = target and caution.target
    return row.model_copy(update={"cautions": tuple(texts), "target": target})


def _reasons(
    row: TableRow,
    published: _PublishedRow,
    rule: _Conditions | None,
    variants: Sequence[Values],
) -> Iterator[str]:
    if rule is None:
        yield "conditions unknown"
    else:
        yield from [rule.never] if rule.never else []
        yield from _differences(row, published.benchmark, rule, variants)
    if not row.counted:
        yield "no finished run"
    if any("stand-in" in note for note in row.notes):
        yield "stand-in data, published: the real data"
    if not published.target:
        yield from published.cautions[:1]


def _differences(
    row: TableRow, benchmark: str, rule: _Conditions, variants: Sequence[Values]
) -> Iterator[str]:
    own = rule.exceptions.get(benchmark, {})
    expect = {**own, **rule.expect, **own}  # the benchmark's own come first
    protocol, words = rule.protocols.get(benchmark, rule.protocol)
    if row.protocol != protocol:
        for key, (_, value) in expect.items():
            words = words.replace(f"{{{key}}}", str(value))
        yield f"{_SELECTION.get(row.protocol, row.protocol)}, published: {words}"
    leaves, samples, printed = row.first.leaves, row.samples, rule.samples[benchmark]
    yield from _unlike(leaves, expect)
    unlike = []
    for variant in variants:
        params = {f"mixer.params.{key}": (key, value) for key, value in variant.items()}
        unlike.append(list(_unlike(leaves, params)))
    yield from min(unlike, key=len, default=[])
    if None not in (samples, printed) and samples != printed:
        yield f"{samples} test samples, published {printed}"
    if row.counted and rule.seeds is not None and len(row.seeds) < rule.seeds:
        yield f"{len(row.seeds)} of the {rule.seeds} seeds that the published mean has"


def _unlike(leaves: Values, expect: Mapping[str, tuple[str, Any]]) -> Iterator[str]:
    for key, (word, value) in expect.items():
        if key not in leaves:
            yield f"{word} not stated, published {value_text(value)}"
        elif not _same(leaves[key], value):
            yield f"{word} {value_text(leaves[key])}, published {value_text(value)}"


def _same(found: Any, value: Any) -> bool:
    """Whether a setting has a published value, or one of a list of them.

    Where the setting is a list too, as `mixers` is, it is held entry by entry, and of a mapping the
    keys that are given.
    """
    if isinstance(found, list) and isinstance(value, list):
        return len(found) == len(value) and all(map(_same, found, value))
    if isinstance(found, Mapping) and isinstance(value, Mapping):
        return all(_same(found.get(key), value[key]) for key in value)
    if isinstance(value, list):
        return any(_same(found, choice) for choice in value)
    if isinstance(found, bool) or isinstance(value, bool):
        return found is value
    numbers = isinstance(found, int | float) and isinstance(value, int | float)
    return found == value if numbers else str(found) == str(value)


def value_text(value: Any) -> str:
    """A value of a setting in words; of a list, as of published ones, any of them."""
    if isinstance(value, list):
        entries = [entry for entry in value if isinstance(entry, Mapping)]
        joined = " and ".join(map(_entry, entries)) or " or ".join(map(value_text, value))
        return joined or "none"
    if value is None or isinstance(value, bool):
        return {None: "none", True: "on", False: "off"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def _entry(entry: Mapping[str, Any]) -> str:
    """`decoder subquad:softmax`, an entry of `mixers`."""
    parts = (entry.get("role"), entry.get("name"), entry.get("layers"))
    return " ".join(value_text(part) for part in parts if part)
