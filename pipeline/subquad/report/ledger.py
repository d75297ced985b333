"""The ledger of published numbers in the package: `published/results.csv` and `published/conditions.yaml`."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any

import yaml


@dataclass(frozen=True, kw_only=True)
class Condition:
    """How a table's rows were obtained.

    Attributes:
        protocol: the protocol, and what it reports in words.
        expect: key of experiment.yaml -> (word for it, value).
        mixer: parameters of the mixer; any of these will do, none: not compared.
        samples: test samples.
        seeds: runs behind a printed mean, None where it says nothing of them.
        never: why no run is comparable, "" where one can be.
    """

    protocol: tuple[str, str]
    expect: Mapping[str, tuple[str, Any]]
    mixer: tuple[Mapping[str, Any], ...]
    samples: int
    seeds: int | None = None
    never: str = ""


@dataclass(frozen=True, kw_only=True)
class PublishedRow:
    """One printed number.

    Attributes:
        value: as printed, in `unit`.
        cautions: what a reader of it must know.
        target: False for a number nobody should try to reach.
    """

    source: str
    table: str
    model: str
    benchmark: str
    metric: str
    value: float
    unit: str
    cautions: tuple[str, ...] = field(default=())
    target: bool = True


def find(mixer: str, benchmark: str, metric: str) -> list[PublishedRow]:
    """Published rows of a mixer on a benchmark, from the tables that report results."""
    models = _rules()["models"].get(mixer, [])
    tables = _rules()["tables"]
    return [
        row
        for row in rows()
        if row.model in models
        and (row.benchmark, row.metric) == (benchmark, metric)
        and row.table in tables.get(row.source, [])
    ]


def find_varied(mixer: str, key: str, benchmark: str, metric: str) -> list[tuple[float, PublishedRow]]:
    """Published rows for values of one setting of a mixer, with the values, from the tables that change it alone."""
    found = [
        (float(row.model.removeprefix(rule["model"])), row)
        for rule in _varied(mixer, key)
        for row in rows()
        if (row.source, row.table, row.benchmark, row.metric) == (rule["source"], rule["table"], benchmark, metric)
        and row.model.startswith(rule["model"])
    ]
    return sorted(found, key=lambda one: one[0])


def condition_varied(row: PublishedRow, mixer: str, key: str, value: float) -> Condition | None:
    """Conditions of a row of `find_varied`: those of the main table, with the value in place of the chosen one."""
    rule = next(one for one in _varied(mixer, key) if (one["source"], one["table"]) == (row.source, row.table))
    main = condition(replace(row, **rule["main"]), mixer)
    param = key.removeprefix("mixer.params.")
    return main and replace(main, mixer=tuple({**one, param: value} for one in main.mixer[: rule.get("variants")]))


def _varied(mixer: str, key: str) -> list[Mapping[str, Any]]:
    return _rules()["varied"].get(mixer, {}).get(key, [])


def condition(row: PublishedRow, mixer: str) -> Condition | None:
    """Conditions of a published row, None where they are not known."""
    for rule in _rules()["conditions"]:
        if _names(rule, row):
            return _condition(rule, row.benchmark, mixer)
    return None


def _names(rule: Mapping[str, Any], row: PublishedRow) -> bool:
    return (
        rule["source"] == row.source
        and row.table in rule["tables"]
        and row.benchmark in rule["samples"]
        and row.model in rule.get("models", [row.model])
    )


def _condition(rule: Mapping[str, Any], benchmark: str, mixer: str) -> Condition:
    own = rule["except"].get(benchmark, {})
    expect = {**own, **rule["expect"], **own}  # the benchmark's own come first
    protocol, words = rule.get("protocols", {}).get(benchmark, rule["protocol"])
    for key, (_, value) in expect.items():
        words = words.replace(f"{{{key}}}", str(value))
    return Condition(
        protocol=(protocol, words),
        expect={key: (word, value) for key, (word, value) in expect.items()},
        mixer=tuple(rule["mixer"].get(mixer, {}).get(benchmark, ())),
        samples=rule["samples"][benchmark],
        seeds=rule.get("seeds"),
        never=rule.get("never", ""),
    )


def source_title(source: str) -> str:
    """The paper behind a source's short name."""
    return _rules()["sources"].get(source, source)


@cache
def rows() -> tuple[PublishedRow, ...]:
    """Every row of the ledger."""
    text = _file("results.csv")
    return tuple(_row(record) for record in csv.DictReader(text.splitlines()))


def _row(record: Mapping[str, str]) -> PublishedRow:
    plain = {key: record[key] for key in ("source", "table", "model", "benchmark", "metric", "unit")}
    value = float(record["value"])
    fitting = [rule for rule in _rules()["cautions"] if _fits(rule, plain, value)]
    return PublishedRow(
        **plain,
        value=value,
        cautions=tuple(rule["text"] for rule in fitting),
        target=all(rule.get("target", True) for rule in fitting),
    )


def _fits(rule: Mapping[str, Any], plain: Mapping[str, str], value: float) -> bool:
    keys = ("source", "table", "benchmark", "model")
    return rule.get("value", value) == value and all(rule.get(key, plain[key]) == plain[key] for key in keys)


@cache
def _rules() -> dict[str, Any]:
    return yaml.safe_load(_file("conditions.yaml"))


def _file(name: str) -> str:
    return (files("subquad.report") / "published" / name).read_text(encoding="utf-8")
