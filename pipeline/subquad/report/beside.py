"""A row beside its published rows: comparable, or not and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from subquad.report import ledger
from subquad.report.cells import Cell
from subquad.report.ledger import Condition, PublishedRow
from subquad.report.rows import Row

_SELECTION = {
    "honest": "checkpoint chosen on validation",
    "fixed": "last epoch of a fixed length",
    "paper": "best test accuracy over epochs",
}


@dataclass(frozen=True, kw_only=True)
class Beside:
    """A published row and whether a run's row may be held against it.

    Attributes:
        reasons: every condition that differs; empty where comparable.
    """

    published: PublishedRow
    reasons: tuple[str, ...]

    @property
    def verdict(self) -> str:
        return "comparable" if not self.reasons else f"not comparable: {'; '.join(self.reasons)}"

    def verdict_within(self, limit: int) -> str:
        """The verdict with its first reasons, and how many more there are."""
        if len(self.reasons) <= limit:
            return self.verdict
        return f"not comparable: {'; '.join(self.reasons[:limit])}; and {len(self.reasons) - limit} more"

    @property
    def reference(self) -> str:
        """`wi2025agf Table 1`."""
        return f"{self.published.source} {self.published.table}"


def published_beside(row: Row) -> list[Beside]:
    """Published rows of the row's mixer on its data set, each with its verdict."""
    found = ledger.find(row.mixer, _benchmark(row), row.metric)
    return [_beside(row, one, ledger.condition(one, row.mixer)) for one in found]


def varied_beside(row: Row, key: str) -> list[Beside]:
    """Published rows for the row's value of one setting, from the tables that change it alone."""
    value = _cell(row).experiment.get(key)
    found = printed_values(row, key) if isinstance(value, int | float) else []
    return [
        _beside(row, one, ledger.condition_varied(one, row.mixer, key, printed))
        for printed, one in found
        if printed == value
    ]


def printed_values(row: Row, key: str) -> list[tuple[float, PublishedRow]]:
    """Every published value of one setting of the row's mixer on its data set."""
    return ledger.find_varied(row.mixer, key, _benchmark(row), row.metric)


def _cell(row: Row) -> Cell:
    return next(iter(row.counted or row.cells))


def _benchmark(row: Row) -> str:
    result = _cell(row).result
    return result.published_keys.get("benchmark", row.dataset) if result else row.dataset


def _beside(row: Row, published: PublishedRow, condition: Condition | None) -> Beside:
    return Beside(published=published, reasons=_reasons(row, _cell(row), published, condition))


def _reasons(row: Row, cell: Cell, published: PublishedRow, condition: Condition | None) -> tuple[str, ...]:
    reasons = ["conditions unknown"] if condition is None else list(_differences(row, cell, condition))
    if not row.counted:
        reasons.append("no finished run")
    if any("stand-in" in note for note in row.notes):
        reasons.append("stand-in data, published: the real data")
    if not published.target:
        reasons.extend(published.cautions[:1])
    return tuple(reasons)


def _differences(row: Row, cell: Cell, condition: Condition) -> Iterator[str]:
    if condition.never:
        yield condition.never
        return
    protocol, words = condition.protocol
    if row.protocol != protocol:
        yield f"{_SELECTION.get(row.protocol, row.protocol)}, published: {words}"
    yield from _unlike(cell, condition.expect)
    variants = [{f"mixer.params.{key}": (key, value) for key, value in one.items()} for one in condition.mixer]
    yield from min((list(_unlike(cell, one)) for one in variants), key=len, default=[])
    samples = cell.result.test.samples if cell.result and cell.result.test else None
    if samples is not None and samples != condition.samples:
        yield f"{samples} test samples, published {condition.samples}"
    if row.counted and condition.seeds is not None and len(row.seeds) < condition.seeds:
        yield f"{len(row.seeds)} of the {condition.seeds} seeds that the published mean has"


def _unlike(cell: Cell, expect: Mapping[str, tuple[str, Any]]) -> Iterator[str]:
    for key, (word, value) in expect.items():
        if key not in cell.experiment:
            yield f"{word} not stated, published {_said(value)}"
        elif not _same(cell.experiment[key], value):
            yield f"{word} {_said(cell.experiment[key])}, published {_said(value)}"


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
